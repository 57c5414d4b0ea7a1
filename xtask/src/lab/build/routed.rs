//! Pods on routed veths.

use std::process::Command;

use anyhow::Result;

use super::{Cable, neighbours, set_up_pods, wait_for};
use crate::lab::address::{Addresses, Family};
use crate::lab::{Host, command};

/// Gives new namespaces their cables.
pub(super) fn connect(node: &Host, cables: &[Cable<'_>]) -> Result<()> {
    let node = node.namespace.name();
    let mut lines = Vec::new();
    for Cable { pod, device, mac } in cables {
        lines.push(format!("link set {device} addrgenmode none"));
        lines.push(format!("link set {device} address {GATEWAY_MAC} up"));
        lines.push(format!("address add fe80::1/64 dev {device} nodad"));
        lines.extend(neighbours(pod.addresses, device, mac));
        for family in Family::ALL {
            lines.push(format!(
                "route add {} dev {device}",
                pod.addresses.of(family)
            ));
        }
    }
    command::ip(Some(node), &lines)?;
    set_up_pods(cables, inside)?;
    // The end that is up first loses what is sent by it before the kernel comes round to it.
    let mut ends = Command::new("ip");
    wait_for(ends.args(["-n", node, "link"]), cables, "state UP")
}

fn inside(addresses: Addresses) -> Vec<String> {
    [
        "link set lo up",
        "link set eth0 up",
        &format!("address add {}/32 dev eth0", addresses.v4),
        &format!("address add {}/128 dev eth0 nodad", addresses.v6),
        "route add 169.254.1.1 dev eth0 scope link",
        "route add default via 169.254.1.1 dev eth0",
        "route add default via fe80::1 dev eth0",
        &format!("neighbour add 169.254.1.1 lladdr {GATEWAY_MAC} dev eth0 nud permanent"),
        &format!("neighbour add fe80::1 lladdr {GATEWAY_MAC} dev eth0 nud permanent"),
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Address of the node's end of every pod's veth, as in Calico.
const GATEWAY_MAC: &str = "ee:ee:ee:ee:ee:ee";
