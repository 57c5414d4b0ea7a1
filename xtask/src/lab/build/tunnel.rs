//! Tunnels between nodes.

use anyhow::Result;

use crate::lab::address::{Addresses, Family, SERVICE_RANGE_V4, SERVICE_RANGE_V6, pod_ranges};
use crate::lab::network::TUNNEL_MTU;
use crate::lab::{Host, Lab, command};

/// VXLAN as flannel sets it up: an address without hosts for each node's end, and everything that
/// would be asked for on the wire entered by hand.
pub(super) fn vxlan(lab: &Lab, node: &Host, number: u8) -> Result<()> {
    let Addresses { v4, v6 } = end(number);
    let device = lab.network.uplink_device();
    let mut lines = vec![
        format!(
            "link add {VXLAN} address {} type vxlan id 1 local {} dev {device} dstport 8472 nolearning",
            mac(number),
            node.addresses.v4,
        ),
        format!("link set {VXLAN} addrgenmode none"),
        format!("link set {VXLAN} mtu {TUNNEL_MTU} up"),
        format!("address add {v4}/32 dev {VXLAN}"),
        format!("address add {v6}/128 dev {VXLAN} nodad"),
    ];
    let mut entries = Vec::new();
    for (other, number) in others(lab, node) {
        let mac = mac(number);
        for (family, range) in Family::ALL.into_iter().zip(pod_ranges(number)) {
            let end = end(number).of(family);
            lines.push(format!(
                "neighbour add {end} lladdr {mac} dev {VXLAN} nud permanent"
            ));
            lines.push(format!("route add {range} via {end} dev {VXLAN} onlink"));
        }
        entries.push(format!(
            "fdb append {mac} dev {VXLAN} dst {}\n",
            other.addresses.v4
        ));
    }
    command::ip(Some(node.namespace.name()), &lines)?;
    let mut bridge = node.namespace.command("bridge");
    command::fed(bridge.args(["-batch", "-"]), &entries.concat())?;
    Ok(())
}

/// Packets without an Ethernet header.
pub(super) fn without_ethernet(lab: &Lab, node: &Host, number: u8) -> Result<()> {
    let Addresses { v4, v6 } = end(number);
    let mut lines = vec![
        format!("link add {PLAIN} type vxlan dstport 4790 gpe external"),
        format!("link set {PLAIN} addrgenmode none"),
        format!("link set {PLAIN} mtu {TUNNEL_MTU} up"),
        format!("address add {v4}/32 dev {PLAIN}"),
        format!("address add {v6}/128 dev {PLAIN} nodad"),
    ];
    for (other, number) in others(lab, node) {
        lines.extend(pod_ranges(number).map(|range| plain_route(&range, other)));
    }
    command::ip(Some(node.namespace.name()), &lines)
}

/// Has a node send packets for Services through the tunnel.
pub(in crate::lab) fn tunnel_services(from: &Host, to: &Host) -> Result<()> {
    let routes = [SERVICE_RANGE_V4, SERVICE_RANGE_V6].map(|range| plain_route(range, to));
    command::ip(Some(from.namespace.name()), &routes)
}

fn plain_route(range: &str, to: &Host) -> String {
    let Addresses { v4, .. } = to.addresses;
    format!("route add {range} encap ip id 1 dst {v4} dev {PLAIN}")
}

fn others<'l>(lab: &'l Lab, node: &Host) -> impl Iterator<Item = (&'l Host, u8)> {
    let name = node.name.clone();
    let nodes = lab.nodes.iter().zip(1u8..);
    nodes.filter(move |(other, _)| other.name != name)
}

/// Address of a node's end.
const fn end(node: u8) -> Addresses {
    Addresses::pod(node, 0)
}

fn mac(node: u8) -> String {
    format!("02:00:00:00:03:{node:02x}")
}

const VXLAN: &str = "vxlan0";
const PLAIN: &str = "plain0";
