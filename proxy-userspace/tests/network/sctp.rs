//! SCTP through Services: by packets of the tests' own making, and by sockets where there are any.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use proxy_common::abi::Counter;
use proxy_common::net::Proto;
use proxy_common::net::sctp::crc32c;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketType, bind, connect, ipproto, listen, socket};
use xtask::lab::manifest::Service;
use xtask::lab::{Family, Host};

use super::pinned::Live;
use super::raw::Raw;
use super::scene::NODE_PORT;
use super::world::{World, wait_until};

// Chunk types of RFC 9260, 3.2.
const DATA: u8 = 0;
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const HEARTBEAT: u8 = 4;
const ABORT: u8 = 6;

/// A packet with one chunk: ports, a verification tag, the checksum, the chunk.
fn packet(sport: u16, dport: u16, chunk: u8) -> Vec<u8> {
    let mut packet = [sport.to_be_bytes(), dport.to_be_bytes()].concat();
    let tag = if chunk == INIT { 0_u32 } else { 0xfeed_f00d };
    packet.extend(tag.to_be_bytes());
    packet.extend([0; 4]);
    // An INIT's fixed part: tag, window, streams, first number. Right in length for others too.
    let value: [u8; 16] = [
        0xfe, 0xed, 0xf0, 0x0d, 0, 0, 0x10, 0, 0, 1, 0, 1, 0, 0, 0, 1,
    ];
    packet.extend([chunk, 0, 0, 20]);
    packet.extend(value);
    let sum = crc32c(&packet);
    packet[8..12].copy_from_slice(&sum.to_le_bytes());
    packet
}

/// Fails unless the checksum is right; the ports and the chunk.
fn read(packet: &[u8]) -> (u16, u16, u8) {
    let mut bare = packet.to_vec();
    bare[8..12].fill(0);
    assert_eq!(crc32c(&bare).to_le_bytes(), packet[8..12]);
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    (port(0), port(2), packet[12])
}

/// Has the Service speak SCTP in the place of TCP.
fn write(world: &World, service: &Service) {
    let spoken = |yaml: &str| yaml.replace("protocol: TCP", "protocol: SCTP");
    let manifests = &world.manifests;
    manifests
        .write("service-web", &spoken(&service.yaml()))
        .unwrap();
    for family in Family::ALL {
        let slice = service.slice_name(family);
        let all: Vec<_> = service
            .endpoints
            .iter()
            .map(|endpoint| (endpoint.addresses.of(family), endpoint.node.as_str()))
            .collect();
        let yaml = service.slice_yaml(&slice, family, &all);
        manifests.write(&slice, &spoken(&yaml)).unwrap();
    }
}

/// From the first chunk to the last, at an address and port of the Service.
fn converse(from: &Host, sport: u16, to: (IpAddr, u16), endpoint: &Host) {
    let (vip, port) = to;
    let family = if vip.is_ipv4() {
        Family::V4
    } else {
        Family::V6
    };
    let client = Raw::new(from, from.addresses.of(family), ipproto::SCTP);
    let server = Raw::new(endpoint, endpoint.addresses.of(family), ipproto::SCTP);
    let asks = |chunk| {
        client.send(vip, &packet(sport, port, chunk));
        let (peer, came) = server.receive();
        let (peer_port, dport, came) = read(&came);
        assert_eq!((8080, chunk), (dport, came));
        (peer, peer_port)
    };
    let peer = asks(INIT);
    let answers = |chunk| {
        server.send(peer.0, &packet(8080, peer.1, chunk));
        let (who, came) = client.receive();
        assert_eq!(vip, who, "the endpoint showed itself");
        assert_eq!((port, sport, chunk), read(&came));
    };
    answers(INIT_ACK);
    assert_eq!(peer, asks(DATA));
    answers(DATA);
    assert_eq!(peer, asks(HEARTBEAT));
    // The endpoint begins anew: what comes of a flow that is known shows the Service.
    answers(INIT);
    answers(ABORT);
}

// B104 B105
#[test]
fn an_association_through_a_cluster_ip_keeps_its_addresses_and_checksums() {
    let Some(mut world) = World::new(2) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (near, _) = world.servers(1, 1);
    let (far, _) = world.servers(2, 1);
    let mut service = Service::new("web", 10);
    world.start();
    let live = Live::open(&world.lab.node(1));
    for (round, endpoint, node) in [(0, &near, 1), (1, &far, 2)] {
        service.endpoints = world.endpoints(node, endpoint);
        write(&world, &service);
        for family in Family::ALL {
            let target = service.target(family);
            wait_until("the endpoint is in the tables", || {
                let all = live.endpoints(target, Proto::SCTP);
                all.is_some_and(|all| all.contains(&endpoint[0].addresses.of(family)))
            });
            let to = (target.ip(), target.port());
            converse(&client, 50_000 + round, to, &endpoint[0]);
        }
    }
    world.assert_unnoticed(&[&service]);
}

