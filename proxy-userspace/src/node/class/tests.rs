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
const HEADER: Verdict = Verdict::Skip(Reason::Header);

/// A device as the kernel reports it; the index is its place in the table.
#[derive(Clone, Copy, Default)]
struct Reported {
    kind: &'static str,
    /// Not Ethernet.
    layer: Option<LinkLayerType>,
    master: u32,
    lower: u32,
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
        message.attributes.push(LinkAttribute::Link(reported.lower));
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
    let reported: Vec<_> = table.iter().map(|(_, reported)| *reported).collect();
    let links = links(&reported);
    for ((expected, reported), link) in table.iter().zip(links.iter()) {
        let verdict = classify(link, &links, &BTreeSet::from([NODE]));
        assert_eq!(*expected, verdict, "{} at {}", reported.kind, link.index);
    }
}

fn elsewhere(kind: &'static str) -> Reported {
    Reported {
        peer_elsewhere: true,
        ..of(kind)
    }
}

fn with_address(addr: IpAddr, reported: Reported) -> Reported {
    Reported {
        address: Some(addr),
        ..reported
    }
}

fn with_default(reported: Reported) -> Reported {
    Reported {
        default_route: true,
        ..reported
    }
}

fn under(master: u32, reported: Reported) -> Reported {
    Reported { master, ..reported }
}

fn on(lower: u32, reported: Reported) -> Reported {
    Reported { lower, ..reported }
}

fn l3(kind: &'static str, layer: LinkLayerType) -> Reported {
    Reported {
        layer: Some(layer),
        ..of(kind)
    }
}

fn loopback() -> Reported {
    Reported {
        loopback: true,
        ..l3("", LinkLayerType::Loopback)
    }
}

#[test]
fn devices_are_told_by_their_attributes() {
    check(&[
        (INTERNAL, loopback()),
        (INTERNAL, of("dummy")),
        (INTERNAL, of("ifb")),
        (INTERNAL, l3("nlmon", LinkLayerType::Netlink)),
        (INTERNAL, l3("vcan", LinkLayerType::Can)),
        (POD, elsewhere("veth")),
        (HERE, of("veth")),
        (POD, elsewhere("netkit")),
        (HERE, of("netkit")),
        (POD, of("tun")),
        (UPLINK, of("")),
        (UPLINK, of("bond")),
        (UPLINK, of("team")),
        (UPLINK, of("vlan")),
        (UPLINK, of("macsec")),
        (UPLINK, of("vxlan")),
        (UPLINK, of("geneve")),
        (UPLINK, of("gretap")),
        (UPLINK, of("ip6gretap")),
        (UPLINK, of("erspan")),
        (POD, of("macvlan")),
        (POD, of("ipvlan")),
        (UPLINK, elsewhere("macvlan")),
        (UPLINK, elsewhere("ipvlan")),
        (POD, of("openvswitch")),
        (PORTS, of("bridge")),
        (PORTS, of("vrf")),
        (UNKNOWN, of("someday")),
    ]);
}

#[test]
fn devices_without_an_ethernet_header_are_uplinks_of_another_framing() {
    check(&[
        (TUNNEL, l3("tun", LinkLayerType::None)),
        (TUNNEL, l3("ipip", LinkLayerType::Tunnel)),
        (TUNNEL, l3("ip6tnl", LinkLayerType::Tunnel6)),
        (TUNNEL, l3("sit", LinkLayerType::Sit)),
        (TUNNEL, l3("gre", LinkLayerType::Ipgre)),
        (TUNNEL, l3("ip6gre", LinkLayerType::Ip6gre)),
        (TUNNEL, l3("wireguard", LinkLayerType::None)),
        (TUNNEL, l3("vti", LinkLayerType::Tunnel)),
        (TUNNEL, l3("xfrm", LinkLayerType::None)),
        (TUNNEL, l3("ppp", LinkLayerType::Ppp)),
        (UNKNOWN, l3("someday", LinkLayerType::None)),
        // Neither of the headers that the programs read.
        (HEADER, l3("", LinkLayerType::Infiniband)),
        (HEADER, with_default(l3("ipoib", LinkLayerType::Infiniband))),
    ]);
}

