//! Pods on a bridge.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{Cable, set_up_pods, wait_for};
use crate::lab::address::{Addresses, Family};
use crate::lab::{Host, Namespace, command};

/// The bridge, whose name begins as that of the plugin does.
pub(super) const BRIDGE: &str = "cni0";

/// Makes the bridge of a node.
pub(super) fn bridge(node: &Namespace, number: u8, mtu: u16, netfilter: bool) -> Result<()> {
    let Addresses { v4, v6 } = gateway(number);
    let lines = [
        format!("link add {BRIDGE} address 02:00:00:00:02:{number:02x} mtu {mtu} type bridge"),
        format!("link set {BRIDGE} up"),
        format!("address add {v4}/24 dev {BRIDGE}"),
        format!("address add {v6}/64 dev {BRIDGE} nodad"),
    ];
    command::ip(Some(node.name()), &lines)?;
    if netfilter {
        if !is_seen_by_netfilter() {
            command::output(Command::new("modprobe").arg("br_netfilter"))?;
        }
        show_netfilter(node, "1")?;
    }
    Ok(())
}

/// Has bridges of a node be bridges only; without the module they are.
pub(super) fn hide_from_netfilter(node: &Namespace) -> Result<()> {
    if is_seen_by_netfilter() {
        show_netfilter(node, "0")?;
    }
    Ok(())
}

// The module shows its settings in every namespace.
fn is_seen_by_netfilter() -> bool {
    Path::new("/proc/sys/net/bridge").exists()
}

fn show_netfilter(node: &Namespace, value: &'static str) -> Result<()> {
    let names = ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables"];
    node.set(&names.map(|name| (format!("bridge/{name}"), value)))
}

/// Gives new namespaces their cables.
pub(super) fn connect(node: &Host, cables: &[Cable<'_>]) -> Result<()> {
    let node = node.namespace.name();
    let mut lines = Vec::new();
    for Cable { device, .. } in cables {
        lines.push(format!("link set {device} addrgenmode none"));
        lines.push(format!("link set {device} master {BRIDGE} up"));
    }
    command::ip(Some(node), &lines)?;
    set_up_pods(cables, inside)?;
    // A port carries nothing before the bridge has heard of its carrier.
    let mut ports = Command::new("bridge");
    wait_for(ports.args(["-n", node, "link"]), cables, "state forwarding")?;
    cables.iter().try_for_each(announce)
}

// As the plugin does: whoever knows the address of a former pod hears that it has moved. The
// kernel says so when a hardware address is set, be it the same.
fn announce(Cable { pod, mac, .. }: &Cable<'_>) -> Result<()> {
    pod.namespace.set(&[
        ("ipv4/conf/eth0/arp_notify".to_owned(), "1"),
        ("ipv6/conf/eth0/ndisc_notify".to_owned(), "1"),
    ])?;
    command::ip(
        Some(pod.namespace.name()),
        &[format!("link set eth0 address {mac}")],
    )
}

fn inside(addresses: Addresses) -> Vec<String> {
    let [_, _, node, _] = addresses.v4.octets();
    let gateway = gateway(node);
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!("address add {}/24 dev eth0", addresses.v4),
        format!("address add {}/64 dev eth0 nodad", addresses.v6),
        "link set eth0 up".to_owned(),
    ];
    lines.extend(Family::ALL.map(|family| {
        let gateway = gateway.of(family);
        format!("route add default via {gateway} dev eth0")
    }));
    lines
}

/// Address of a node's bridge, and of everything that leaves it.
const fn gateway(node: u8) -> Addresses {
    Addresses::pod(node, 1)
}
