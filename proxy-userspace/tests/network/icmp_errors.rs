//! ICMP errors about packets of a Service, and who hears of them.

use std::net::SocketAddr;

use proxy_common::datapath::memory::message::{Message, Quote};
use proxy_common::net::Proto;
use rustix::net::ipproto;
use xtask::lab::client::Datagrams;
use xtask::lab::manifest::{Endpoint, Service};
use xtask::lab::network::Network;
use xtask::lab::{Family, Host};

use super::door::{Door, service};
use super::pmtu::between_the_nodes;
use super::raw::Raw;
use super::world::{World, serve};

/// The kernel of an endpoint says so of a port that nobody listens at, as often as it is asked.
fn tell_always(host: &Host) {
    let limits = ["ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit"];
    let limits = limits.map(|name| (name.to_owned(), "0"));
    host.namespace.set(&limits).unwrap();
}

/// A datagram is refused, and its sender told at once.
fn is_refused(client: &Host, target: SocketAddr) {
    for _ in 0..3 {
        let flow = Datagrams::open(client, target).unwrap();
        let error = format!("{:#}", flow.ask().unwrap_err());
        let what = format!("{} to {target}: {error}", client.name);
        assert!(error.contains("Connection refused"), "{what}");
        // The socket is told of every datagram.
        let error = format!("{:#}", flow.ask().unwrap_err());
        assert!(error.contains("Connection refused"), "{what}, then {error}");
    }
}