#[test]
fn what_carries_the_nodes_traffic_is_an_uplink_whatever_its_kind() {
    let veth = || elsewhere("veth");
    check(&[
        (UPLINK, with_address(NODE, veth())),
        (UPLINK, with_default(veth())),
        (POD, with_address(OTHER, veth())),
        (UPLINK, with_default(of("veth"))),
        (UPLINK, with_address(NODE, of("macvlan"))),
        (UPLINK, with_address(NODE, of("openvswitch"))),
        (UPLINK, with_address(NODE, of("someday"))),
        (UPLINK, with_address(NODE, of("tun"))),
        // Not even then.
        (INTERNAL, with_address(NODE, loopback())),
        (INTERNAL, with_address(NODE, of("dummy"))),
        (PORTS, with_default(of("bridge"))),
    ]);
}

#[test]
fn what_carries_it_under_a_tag_does_so_too() {
    check(&[
        (UPLINK, elsewhere("veth")), // 1
        (UPLINK, with_address(NODE, on(1, of("vlan")))),
        (POD, elsewhere("veth")), // 3
        (UPLINK, on(3, of("vlan"))),
        // Built on the device of this index in another namespace.
        (UPLINK, with_address(NODE, on(3, elsewhere("macvlan")))),
        // Its peer, not something below it.
        (UPLINK, with_address(NODE, on(3, of("veth")))),
        // What a tunnel carries is not what the device below it carries.
        (POD, elsewhere("veth")), // 7
        (UPLINK, with_default(on(7, of("vxlan")))),
    ]);
}

#[test]
fn parts_of_a_device_are_seen_at_the_whole() {
    check(&[
        (UPLINK, of("bond")),     // 1
        (UPLINK, of("team")),     // 2
        (UPLINK, of("")),         // 3: paravirtual, with a fast path
        (POD, of("openvswitch")), // 4
        (PORTS, of("vrf")),       // 5
        (MASTER, under(1, of(""))),
        (MASTER, under(2, of(""))),
        (MASTER, under(3, of(""))),
        (MASTER, under(4, elsewhere("veth"))),
        (MASTER, under(4, with_default(of("")))),
        (MASTER, under(99, elsewhere("veth"))),
        // These are not.
        (POD, under(5, elsewhere("veth"))),
        (UPLINK, under(5, of(""))),
        (UPLINK, under(5, with_default(elsewhere("veth")))),
    ]);
}

#[test]
fn bridge_ports_are_told_by_their_kind() {
    check(&[
        (PORTS, with_address(OTHER, of("bridge"))), // 1: pods
        (POD_PORT, under(1, elsewhere("veth"))),
        (POD_PORT, under(1, of("veth"))),
        (POD_PORT, under(1, elsewhere("netkit"))),
        (POD_PORT, under(1, of("tun"))),
        (UPLINK_PORT, under(1, of(""))),
        (UPLINK_PORT, under(1, of("bond"))),
        (UPLINK_PORT, under(1, of("vlan"))),
        (UPLINK_PORT, under(1, of("vxlan"))),
        (UPLINK_PORT, under(1, of("macvlan"))),
        (INTERNAL, under(1, of("dummy"))),
        (UNKNOWN, under(1, of("someday"))),
        (UPLINK_PORT, under(1, with_address(NODE, elsewhere("veth")))),
    ]);
}

#[test]
fn pods_on_the_bridge_of_the_nodes_own_network_are_pods() {
    for bridge in [with_address(NODE, of("bridge")), with_default(of("bridge"))] {
        check(&[
            (PORTS, bridge), // 1
            (UPLINK_PORT, under(1, of(""))),
            (POD_PORT, under(1, elsewhere("veth"))),
            (POD_PORT, under(1, of("tun"))),
        ]);
        check(&[
            (PORTS, bridge),
            (UPLINK_PORT, under(1, of("vxlan"))),
            (POD_PORT, under(1, elsewhere("veth"))),
        ]);
        // A node that is a container: the way out is one of its veths.
        check(&[
            (PORTS, bridge),
            (UPLINK_PORT, under(1, elsewhere("veth"))),
            (POD_PORT, under(1, of("tun"))),
        ]);
    }
    // By a VLAN on the bridge.
    check(&[
        (PORTS, of("bridge")), // 1
        (UPLINK, with_address(NODE, on(1, of("vlan")))),
        (UPLINK_PORT, under(1, elsewhere("veth"))),
    ]);
}
