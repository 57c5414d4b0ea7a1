//! What a device is to a service proxy, told by its attributes and never by its name.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use super::links::{Link, Links};

/// What packets of a device start with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// An Ethernet header.
    Ethernet,
    /// The IP header.
    None,
}

impl Framing {
    /// What packets of a device of this hardware type (`ARPHRD_` constants of `linux/if_arp.h`)
    /// start with, if that is something that the programs can read.
    pub const fn of(hardware: u16) -> Option<Self> {
        match hardware {
            1 => Some(Self::Ethernet),
            // PPP, RAWIP, TUNNEL, TUNNEL6, SIT, IPGRE, IP6GRE, NONE.
            512 | 519 | 768 | 769 | 776 | 778 | 823 | 0xfffe => Some(Self::None),
            _ => None,
        }
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "ethernet",
            Self::None => "ip",
        })
    }
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
    /// Its packets start with something that is not known.
    Header,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Internal => "it carries no traffic of others",
            Self::PairedHere => "its peer is in the same network namespace",
            Self::SeenAtMaster => "the device it belongs to is attached instead",
            Self::SeenAtPorts => "its ports are what counts",
            Self::Unknown => "this kind of device is not known",
            Self::Header => "what its packets start with is not known",
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

/// What `link` is, on a node with these addresses.
pub fn classify(link: &Link, links: &Links, node: &BTreeSet<IpAddr>) -> Verdict {
    let kind = link.kind.as_deref();
    if link.is_loopback || kind.is_some_and(|kind| INTERNAL.contains(&kind)) {
        return Verdict::Skip(Reason::Internal);
    }
    if matches!(kind, Some("bridge" | "vrf")) {
        return Verdict::Skip(Reason::SeenAtPorts);
    }
    let master = link.master.map(|index| (index, links.get(index)));
    let class = match master {
        None => routed(link, links, node),
        Some((bridge, Some(master))) if master.kind.as_deref() == Some("bridge") => {
            port(link, bridge, links, node)
        }
        // A VRF only chooses the routing table of the devices in it.
        Some((_, Some(master))) if master.kind.as_deref() == Some("vrf") => {
            routed(link, links, node)
        }
        // Part of a bond, of a team, of a paravirtual device whose fast path it is, of a software
        // switch.
        Some(_) => Err(Reason::SeenAtMaster),
    };
    match (class, Framing::of(link.hardware)) {
        (Ok(class), Some(framing)) => Verdict::Takes(class, framing),
        (Ok(_), None) => Verdict::Skip(Reason::Header),
        (Err(reason), _) => Verdict::Skip(reason),
    }
}

/// Whether packets to this node itself, or on to other machines, pass a device: it, or one that
/// is stacked on it, has an address of the node or a default route.
fn carries_node_traffic(index: u32, links: &Links, node: &BTreeSet<IpAddr>) -> bool {
    links.has_default_route(index)
        || links.addresses(index).any(|addr| node.contains(addr))
        || links
            .stacked_on(index)
            .filter(|upper| {
                upper
                    .kind
                    .as_deref()
                    .is_some_and(|kind| SHARING.contains(&kind))
            })
            .any(|upper| carries_node_traffic(upper.index, links, node))
}

fn routed(link: &Link, links: &Links, node: &BTreeSet<IpAddr>) -> Result<Class, Reason> {
    // In a node that is a container itself the uplink is a veth like those of its pods, so the
    // traffic that a device carries comes before its kind.
    if carries_node_traffic(link.index, links, node) {
        return Ok(Class::Uplink);
    }
    let is_ethernet = Framing::of(link.hardware) == Some(Framing::Ethernet);
    match link.kind.as_deref() {
        Some("veth" | "netkit") if link.is_paired_elsewhere => Ok(Class::Pod),
        Some("veth" | "netkit") => Err(Reason::PairedHere),
        // One whose lower device is elsewhere was given to this node from outside.
        Some("macvlan" | "macvtap" | "ipvlan" | "ipvtap") if link.is_paired_elsewhere => {
            Ok(Class::Uplink)
        }
        Some("macvlan" | "macvtap" | "ipvlan" | "ipvtap" | "openvswitch") => Ok(Class::Pod),
        // A tap leads into a virtual machine.
        Some("tun") if is_ethernet => Ok(Class::Pod),
        Some(kind) if TUNNELS.contains(&kind) && !is_ethernet => Ok(Class::Uplink),
        kind if leads_outside(kind) => Ok(Class::Uplink),
        _ => Err(Reason::Unknown),
    }
}

/// The kind of a port says whether a pod or the network is behind it. That the bridge carries the
/// node's traffic says nothing of a single port: pods may hang on the same bridge. Only where no
/// kind of port leads outside, as in a node that is a container, the way out is by a veth; which
/// of several it is their kind does not tell.
fn port(link: &Link, bridge: u32, links: &Links, node: &BTreeSet<IpAddr>) -> Result<Class, Reason> {
    let kind = link.kind.as_deref();
    if leads_outside(kind) || carries_node_traffic(link.index, links, node) {
        return Ok(Class::UplinkPort);
    }
    match kind {
        Some("veth" | "netkit")
            if carries_node_traffic(bridge, links, node) && !has_outside_port(bridge, links) =>
        {
            Ok(Class::UplinkPort)
        }
        Some("veth" | "netkit" | "tun" | "openvswitch") => Ok(Class::PodPort),
        // Its lower device is the way to other machines.
        Some("macvlan" | "macvtap") => Ok(Class::UplinkPort),
        _ => Err(Reason::Unknown),
    }
}

fn has_outside_port(bridge: u32, links: &Links) -> bool {
    links
        .iter()
        .filter(|port| port.master == Some(bridge))
        .any(|port| leads_outside(port.kind.as_deref()))
}

/// Whether devices of this kind lead to other machines. Hardware has no kind.
fn leads_outside(kind: Option<&str>) -> bool {
    kind.is_none_or(|kind| OUTSIDE.contains(&kind))
}

/// Kinds that carry no IP traffic of others.
const INTERNAL: [&str; 6] = ["dummy", "ifb", "nlmon", "can", "vcan", "vxcan"];

/// Kinds that share the traffic of the device below them.
const SHARING: [&str; 6] = ["vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec"];

/// Kinds that lead to other machines, beside hardware. Those in the second half have an Ethernet
/// header of their own inside of others.
const OUTSIDE: [&str; 14] = [
    "bond",
    "team",
    "vlan",
    "macsec",
    "hsr",
    "batadv",
    "dsa",
    "virt_wifi", //
    "vxlan",
    "geneve",
    "gretap",
    "ip6gretap",
    "erspan",
    "ip6erspan",
];

/// Kinds without an Ethernet header that carry IP between machines.
const TUNNELS: [&str; 15] = [
    "bareudp",
    "gre",
    "gtp",
    "ip6gre",
    "ip6tnl",
    "ipip",
    "ppp",
    "rmnet",
    "sit",
    "tun",
    "vti",
    "vti6",
    "wireguard",
    "wwan",
    "xfrm",
];

#[cfg(test)]
mod tests;
