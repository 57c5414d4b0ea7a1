//! Path MTU discovery through Services: a link of 1,280 bytes in the middle of the way, of which
//! neither end knows, and all packets with DF set.
//!
//! Who sends too large a packet is told by a router, in words that only the node can put right:
//! client and endpoint do not know each other. Where that fails, a connection opens, and then hangs
//! with its first full segment.

use std::net::{IpAddr, SocketAddr};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use xtask::lab::address::{SERVICE_RANGE_V4, SERVICE_RANGE_V6, pod_ranges};
use xtask::lab::capture::Capture;
use xtask::lab::client::Connection;
use xtask::lab::manifest::{Endpoint, Service};
use xtask::lab::network::Network;
use xtask::lab::{Family, Host, Side, observe};

use super::door::{Door, service};
use super::world::{World, serve};

/// MTU of the link.
const NARROW: u16 = 1280;
/// Bytes; enough for windows to open and for segments of the largest size.
const TRANSFER: usize = 20_000_000;

/// Between the client outside and the first node, which it reaches Services by.
fn before_the_node(world: &World) -> [Host; 2] {
    let (outside, node) = (world.lab.outside().clone(), world.lab.node(1));
    let services = [SERVICE_RANGE_V4, SERVICE_RANGE_V6].map(str::to_owned);
    let near = [node.addresses.prefixes(), services].concat();
    let far = outside.addresses.prefixes();
    let side = |host, prefixes| Side { host, prefixes };
    let sides = [side(&node, &near[..]), side(&outside, &far[..])];
    world.lab.detour(sides, NARROW).unwrap()
}

/// Between the first node and the second, for what pods of both send each other.
pub(super) fn between_the_nodes(world: &World) -> [Host; 2] {
    let [one, two] = [1, 2].map(|node| world.lab.node(node));
    let near = [one.addresses.prefixes(), pod_ranges(1)].concat();
    let far = pod_ranges(2);
    let side = |host, prefixes| Side { host, prefixes };
    let sides = [side(&one, &near[..]), side(&two, &far[..])];
    world.lab.detour(sides, NARROW).unwrap()
}

fn path_mtu(from: &Host, to: &Host, family: Family) -> Option<u16> {
    observe::path_mtu(&from.namespace, to.addresses.of(family)).unwrap()
}

/// Large transfers both ways; the client learns what fits on its way, or the endpoint on that to
/// whom it takes for its client.
fn transfer(client: &Host, target: SocketAddr, endpoint: &Host, learns: Learns<'_>) {
    let family = if target.is_ipv4() {
        Family::V4
    } else {
        Family::V6
    };
    let learned = || match learns {
        Learns::Client => observe::path_mtu(&client.namespace, target.ip()).unwrap(),
        Learns::Endpoint(peer) => path_mtu(endpoint, peer, family),
    };
    let what = format!("{} to {target}", client.name);
    assert_eq!(None, learned(), "{what}");
    let mut open = Connection::open(client, target).expect(&what);
    open.upload(TRANSFER, 1).expect(&what);
    open.download(TRANSFER, 2).expect(&what);
    assert_eq!(endpoint.name, open.answer().name);
    open.close().expect(&what);
    assert_eq!(Some(NARROW), learned(), "{what}");
}

/// Who is told of a packet by an error that the node has to translate.
#[derive(Clone, Copy)]
enum Learns<'p> {
    Client,
    /// The endpoint, of the way to this peer.
    Endpoint(&'p Host),
}

/// The narrow link is where requests go: routers tell the client of the endpoint.
#[test]
fn a_pod_learns_how_large_packets_to_a_service_may_be() {
    for network in [
        Network::default(),
        Network::bridged(false),
        Network::bridged(true),
    ] {
        let Some(mut world) = World::on(2, network) else {
            return;
        };
        let [client, endpoint] = [1, 2].map(|node| world.lab.pod(node).unwrap());
        let _server = serve(&endpoint);
        let service = Service::new("web", 10).with([Endpoint::new(&endpoint, &world.lab.node(2))]);
        between_the_nodes(&world);
        world.start_with(&service);
        for family in Family::ALL {
            transfer(&client, service.target(family), &endpoint, Learns::Client);
        }
        world.assert_unnoticed(&[&service]);
    }
}

/// What a router tells the node, netfilter makes out for the client, and the node then for whom the
/// client takes it.
#[test]
fn a_client_outside_learns_how_large_masqueraded_packets_may_be() {
    for door in [Door::NodePort, Door::Balancer] {
        let Some(mut world) = World::new(2) else {
            return;
        };
        let endpoint = world.lab.pod(2).unwrap();
        let _server = serve(&endpoint);
        let at = Endpoint::new(&endpoint, &world.lab.node(2));
        let service = service(at, "Cluster");
        between_the_nodes(&world);
        world.start_with(&service);
        let outside = world.lab.outside().clone();
        for family in Family::ALL {
            let target = door.target(&world, &service, family);
            transfer(&outside, target, &endpoint, Learns::Client);
        }
        world.assert_unnoticed(&[&service]);
    }
}

