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
        let verdict = classify(link, &links, &BTreeSet::from([NODE]));
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
