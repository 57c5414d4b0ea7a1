//! Datagrams that do not fit into a packet, there and back.

use std::net::{IpAddr, SocketAddr};
use std::thread;

use etherparse::PacketBuilder;
use proxy_common::abi::Counter;
use proxy_common::datapath::memory::pieces::{cut, numbered};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use xtask::lab::client::{Answer, Datagrams};
use xtask::lab::manifest::Service;
use xtask::lab::network::{Between, Network};
use xtask::lab::{Family, Host};

use super::pinned::Live;
use super::scene::{NODE_PORT, Scene, assert_seen_as, names};
use super::world::{serve, wait_until};

/// 30 draws miss one of two once in 10^9 times.
const DRAWS: u8 = 30;

fn at_node_port(policy: &str) -> impl Fn(Service) -> Service {
    let policy = format!("externalTrafficPolicy: {policy}");
    move |service| service.at_node_port(NODE_PORT).specified(&policy)
}

/// Who answers to datagrams of 8 KiB, of as many flows; each comes back as it was sent.
fn answers(client: &Host, target: SocketAddr) -> Vec<Answer> {
    let ask = |round: u8| {
        let flow = Datagrams::open(client, target).unwrap();
        let content: Vec<_> = (0..8192_u16).map(|n| n as u8 ^ round).collect();
        let answer = flow.ask_with(&content);
        answer.unwrap_or_else(|error| panic!("{}: {error:#}", client.name))
    };
    (0..DRAWS).map(ask).collect()
}

/// Masqueraded where the policy says so, and conntrack puts together what it gets either way.
fn pass(network: Network, policy: &str) {
    let Some(scene) = Scene::on(network, "", at_node_port(policy)) else {
        return;
    };
    let outside = scene.outside();
    for family in Family::ALL {
        let all = scene.all();
        let inside = answers(&scene.client, scene.service.target(family));
        assert_eq!(all, names(&inside), "{network:?}, {family}");
        assert_seen_as(&scene.client, &inside);
        // Its packets do not fit into a tunnel, and IPv6 routers do not cut.
        if family == Family::V6 && network.between != Between::Routes {
            continue;
        }
        for (node, own) in [1, 2].into_iter().zip(&all) {
            let answers = answers(&outside, scene.door(node, family));
            if policy == "Cluster" {
                assert_eq!(all, names(&answers), "{network:?}, {family}, node {node}");
                // As whoever the way leads by: a bridge has an address of its own.
                let own = outside.addresses.of(family);
                assert!(answers.iter().all(|answer| answer.peer.ip() != own));
            } else {
                assert_eq!([*own], *names(&answers), "{network:?}, {family}");
                assert_seen_as(&outside, &answers);
            }
        }
    }
    scene.assert_unnoticed(&[]);
}

// B122, B123, B124
#[test]
fn datagrams_in_fragments_pass_routed_devices() {
    for policy in ["Cluster", "Local"] {
        pass(Network::default(), policy);
    }
}

#[test]
fn datagrams_in_fragments_pass_bridges() {
    for netfilter in [false, true] {
        pass(Network::bridged(netfilter), "Cluster");
    }
}

#[test]
fn datagrams_in_fragments_pass_bridges_and_a_tunnel() {
    pass(Network::vxlan(true), "Cluster");
}

/// Those of several flows at the same time, to a Service and to a server outside, which answers
/// to the node. B122, B123
#[test]
fn fragments_of_several_datagrams_are_told_apart() {
    let Some(scene) = Scene::new("", at_node_port("Cluster")) else {
        return;
    };
    let outside = scene.outside();
    let _server = serve(&outside);
    thread::scope(|scope| {
        for family in Family::ALL {
            let service = scene.service.target(family);
            let alone = (outside.addresses.of(family), 8080).into();
            let door = scene.door(1, family);
            let asks = [
                (&scene.client, service),
                (&scene.client, alone),
                (&scene.pods[0], service),
                (&outside, door),
            ];
            for (client, target) in asks {
                scope.spawn(move || answers(client, target));
            }
        }
    });
    scene.assert_unnoticed(&[]);
}

/// A datagram in packets of a raw socket, in this order.
fn send_raw(from: &Host, to: SocketAddr, order: &[usize]) {
    let own = from.addresses.of(match to {
        SocketAddr::V4(_) => Family::V4,
        SocketAddr::V6(_) => Family::V6,
    });
    let builder = PacketBuilder::ethernet2([0; 6], [0; 6]);
    let (kind, builder) = match (own, to.ip()) {
        (IpAddr::V4(own), IpAddr::V4(to)) => (
            AddressFamily::INET,
            builder.ipv4(own.octets(), to.octets(), 64),
        ),
        (IpAddr::V6(own), IpAddr::V6(to)) => (
            AddressFamily::INET6,
            builder.ipv6(own.octets(), to.octets(), 64),
        ),
        _ => unreachable!("a host has addresses of both families"),
    };
    let mut whole = Vec::new();
    let udp = builder.udp(40_000, to.port());
    udp.write(&mut whole, &[0x5a; 100]).unwrap();
    let id = 0x1d00 + order[0] as u16;
    let pieces = cut(&numbered(&whole, id).unwrap(), id.into(), 64).unwrap();
    let raw = || Ok(socket(kind, SocketType::RAW, Some(ipproto::RAW))?);
    let socket = from.namespace.enter(raw).unwrap();
    for n in order {
        let target = SocketAddr::new(to.ip(), 0);
        sendto(&socket, &pieces[*n][14..], SendFlags::empty(), &target).unwrap();
    }
}

/// Out of order, the datagram is lost as a whole, and that is counted.
#[test]
fn a_tail_that_comes_first_is_counted() {
    let Some(scene) = Scene::with_endpoint_on(1, "", at_node_port("Cluster")) else {
        return;
    };
    let node = scene.world.lab.node(1);
    let live = Live::open(&node);
    for (family, round) in Family::ALL.into_iter().zip(1..) {
        let service = scene.service.target(family);
        let door = scene.door(1, family);
        let before = scene.datagrams();
        send_raw(&scene.client, service, &[1, 0]);
        wait_until("it is dropped", || {
            live.count(Counter::DropFragment) == round
        });
        send_raw(&scene.client, service, &[0, 1]);
        wait_until("it is served", || scene.datagrams() == before + 1);
        // It may be for the node itself.
        send_raw(&scene.outside(), door, &[1, 0]);
        wait_until("it is passed", || {
            live.count(Counter::PassFragment) == round
        });
        send_raw(&scene.outside(), door, &[0, 1]);
        wait_until("it is served", || scene.datagrams() == before + 2);
        assert_eq!(round, live.count(Counter::DropFragment));
    }
}