// B106
#[test]
fn an_association_through_a_node_port_is_masqueraded() {
    let Some(mut world) = World::new(2) else {
        return;
    };
    let (pods, _) = world.servers(2, 1);
    let mut service = Service::new("web", 10).at_node_port(NODE_PORT);
    service.endpoints = world.endpoints(2, &pods);
    write(&world, &service);
    world.start();
    let outside = world.lab.outside().clone();
    for (nth, node) in (0..).zip([1, 2]) {
        for family in Family::ALL {
            let door = world.lab.node(node).addresses.of(family);
            converse(&outside, 50_000 + nth, (door, NODE_PORT), &pods[0]);
        }
    }
}

/// Nobody answers with an ABORT, which would end the association on its other path.
// B107
#[test]
fn a_heartbeat_of_an_unknown_association_is_dropped() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _) = world.servers(1, 1);
    let mut service = Service::new("web", 10);
    service.endpoints = world.endpoints(1, &pods);
    write(&world, &service);
    world.start();
    let live = Live::open(&world.lab.node(1));
    for family in Family::ALL {
        let before = live.count(Counter::DropInvalid);
        let target = service.target(family);
        let raw = Raw::new(&client, client.addresses.of(family), ipproto::SCTP);
        raw.send(target.ip(), &packet(50_000, target.port(), HEARTBEAT));
        wait_until("it is dropped", || {
            live.count(Counter::DropInvalid) == before + 1
        });
        // The next one is: nothing of the first stands in its way.
        converse(&client, 50_000, (target.ip(), target.port()), &pods[0]);
    }
}

/// Between sockets of the kernel's own SCTP, which leaves the checksum to the device.
#[test]
fn what_sockets_send_through_a_cluster_ip_arrives() {
    if let Err(error) = socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::SCTP)) {
        // There it was made sure of.
        let is_emulated = std::env::var_os("KUBE_LOTTERY_EMULATED").is_some();
        assert!(!is_emulated, "no SCTP: {error}");
        let mut out = std::io::stderr();
        writeln!(out, "skipped: this kernel has no SCTP sockets: {error}").unwrap();
        return;
    }
    let Some(mut world) = World::new(2) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let mut service = Service::new("web", 10);
    let pods = [1, 2].map(|node| world.lab.pod(node).unwrap());
    for (pod, node) in pods.iter().zip(1..) {
        service.endpoints = world.endpoints(node, std::slice::from_ref(pod));
        write(&world, &service);
        if node == 1 {
            world.start();
        }
        let live = Live::open(&world.lab.node(1));
        for family in Family::ALL {
            let target = service.target(family);
            let addr = pod.addresses.of(family);
            wait_until("the endpoint is in the tables", || {
                let all = live.endpoints(target, Proto::SCTP);
                all.is_some_and(|all| all.contains(&addr))
            });
            // First without the Service: what fails then is none of its doing.
            for to in [SocketAddr::new(addr, 8080), target] {
                exchange((&client, client.addresses.of(family)), (pod, addr), to);
            }
        }
    }
    world.assert_unnoticed(&[&service]);
}

/// A socket at one address: it would name its others to its peer, who could do nothing with them.
fn stream(host: &Host, addr: IpAddr, port: u16) -> OwnedFd {
    let family = if addr.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let open = || {
        let socket = socket(family, SocketType::STREAM, Some(ipproto::SCTP))?;
        for which in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, which, Some(Duration::from_mins(1)))?;
        }
        bind(&socket, &SocketAddr::new(addr, port))?;
        Ok(socket)
    };
    host.namespace.enter(open).unwrap()
}

/// Has a server at an address of a host send back what a client sends it, by way of `to`.
fn exchange(client: (&Host, IpAddr), server: (&Host, IpAddr), to: SocketAddr) {
    thread::scope(|scope| {
        let listener = stream(server.0, server.1, 8080);
        listen(&listener, 1).unwrap();
        let listener = TcpListener::from(listener);
        scope.spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut buffer = vec![0; 65_536];
            loop {
                let length = peer.read(&mut buffer).unwrap();
                if length == 0 {
                    return;
                }
                peer.write_all(&buffer[..length]).unwrap();
            }
        });
        let socket = stream(client.0, client.1, 0);
        connect(&socket, &to).unwrap();
        let mut socket = TcpStream::from(socket);
        assert_eq!(to, socket.peer_addr().unwrap());
        for length in [1, 10, 1_000, 1_400, 4_000, 20_000, 60_000] {
            let sent: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            socket.write_all(&sent).unwrap();
            let mut back = vec![0; length];
            let read = socket.read_exact(&mut back);
            read.unwrap_or_else(|error| panic!("{to}, {length} bytes: {error}"));
            assert!(sent == back, "{to}: {length} bytes came back changed");
        }
    });
}
