//! What a device is to a service proxy, told by its attributes and never by its name.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use super::bridge::Bridge;
use super::links::{Link, Links};

/// `ARPHRD_ETHER`.
const ETHERNET: u16 = 1;

/// Kinds without an Ethernet header that carry IP between machines.
const TUNNELS: [&str; 13] = [
    "gre",
    "ip6gre",
    "ip6tnl",
    "ipip",
    "sit",
    "tun",
    "vti",
    "vti6",
    // GPE, that is.
    "vxlan",
    "wireguard",
    "xfrm",
    "gtp",
    "wwan",
];

/// What packets of a device start with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// An Ethernet header.
    Ethernet,
    /// The IP header.
    None,
}

/// Where the packets of a device come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A pod, routed.
    Pod,
    /// A pod on a bridge.
    PodPort,
    /// Other machines.
    Uplink,
    /// Other machines, by way of a bridge.
    UplinkPort,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pod => "pod",
            Self::PodPort => "pod-port",
            Self::Uplink => "uplink",
            Self::UplinkPort => "uplink-port",
        })
    }
}

/// Why a device is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Loopback, dummy and the like carry no traffic of others.
    Internal,
    /// Both ends of the pair are in this network namespace.
    PairedHere,
    /// Its traffic is seen at the device it is a part of.
    SeenAtMaster,
    /// Its traffic is seen at its ports.
    SeenAtPorts,
    /// A kind of device that is not known.
    Unknown,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Internal => "it carries no traffic of others",
            Self::PairedHere => "its peer is in the same network namespace",
            Self::SeenAtMaster => "the device it belongs to is attached instead",
            Self::SeenAtPorts => "its ports are what counts",
            Self::Unknown => "this kind of device is not known",
        })
    }
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// One whose packets may be for Services.
    Takes(Class, Framing),
    /// Leave it alone.
    Skip(Reason),
}

/// A device to attach to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What packets of it start with.
    pub framing: Framing,
    /// Where its packets come from.
    pub class: Class,
    /// Tells it from a device that had its index before.
    pub incarnation: u64,
    /// The bridge that it is a port of.
    pub bridge: Option<Bridge>,
}

/// What `link` is, on a node with these addresses.
pub fn classify(link: &Link, links: &Links, node: &BTreeSet<IpAddr>) -> Verdict {
    let kind = link.kind.as_deref();
    if link.is_loopback || matches!(kind, Some("dummy" | "ifb" | "nlmon")) {
        return Verdict::Skip(Reason::Internal);
    }
    if matches!(kind, Some("bridge" | "vrf")) {
        return Verdict::Skip(Reason::SeenAtPorts);
    }
    // In a node that is a container itself the uplink is a veth like those of its pods, so the
    // traffic that a device carries comes before its kind.
    let is_uplink = carries_node_traffic(link.index, links, node);
    let Some(master) = link.master else {
        return routed(link, is_uplink);
    };
    match links.get(master).and_then(|master| master.kind.as_deref()) {
        Some("bridge") => port(link, is_uplink || carries_node_traffic(master, links, node)),
        // A VRF only chooses the routing table of the devices in it.
        Some("vrf") => routed(link, is_uplink),
        _ => Verdict::Skip(Reason::SeenAtMaster),
    }
}

fn carries_node_traffic(index: u32, links: &Links, node: &BTreeSet<IpAddr>) -> bool {
    links.has_default_route(index) || links.addresses(index).any(|addr| node.contains(addr))
}

fn routed(link: &Link, is_uplink: bool) -> Verdict {
    if is_uplink {
        return takes(Class::Uplink, link);
    }
    let is_ethernet = link.hardware == ETHERNET;
    match link.kind.as_deref() {
        Some("veth" | "netkit") if link.is_paired_elsewhere => takes(Class::Pod, link),
        Some("veth" | "netkit") => Verdict::Skip(Reason::PairedHere),
        // One whose lower device is elsewhere was given to this node from outside.
        Some("macvlan" | "macvtap" | "ipvlan" | "ipvtap") if link.is_paired_elsewhere => {
            takes(Class::Uplink, link)
        }
        Some("macvlan" | "macvtap" | "ipvlan" | "ipvtap" | "openvswitch") => {
            takes(Class::Pod, link)
        }
        // A tap leads into a virtual machine.
        Some("tun") if is_ethernet => takes(Class::Pod, link),
        Some(kind) if TUNNELS.contains(&kind) && !is_ethernet => takes(Class::Uplink, link),
        kind if is_ethernet && leads_outside(kind) => takes(Class::Uplink, link),
        _ => Verdict::Skip(Reason::Unknown),
    }
}

fn port(link: &Link, is_uplink: bool) -> Verdict {
    if is_uplink || leads_outside(link.kind.as_deref()) {
        takes(Class::UplinkPort, link)
    } else {
        takes(Class::PodPort, link)
    }
}

/// Whether devices of this kind, with an Ethernet header, lead to other machines.
fn leads_outside(kind: Option<&str>) -> bool {
    matches!(
        kind,
        None | Some("bond" | "team" | "vlan" | "vxlan" | "geneve" | "gretap" | "ip6gretap")
    )
}

const fn takes(class: Class, link: &Link) -> Verdict {
    let framing = if link.hardware == ETHERNET {
        Framing::Ethernet
    } else {
        Framing::None
    };
    Verdict::Takes(class, framing)
}

#[cfg(test)]
mod tests;