#[test]
fn a_pod_is_told_that_nobody_listens_at_an_endpoint() {
    for network in [
        Network::default(),
        Network::bridged(false),
        Network::bridged(true),
        Network::vxlan(false),
    ] {
        let Some(mut world) = World::on(2, network) else {
            return;
        };
        let [client, far] = [1, 2].map(|node| world.lab.pod(node).unwrap());
        let near = world.lab.pod(1).unwrap();
        let [node, other] = [1, 2].map(|number| world.lab.node(number));
        let rows = [
            (&near, &node),
            (&far, &other),
            (&node, &node),
            (&other, &other),
            (&client, &node),
        ];
        let mut services = Vec::new();
        for ((endpoint, node), number) in rows.into_iter().zip(10..) {
            tell_always(endpoint);
            let name = format!("web-{number}");
            let service = Service::new(&name, number).with([Endpoint::new(endpoint, node)]);
            world.manifests.write_service(&service).unwrap();
            services.push(service);
        }
        world.start();
        for service in &services {
            for family in Family::ALL {
                is_refused(&client, service.target(family));
            }
        }
        world.assert_unnoticed(&services.iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_client_outside_is_told_that_nobody_listens_at_an_endpoint() {
    for (policy, node) in [("Local", 1), ("Cluster", 1), ("Cluster", 2)] {
        let Some(mut world) = World::new(2) else {
            return;
        };
        let endpoint = world.lab.pod(node).unwrap();
        tell_always(&endpoint);
        let at = Endpoint::new(&endpoint, &world.lab.node(node));
        let service = service(at, policy);
        world.start_with(&service);
        let outside = world.lab.outside().clone();
        for family in Family::ALL {
            for door in [Door::NodePort, Door::Balancer] {
                is_refused(&outside, door.target(&world, &service, family));
            }
        }
        world.assert_unnoticed(&[&service]);
    }
}

/// A socket for the ICMP messages of a family.
fn icmp(host: &Host, family: Family) -> Raw {
    let protocol = match family {
        Family::V4 => ipproto::ICMP,
        Family::V6 => ipproto::ICMPV6,
    };
    Raw::new(host, host.addresses.of(family), protocol)
}

/// An error as `frame` has it, from its ICMP header on.
fn without_headers(mut frame: Vec<u8>) -> Vec<u8> {
    let headers = if frame[12] == 8 { 34 } else { 54 };
    frame.split_off(headers)
}

/// All errors but redirects.
const fn kinds(family: Family) -> &'static [[u8; 2]] {
    match family {
        Family::V4 => &[[3, 1], [3, 3], [3, 4], [4, 0], [11, 0], [12, 0]],
        Family::V6 => &[[1, 0], [1, 4], [2, 0], [3, 0], [4, 0]],
    }
}

/// Says each error about `quote` from one host, and expects it about `after` at the other.
fn tell(teller: &Host, hearer: &Host, quote: &Quote, after: &Quote) {
    let family = if quote.from.is_ipv4() {
        Family::V4
    } else {
        Family::V6
    };
    let (sender, receiver) = (icmp(teller, family), icmp(hearer, family));
    for kind in kinds(family) {
        let message = Message {
            from: teller.addresses.of(family),
            to: quote.from.ip(),
            kind: *kind,
            rest: [0, 0, 5, 0],
            limit: 500,
        };
        sender.send(message.to, &without_headers(message.frame(&quote.bytes())));
        let mut all = std::iter::repeat_with(|| receiver.receive().1);
        let heard = all.find(|heard| heard[..2] == *kind).unwrap();
        // But for the checksum, which the kernel has verified.
        let expected = without_headers(message.frame(&after.bytes()));
        assert_eq!(expected[4..], heard[4..], "{kind:?} over {family}");
    }
}

/// What anybody on the way says of an answer reaches the endpoint, whatever it is.
// B117
#[test]
fn every_error_about_an_answer_reaches_the_endpoint() {
    for policy in ["Local", "Cluster"] {
        let Some(mut world) = World::new(1) else {
            return;
        };
        let endpoint = world.lab.pod(1).unwrap();
        let _server = serve(&endpoint);
        let at = Endpoint::new(&endpoint, &world.lab.node(1));
        let service = service(at, policy);
        world.start_with(&service);
        let outside = world.lab.outside().clone();
        for family in Family::ALL {
            for door in [Door::NodePort, Door::Balancer] {
                let target = door.target(&world, &service, family);
                let flow = Datagrams::open(&outside, target).unwrap();
                let answer = flow.ask().unwrap();
                let client = SocketAddr::new(outside.addresses.of(family), port(&flow));
                let quote = Quote::new(Proto::UDP, target, client);
                let after = quote.between(answer.local, answer.peer);
                tell(&outside, &endpoint, &quote, &after);
            }
        }
        world.assert_unnoticed(&[&service]);
    }
}

/// What anybody on the way says of a request reaches the client, whatever it is.
#[test]
fn every_error_about_a_request_reaches_the_client() {
    let Some(mut world) = World::new(2) else {
        return;
    };
    let [client, endpoint] = [1, 2].map(|node| world.lab.pod(node).unwrap());
    let _server = serve(&endpoint);
    let service = service(Endpoint::new(&endpoint, &world.lab.node(2)), "Cluster");
    let outside = world.lab.outside().clone();
    let [router, _] = between_the_nodes(&world);
    world.start_with(&service);
    for family in Family::ALL {
        for (client, door) in [(&client, Door::Cluster), (&outside, Door::NodePort)] {
            let target = door.target(&world, &service, family);
            let flow = Datagrams::open(client, target).unwrap();
            let answer = flow.ask().unwrap();
            let own = SocketAddr::new(client.addresses.of(family), port(&flow));
            let quote = Quote::new(Proto::UDP, answer.peer, answer.local);
            tell(&router, client, &quote, &quote.between(own, target));
        }
    }
    world.assert_unnoticed(&[&service]);
}

fn port(flow: &Datagrams) -> u16 {
    flow.local().unwrap().port()
}

/// A redirect tells a host of its own link: who hears of it by way of a Service is not on that.
#[test]
fn a_redirect_reaches_nobody_by_way_of_a_service() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let endpoint = world.lab.pod(1).unwrap();
    let _server = serve(&endpoint);
    let service = service(Endpoint::new(&endpoint, &world.lab.node(1)), "Local");
    world.start_with(&service);
    let outside = world.lab.outside().clone();
    for (family, kind) in Family::ALL.into_iter().zip([[5, 1], [137, 0]]) {
        let target = Door::NodePort.target(&world, &service, family);
        let flow = Datagrams::open(&outside, target).unwrap();
        flow.ask().unwrap();
        let client = SocketAddr::new(outside.addresses.of(family), port(&flow));
        let quote = Quote::new(Proto::UDP, target, client);
        let receiver = icmp(&endpoint, family);
        let sender = icmp(&outside, family);
        for kind in [kind, kinds(family)[0]] {
            let message = Message {
                from: client.ip(),
                to: target.ip(),
                kind,
                rest: [0, 0, 5, 0],
                limit: 500,
            };
            sender.send(message.to, &without_headers(message.frame(&quote.bytes())));
        }
        // What was said after it is heard first.
        loop {
            let heard = receiver.receive().1;
            assert_ne!(kind, heard[..2], "{family}");
            if heard[..2] == kinds(family)[0] {
                break;
            }
        }
    }
}
