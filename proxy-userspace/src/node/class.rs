//! What a device is to a service proxy, told by its attributes and never by its name.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;

use super::links::{Link, Links};

/// `ARPHRD_ETHER`.
const ETHERNET: u16 = 1;

/// Kinds without an Ethernet header that carry IP between machines.
const TUNNELS: [&str; 12] = [
    "gre",
    "ip6gre",
    "ip6tnl",
    "ipip",
    "sit",
    "tun",
    "vti",
    "vti6",
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

impl Class {
    /// Whether such devices are attached to. Bridge ports are not: on a bridge a reply may pass
    /// the client's port without passing the stack.
    pub const fn is_served(self) -> bool {
        matches!(self, Self::Pod | Self::Uplink)
    }
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
}

/// What `link` is, on a node with these addresses.
pub fn classify(link: &Link, links: &Links, node: &HashSet<IpAddr>) -> Verdict {
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

fn carries_node_traffic(index: u32, links: &Links, node: &HashSet<IpAddr>) -> bool {
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
mod tests {
    use netlink_packet_route::AddressFamily;
    use netlink_packet_route::address::{AddressAttribute, AddressMessage};
    use netlink_packet_route::link::{
        InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
    };
    use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteType};

    use super::*;

    const NODE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 1, 1));

    const POD: Verdict = Verdict::Takes(Class::Pod, Framing::Ethernet);
    const POD_PORT: Verdict = Verdict::Takes(Class::PodPort, Framing::Ethernet);
    const UPLINK: Verdict = Verdict::Takes(Class::Uplink, Framing::Ethernet);
    const UPLINK_PORT: Verdict = Verdict::Takes(Class::UplinkPort, Framing::Ethernet);
    const TUNNEL: Verdict = Verdict::Takes(Class::Uplink, Framing::None);
    const INTERNAL: Verdict = Verdict::Skip(Reason::Internal);
    const HERE: Verdict = Verdict::Skip(Reason::PairedHere);
    const MASTER: Verdict = Verdict::Skip(Reason::SeenAtMaster);
    const PORTS: Verdict = Verdict::Skip(Reason::SeenAtPorts);
    const UNKNOWN: Verdict = Verdict::Skip(Reason::Unknown);

    /// A device as the kernel reports it; the index is its place in the table.
    #[derive(Clone, Default)]
    struct Reported {
        kind: &'static str,
        /// Not Ethernet.
        layer: Option<LinkLayerType>,
        master: u32,
        peer_elsewhere: bool,
        address: Option<IpAddr>,
        default_route: bool,
        loopback: bool,
    }

    fn of(kind: &'static str) -> Reported {
        Reported {
            kind,
            ..Reported::default()
        }
    }

    fn links(all: &[Reported]) -> Links {
        let mut links = Links::default();
        for (index, reported) in (1..).zip(all) {
            let mut message = LinkMessage::default();
            message.header.index = index;
            message.header.link_layer_type = reported.layer.unwrap_or(LinkLayerType::Ether);
            if reported.loopback {
                message.header.flags = LinkFlags::Loopback;
            }
            message
                .attributes
                .push(LinkAttribute::Controller(reported.master));
            if !reported.kind.is_empty() {
                let kind = InfoKind::Other(reported.kind.into());
                message
                    .attributes
                    .push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]));
            }
            if reported.peer_elsewhere {
                message.attributes.push(LinkAttribute::LinkNetNsId(0));
            }
            links.link_set(&message);
            if let Some(addr) = reported.address {
                let mut message = AddressMessage::default();
                message.header.index = index;
                message.attributes.push(AddressAttribute::Local(addr));
                links.address_set(&message);
            }
            if reported.default_route {
                let mut message = RouteMessage::default();
                message.header.address_family = AddressFamily::Inet;
                message.header.kind = RouteType::Unicast;
                message.header.table = RouteHeader::RT_TABLE_MAIN;
                message.attributes.push(RouteAttribute::Oif(index));
                links.route_set(&message, false);
            }
        }
        links
    }

    /// Classifies each device of a table.
    fn check(table: &[(Verdict, Reported)]) {
        let reported: Vec<_> = table.iter().map(|(_, reported)| reported.clone()).collect();
        let links = links(&reported);
        for ((expected, reported), link) in table.iter().zip(links.iter()) {
            let verdict = classify(link, &links, &HashSet::from([NODE]));
            assert_eq!(*expected, verdict, "{} at {}", reported.kind, link.index);
        }
    }

    #[test]
    fn devices_are_told_by_their_attributes() {
        let elsewhere = |kind| Reported {
            peer_elsewhere: true,
            ..of(kind)
        };
        let l3 = |kind, layer| Reported {
            layer: Some(layer),
            ..of(kind)
        };
        check(&[
            (
                INTERNAL,
                Reported {
                    loopback: true,
                    layer: Some(LinkLayerType::Loopback),
                    ..of("")
                },
            ),
            (INTERNAL, of("dummy")),
            (INTERNAL, of("ifb")),
            (POD, elsewhere("veth")),
            (HERE, of("veth")),
            (POD, elsewhere("netkit")),
            (POD, of("tun")),
            (TUNNEL, l3("tun", LinkLayerType::None)),
            (UPLINK, of("")),
            (UPLINK, of("bond")),
            (UPLINK, of("vlan")),
            (UPLINK, of("vxlan")),
            (UPLINK, of("geneve")),
            (UPLINK, of("gretap")),
            (TUNNEL, l3("ipip", LinkLayerType::Tunnel)),
            (TUNNEL, l3("sit", LinkLayerType::Sit)),
            (TUNNEL, l3("gre", LinkLayerType::Ipgre)),
            (TUNNEL, l3("wireguard", LinkLayerType::None)),
            (TUNNEL, l3("ip6tnl", LinkLayerType::Tunnel6)),
            (POD, of("macvlan")),
            (UPLINK, elsewhere("macvlan")),
            (POD, of("openvswitch")),
            (UNKNOWN, of("someday")),
            (UNKNOWN, l3("", LinkLayerType::Infiniband)),
        ]);
    }

    #[test]
    fn what_carries_the_nodes_traffic_is_an_uplink_whatever_its_kind() {
        let veth = Reported {
            peer_elsewhere: true,
            ..of("veth")
        };
        let with_address = |addr, reported: &Reported| Reported {
            address: Some(addr),
            ..reported.clone()
        };
        let with_default = |reported: &Reported| Reported {
            default_route: true,
            ..reported.clone()
        };
        check(&[
            (UPLINK, with_address(NODE, &veth)),
            (UPLINK, with_default(&veth)),
            (POD, with_address(OTHER, &veth)),
            (UPLINK, with_default(&of("veth"))),
            // Not even then.
            (
                INTERNAL,
                Reported {
                    loopback: true,
                    address: Some(NODE),
                    ..of("")
                },
            ),
            (INTERNAL, with_address(NODE, &of("dummy"))),
        ]);
    }

    #[test]
    fn devices_with_a_master_are_seen_where_it_makes_sense() {
        let under = |master, kind| Reported { master, ..of(kind) };
        let elsewhere = |master| Reported {
            peer_elsewhere: true,
            ..under(master, "veth")
        };
        check(&[
            (PORTS, of("bridge")), // 1: pods
            (
                PORTS, // 2: the node's own
                Reported {
                    default_route: true,
                    ..of("bridge")
                },
            ),
            (PORTS, of("vrf")),   // 3
            (UPLINK, of("bond")), // 4
            (POD_PORT, elsewhere(1)),
            (POD_PORT, under(1, "veth")),
            (POD_PORT, under(1, "tun")),
            (UPLINK_PORT, under(1, "")),
            (UPLINK_PORT, under(1, "vxlan")),
            (UPLINK_PORT, elsewhere(2)),
            (POD, elsewhere(3)),
            (UPLINK, under(3, "")),
            (MASTER, under(4, "")),
            (MASTER, under(99, "veth")),
        ]);
    }
}
