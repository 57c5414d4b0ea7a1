//! ICMP errors about packets of a Service, and who hears of them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use proxy_common::datapath::memory::message::{Message, Quote};
use proxy_common::net::Proto;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket};
use xtask::lab::client::Datagrams;
use xtask::lab::manifest::{Endpoint, Service};
use xtask::lab::network::Network;
use xtask::lab::{Family, Host};

use super::door::Door;
use super::pmtu::between_the_nodes;
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
        let service = Service::new("web", 10).with([at]);
        Door::NodePort.open(&mut world, &service, policy);
        let outside = world.lab.outside().clone();
        for family in Family::ALL {
            for door in [Door::NodePort, Door::Balancer] {
                is_refused(&outside, door.target(&world, family));
            }
        }
        world.assert_unnoticed(&[&service]);
    }
}

/// A raw socket for the ICMP messages of a family.
fn icmp(host: &Host, family: Family) -> OwnedFd {
    let (kind, proto) = match family {
        Family::V4 => (AddressFamily::INET, ipproto::ICMP),
        Family::V6 => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let raw = || Ok(socket(kind, SocketType::RAW, Some(proto))?);
    let socket = host.namespace.enter(raw).unwrap();
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).unwrap();
    socket
}

const PATIENCE: Duration = Duration::from_secs(10);

/// The next message of this type and code, from its ICMP header on.
fn hear(socket: &OwnedFd, family: Family, kind: [u8; 2]) -> Vec<u8> {
    loop {
        let mut bytes = vec![0; 2048];
        let (_, length) = recv(socket, &mut bytes, RecvFlags::empty())
            .map_err(io::Error::from)
            .unwrap_or_else(|error| panic!("no {kind:?} over {family}: {error}"));
        bytes.truncate(length);
        // With IPv4, it comes with its header.
        let message = match family {
            Family::V4 => bytes.split_off(20),
            Family::V6 => bytes,
        };
        if message[..2] == kind {
            return message;
        }
    }
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
        let headers = match family {
            Family::V4 => 34,
            Family::V6 => 54,
        };
        let said = message.frame(&quote.bytes()).split_off(headers);
        let target = SocketAddr::new(message.to, 0);
        sendto(&sender, &said, SendFlags::empty(), &target).unwrap();
        let heard = hear(&receiver, family, *kind);
        // But for the checksum, which the kernel has verified.
        let expected = Message {
            limit: 500,
            ..message
        }
        .frame(&after.bytes())
        .split_off(headers);
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
        let service = Service::new("web", 10).with([at]);
        Door::NodePort.open(&mut world, &service, policy);
        let outside = world.lab.outside().clone();
        for family in Family::ALL {
            for door in [Door::NodePort, Door::Balancer] {
                let target = door.target(&world, family);
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
    let service = Service::new("web", 10).with([Endpoint::new(&endpoint, &world.lab.node(2))]);
    let outside = world.lab.outside().clone();
    let [router, _] = between_the_nodes(&world);
    Door::NodePort.open(&mut world, &service, "Cluster");
    for family in Family::ALL {
        for (client, door) in [(&client, Door::Cluster), (&outside, Door::NodePort)] {
            let target = door.target(&world, family);
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
    let service = Service::new("web", 10).with([Endpoint::new(&endpoint, &world.lab.node(1))]);
    Door::NodePort.open(&mut world, &service, "Local");
    let outside = world.lab.outside().clone();
    for (family, kind) in Family::ALL.into_iter().zip([[5, 1], [137, 0]]) {
        let target = Door::NodePort.target(&world, family);
        let flow = Datagrams::open(&outside, target).unwrap();
        flow.ask().unwrap();
        let client = SocketAddr::new(outside.addresses.of(family), port(&flow));
        let quote = Quote::new(Proto::UDP, target, client);
        let hears = icmp(&endpoint, family);
        let speaks = icmp(&outside, family);
        for kind in [kind, kinds(family)[0]] {
            let message = Message {
                from: client.ip(),
                to: target.ip(),
                kind,
                rest: [0, 0, 5, 0],
                limit: 500,
            };
            let headers = if target.is_ipv4() { 34 } else { 54 };
            let said = message.frame(&quote.bytes()).split_off(headers);
            let to = SocketAddr::new(target.ip(), 0);
            sendto(&speaks, &said, SendFlags::empty(), &to).unwrap();
        }
        // What was said after it is heard first.
        let mut bytes = [0; 2048];
        let header = if target.is_ipv4() { 20 } else { 0 };
        loop {
            recv(&hears, &mut bytes, RecvFlags::empty()).unwrap();
            assert_ne!(kind, bytes[header..header + 2], "{family}");
            if bytes[header..header + 2] == kinds(family)[0] {
                break;
            }
        }
    }
}
