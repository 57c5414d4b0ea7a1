//! The commands that a lab is made by.

use std::net::IpAddr;

use anyhow::Result;

use super::address::{Addresses, Family, SERVICE_RANGE_V4, SERVICE_RANGE_V6, pod_ranges};
use super::{Host, Lab, Namespace, command, firewall};

/// Makes the bridge, the nodes and the client outside.
pub(super) fn underlay(lab: &Lab) -> Result<()> {
    let hosts: Vec<_> = lab.nodes.iter().chain([&lab.outside]).collect();
    let namespaces = hosts.iter().map(|host| &host.namespace);
    add_namespaces(lab, &namespaces.chain([&lab.bridge]).collect::<Vec<_>>())?;
    lab.bridge
        .set(&[v6("all/disable_ipv6", "1"), v6("default/disable_ipv6", "1")])?;
    for host in &hosts {
        harden(&host.namespace)?;
    }
    for node in &lab.nodes {
        forward(&node.namespace)?;
        firewall::load(&node.namespace)?;
    }

    let bridge = lab.bridge.name();
    let uplinks = hosts.iter().zip(1..).map(|(host, port)| {
        format!(
            "link add eth0 netns {} address {} type veth peer name port{port} netns {bridge}",
            host.namespace.name(),
            uplink_mac(port),
        )
    });
    command::ip(None, &uplinks.collect::<Vec<_>>())?;
    let mut lines = vec!["link add br0 type bridge mcast_snooping 0".to_owned()];
    for port in 1..=hosts.len() {
        lines.push(format!("link set port{port} master br0 up"));
    }
    lines.push("link set br0 up".to_owned());
    command::ip(Some(bridge), &lines)?;

    for (host, port) in hosts.iter().zip(1u8..) {
        let mut lines = uplink(host.addresses);
        for (other, other_port) in hosts.iter().zip(1u8..) {
            if other_port != port {
                let address = other.addresses;
                let mac = uplink_mac(other_port);
                lines.extend(neighbours(address, "eth0", &mac));
            }
        }
        for (other, number) in lab.nodes.iter().zip(1u8..) {
            if other.name != host.name {
                lines.extend(via(pod_ranges(number), other.addresses));
            }
        }
        if host.name == lab.outside.name {
            let services = [SERVICE_RANGE_V4.to_owned(), SERVICE_RANGE_V6.to_owned()];
            lines.extend(via(services, Addresses::node(1)));
        } else {
            let all = ["0.0.0.0/0".to_owned(), "::/0".to_owned()];
            lines.extend(via(all, lab.outside.addresses));
        }
        command::ip(Some(host.namespace.name()), &lines)?;
    }
    Ok(())
}

/// Makes pods on a node; `numbers` are the last parts of their addresses.
pub(super) fn pods(lab: &Lab, node: &Host, numbers: &[u8], pods: &[Host]) -> Result<()> {
    let namespaces = pods.iter().map(|pod| &pod.namespace);
    add_namespaces(lab, &namespaces.collect::<Vec<_>>())?;
    for pod in pods {
        harden(&pod.namespace)?;
    }
    let node = node.namespace.name();
    let mut links = Vec::new();
    let mut on_node = Vec::new();
    for (pod, number) in pods.iter().zip(numbers) {
        let device = format!("pod{number}");
        let mac = pod_mac(*number);
        links.push(format!(
            "link add eth0 netns {} address {mac} type veth peer name {device} netns {node} address {GATEWAY_MAC}",
            pod.namespace.name(),
        ));
        on_node.push(format!("link set {device} addrgenmode none"));
        on_node.push(format!("link set {device} up"));
        on_node.push(format!("address add fe80::1/64 dev {device} nodad"));
        on_node.extend(neighbours(pod.addresses, &device, &mac));
        for family in Family::ALL {
            on_node.push(format!(
                "route add {} dev {device}",
                pod.addresses.of(family)
            ));
        }
    }
    command::ip(None, &links)?;
    // The pod's end first: a veth has a carrier when both ends are up.
    for pod in pods {
        command::ip(Some(pod.namespace.name()), &inside_pod(pod.addresses))?;
    }
    command::ip(Some(node), &on_node)
}