/// The narrow link is where answers go: routers tell the Service of its client.
// B118: the address of the node that the error is for is that of a node port as well.
#[test]
fn an_endpoint_learns_how_large_packets_to_a_client_outside_may_be() {
    for door in [Door::NodePort, Door::Balancer, Door::Cluster] {
        let Some(mut world) = World::new(1) else {
            return;
        };
        let endpoint = world.lab.pod(1).unwrap();
        let _server = serve(&endpoint);
        let at = Endpoint::new(&endpoint, &world.lab.node(1));
        let service = service(at, "Local");
        before_the_node(&world);
        world.start_with(&service);
        let outside = world.lab.outside().clone();
        for family in Family::ALL {
            let target = door.target(&world, &service, family);
            transfer(&outside, target, &endpoint, Learns::Endpoint(&outside));
        }
        world.assert_unnoticed(&[&service]);
    }
}

/// The endpoint takes the node for its client.
// B116
#[test]
fn an_endpoint_learns_how_large_packets_to_a_masqueraded_client_may_be() {
    for (door, near) in [
        (Door::NodePort, 1),
        (Door::NodePort, 2),
        (Door::Balancer, 2),
    ] {
        let Some(mut world) = World::new(2) else {
            return;
        };
        let endpoint = world.lab.pod(near).unwrap();
        let _server = serve(&endpoint);
        let at = Endpoint::new(&endpoint, &world.lab.node(near));
        let service = service(at, "Cluster");
        before_the_node(&world);
        world.start_with(&service);
        let (outside, node) = (world.lab.outside().clone(), world.lab.node(1));
        for family in Family::ALL {
            let target = door.target(&world, &service, family);
            transfer(&outside, target, &endpoint, Learns::Endpoint(&node));
        }
        world.assert_unnoticed(&[&service]);
    }
}

/// What the router says is about the Service, and what the endpoint hears about itself.
#[test]
fn on_both_sides_of_the_node_an_error_is_about_what_that_side_knows() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let endpoint = world.lab.pod(1).unwrap();
    let _server = serve(&endpoint);
    let service = service(Endpoint::new(&endpoint, &world.lab.node(1)), "Local");
    let [router, _] = before_the_node(&world);
    world.start_with(&service);
    let outside = world.lab.outside().clone();
    for family in Family::ALL {
        let target = Door::NodePort.target(&world, &service, family);
        let captures = [&router, &endpoint].map(|host| Capture::start(&host.namespace).unwrap());
        let mut open = Connection::open(&outside, target).unwrap();
        let client = open.answer().peer;
        open.download(100_000, 1).unwrap();
        open.close().unwrap();
        let said = captures.map(|capture| {
            let frames = std::iter::from_fn(|| capture.next().unwrap());
            let mut errors: Vec<_> = frames.filter_map(|frame| Said::read(&frame)).collect();
            errors.dedup();
            errors
        });
        let by = router.addresses.of(family);
        let served = SocketAddr::new(endpoint.addresses.of(family), 8080);
        let expected = [target, served].map(|own| {
            vec![Said {
                from: by,
                to: own.ip(),
                about: (own, client),
            }]
        });
        assert_eq!(expected, said, "{family}");
    }
}

/// An ICMP error about a TCP segment.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    from: IpAddr,
    to: IpAddr,
    /// Source and destination of the segment.
    about: (SocketAddr, SocketAddr),
}

impl Said {
    /// What a frame says, if it is an error.
    fn read(frame: &[u8]) -> Option<Self> {
        let packet = SlicedPacket::from_ethernet(frame).ok()?;
        let (from, to, quote): (IpAddr, IpAddr, _) = match (packet.net?, packet.transport?) {
            (NetSlice::Ipv4(net), TransportSlice::Icmpv4(message)) if message.type_u8() == 3 => {
                let header = net.header();
                let (from, to) = (header.source_addr(), header.destination_addr());
                (from.into(), to.into(), message.payload())
            }
            (NetSlice::Ipv6(net), TransportSlice::Icmpv6(message)) if message.type_u8() == 2 => {
                let header = net.header();
                let (from, to) = (header.source_addr(), header.destination_addr());
                (from.into(), to.into(), message.payload())
            }
            _ => return None,
        };
        // It is cut short, which parsers of whole packets do not accept.
        let is_v6 = from.is_ipv6();
        let addr = |index: usize| -> IpAddr {
            if is_v6 {
                let at = 8 + 16 * index;
                <[u8; 16]>::try_from(&quote[at..at + 16]).unwrap().into()
            } else {
                let at = 12 + 4 * index;
                <[u8; 4]>::try_from(&quote[at..at + 4]).unwrap().into()
            }
        };
        let port = |index: usize| {
            let at = if is_v6 { 40 } else { 20 } + 2 * index;
            u16::from_be_bytes([quote[at], quote[at + 1]])
        };
        let ends = [0, 1].map(|index| SocketAddr::new(addr(index), port(index)));
        Some(Self {
            from,
            to,
            about: (ends[0], ends[1]),
        })
    }
}
