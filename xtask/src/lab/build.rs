//! The commands that a lab is made by.

use std::net::IpAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use super::address::{Addresses, Family, SERVICE_RANGE_V4, SERVICE_RANGE_V6, pod_ranges};
use super::network::{Between, Pods};
use super::{Host, Lab, Namespace, command, firewall};

mod bridged;
mod detour;
mod routed;
mod tunnel;

use self::bridged::BRIDGE;
pub use self::detour::Side;
pub(super) use self::detour::detour;
pub(super) use self::tunnel::tunnel_services;

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
        bridged::hide_from_netfilter(&node.namespace)?;
        firewall::load(&node.namespace)?;
    }

    let bridge = lab.bridge.name();
    let mtu = lab.network.underlay_mtu();
    let uplinks = hosts.iter().zip(1..).map(|(host, port)| {
        format!(
            "link add eth0 netns {} address {} mtu {mtu} type veth peer name port{port} netns {bridge} mtu {mtu}",
            host.namespace.name(),
            uplink_mac(port),
        )
    });
    command::ip(None, &uplinks.collect::<Vec<_>>())?;
    let mut lines = vec![format!(
        "link add br0 mtu {mtu} type bridge mcast_snooping 0"
    )];
    for port in 1..=hosts.len() {
        lines.push(format!("link set port{port} master br0 up"));
    }
    lines.push("link set br0 up".to_owned());
    command::ip(Some(bridge), &lines)?;

    for (host, port) in hosts.iter().zip(1u8..) {
        let is_node = host.name != lab.outside.name;
        let device = if is_node {
            lab.network.uplink_device()
        } else {
            "eth0"
        };
        let mut lines = uplink(host.addresses, device, &uplink_mac(port));
        for (other, other_port) in hosts.iter().zip(1u8..) {
            if other_port != port {
                let address = other.addresses;
                let mac = uplink_mac(other_port);
                lines.extend(neighbours(address, device, &mac));
            }
        }
        if is_node {
            let all = ["0.0.0.0/0".to_owned(), "::/0".to_owned()];
            lines.extend(via(all, lab.outside.addresses));
        } else {
            let services = [SERVICE_RANGE_V4.to_owned(), SERVICE_RANGE_V6.to_owned()];
            lines.extend(via(services, Addresses::node(1)));
        }
        // A tunnel's routes come with the tunnel.
        if !is_node || lab.network.between == Between::Routes {
            for (other, number) in lab.nodes.iter().zip(1u8..) {
                if other.name != host.name {
                    lines.extend(via(pod_ranges(number), other.addresses));
                }
            }
        }
        command::ip(Some(host.namespace.name()), &lines)?;
    }
    for (node, number) in lab.nodes.iter().zip(1u8..) {
        match lab.network.between {
            Between::Routes => {}
            Between::Vxlan => tunnel::vxlan(lab, node, number)?,
            Between::Tunnel => tunnel::without_ethernet(lab, node, number)?,
        }
        if let Pods::Bridged { netfilter } = lab.network.pods {
            bridged::bridge(&node.namespace, number, lab.network.mtu(), netfilter)?;
        }
    }
    Ok(())
}

/// Makes pods on a node.
pub(super) fn pods(lab: &Lab, node: &Host, cables: &[Cable<'_>]) -> Result<()> {
    let namespaces = cables.iter().map(|cable| &cable.pod.namespace);
    add_namespaces(lab, &namespaces.collect::<Vec<_>>())?;
    for cable in cables {
        harden(&cable.pod.namespace)?;
    }
    let mtu = lab.network.mtu();
    let pairs = cables.iter().map(|Cable { pod, device, mac }| {
        format!(
            "link add eth0 netns {} address {mac} mtu {mtu} type veth peer name {device} netns {} mtu {mtu}",
            pod.namespace.name(),
            node.namespace.name(),
        )
    });
    command::ip(None, &pairs.collect::<Vec<_>>())?;
    match lab.network.pods {
        Pods::Routed => routed::connect(node, cables),
        Pods::Bridged { .. } => bridged::connect(node, cables),
    }
}

/// A pod and its veth.
#[derive(Debug)]
pub(super) struct Cable<'p> {
    pub(super) pod: &'p Host,
    /// Name of the node's end.
    pub(super) device: String,
    /// Hardware address of the pod's end.
    pub(super) mac: String,
}

fn set_up_pods(cables: &[Cable<'_>], lines: fn(Addresses) -> Vec<String>) -> Result<()> {
    cables.iter().try_for_each(|cable| {
        let name = cable.pod.namespace.name();
        command::ip(Some(name), &lines(cable.pod.addresses))
    })
}

// Until the node's ends of all cables have this state, in what a command lists.
fn wait_for(list: &mut Command, cables: &[Cable<'_>], state: &str) -> Result<()> {
    for _ in 0..1000 {
        let listed = command::output(list)?;
        let is_so = |cable: &Cable<'_>| {
            let name = format!(": {}@", cable.device);
            let mut lines = listed.lines();
            lines.any(|line| line.contains(&name) && line.contains(state))
        };
        if cables.iter().all(is_so) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    bail!("some devices do not come to {state}");
}

/// Gives a pod all addresses of a prefix.
pub(super) fn prefix(lab: &Lab, node: &Host, pod: &Host, prefix: &str) -> Result<()> {
    let address = pod.addresses.of(family_of(prefix));
    let inside = format!("route add local {prefix} dev lo");
    command::ip(Some(pod.namespace.name()), &[inside])?;
    // One next hop stands for all: hundreds of neighbour entries would be the only alternative.
    let device = match lab.network.pods {
        Pods::Routed => pod_device(last_part(pod)),
        Pods::Bridged { .. } => BRIDGE.to_owned(),
    };
    let outside = format!("route add {prefix} via {address} dev {device} onlink");
    command::ip(Some(node.namespace.name()), &[outside])
}

fn family_of(prefix: &str) -> Family {
    if prefix.contains(':') {
        Family::V6
    } else {
        Family::V4
    }
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

fn uplink(addresses: Addresses, device: &str, mac: &str) -> Vec<String> {
    let mut lines = vec!["link set lo up".to_owned()];
    if device != "eth0" {
        lines.push(format!("link add {device} address {mac} type bridge"));
        lines.push(format!("link set eth0 master {device}"));
        lines.push(format!("link set {device} up"));
    }
    lines.extend([
        "link set eth0 up".to_owned(),
        format!("address add {}/24 dev {device}", addresses.v4),
        format!("address add {}/64 dev {device} nodad", addresses.v6),
    ]);
    lines
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

/// Name of the node's end of the veth of the pod of this number.
pub(super) fn pod_device(number: u8) -> String {
    format!("pod{number}")
}