/// Gives a pod all addresses of a prefix.
pub(super) fn prefix(node: &Host, pod: &Host, prefix: &str) -> Result<()> {
    let family = if prefix.contains(':') {
        Family::V6
    } else {
        Family::V4
    };
    let address = pod.addresses.of(family);
    let inside = format!("route add local {prefix} dev lo");
    command::ip(Some(pod.namespace.name()), &[inside])?;
    // One next hop stands for all: hundreds of neighbour entries would be the only alternative.
    let device = format!("pod{}", last_part(pod));
    let outside = format!("route add {prefix} via {address} dev {device} onlink");
    command::ip(Some(node.namespace.name()), &[outside])
}

/// Gives a host an address that no route leads to.
pub(super) fn address(host: &Host, address: IpAddr) -> Result<()> {
    let flag = if address.is_ipv6() { "nodad" } else { "" };
    let line = format!("address add {address} dev lo {flag}");
    command::ip(Some(host.namespace.name()), &[line])
}

/// Removes a pod.
pub(super) fn remove(pod: &Host) -> Result<()> {
    let name = pod.namespace.name();
    // The namespace lives on while anybody has a socket in it; the device has to go now.
    command::ip(Some(name), &["link delete eth0".to_owned()])?;
    command::ip(None, &[format!("netns delete {name}")])
}

/// Address of the node's end of every pod's veth, as in Calico.
const GATEWAY_MAC: &str = "ee:ee:ee:ee:ee:ee";

const fn last_part(pod: &Host) -> u8 {
    let [.., last] = pod.addresses.v4.octets();
    last
}

fn add_namespaces(lab: &Lab, namespaces: &[&Namespace]) -> Result<()> {
    let mut lines = Vec::new();
    for namespace in namespaces {
        lab.guard.namespace(namespace.name())?;
        lines.push(format!("netns add {}", namespace.name()));
    }
    command::ip(None, &lines)
}

// Before any device but lo exists: those to come take over the defaults.
fn harden(namespace: &Namespace) -> Result<()> {
    let mut settings = Vec::new();
    for device in ["all", "default", "lo"] {
        settings.push((format!("ipv4/conf/{device}/rp_filter"), "1"));
        settings.push(v6(&format!("{device}/accept_dad"), "0"));
        settings.push(v6(&format!("{device}/accept_ra"), "0"));
    }
    namespace.set(&settings)
}

fn forward(namespace: &Namespace) -> Result<()> {
    namespace.set(&[
        ("ipv4/ip_forward".to_owned(), "1"),
        v6("all/forwarding", "1"),
        v6("default/forwarding", "1"),
    ])
}

fn v6(name: &str, value: &'static str) -> (String, &'static str) {
    (format!("ipv6/conf/{name}"), value)
}

fn uplink(addresses: Addresses) -> Vec<String> {
    vec![
        "link set lo up".to_owned(),
        "link set eth0 up".to_owned(),
        format!("address add {}/24 dev eth0", addresses.v4),
        format!("address add {}/64 dev eth0 nodad", addresses.v6),
    ]
}

fn inside_pod(addresses: Addresses) -> Vec<String> {
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

fn via(ranges: [String; 2], gateway: Addresses) -> impl Iterator<Item = String> {
    ranges
        .into_iter()
        .zip(Family::ALL)
        .map(move |(range, family)| format!("route add {range} via {}", gateway.of(family)))
}

// Permanent, for a program that drops what it should not would drop neighbour discovery too, and
// the lab would fall silent half a minute later, far from the cause.
fn neighbours(addresses: Addresses, device: &str, mac: &str) -> [String; 2] {
    Family::ALL.map(|family| {
        let address = addresses.of(family);
        format!("neighbour add {address} lladdr {mac} dev {device} nud permanent")
    })
}

fn uplink_mac(port: u8) -> String {
    format!("02:00:00:00:00:{port:02x}")
}

fn pod_mac(number: u8) -> String {
    format!("02:00:00:00:01:{number:02x}")
}
