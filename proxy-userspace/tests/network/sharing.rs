//! Two Services with one endpoint: one client port must do for both.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use xtask::lab::client::{Answer, Connection};
use xtask::lab::manifest::Service;
use xtask::lab::{Family, Host};

use super::world::World;

#[test]
fn one_client_port_serves_tcp_connections_to_two_services_with_one_endpoint() {
    let Some((world, client, services, _server)) = shared() else {
        return;
    };
    for family in Family::ALL {
        let from = SocketAddr::new(client.addresses.of(family), PORT);
        let mut open: Vec<_> = services
            .iter()
            .map(|service| Connection::open_from(&client, from, service.target(family)).unwrap())
            .collect();
        for _ in 0..3 {
            for connection in &mut open {
                connection.echo("hello").unwrap();
                connection.upload(1_000_000, 1).unwrap();
                connection.download(1_000_000, 2).unwrap();
            }
        }
        let answers: Vec<_> = open.iter().map(Connection::answer).collect();
        assert_told_apart(&answers, from);
    }
    world.assert_unnoticed(&[&services[0], &services[1]]);
}

#[test]
fn one_client_port_serves_udp_flows_to_two_services_with_one_endpoint() {
    let Some((world, client, services, _server)) = shared() else {
        return;
    };
    for family in Family::ALL {
        let from = SocketAddr::new(client.addresses.of(family), PORT);
        let socket = client
            .namespace
            .enter(|| Ok(UdpSocket::bind(from)?))
            .unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        for _ in 0..3 {
            let answers = services
                .each_ref()
                .map(|service| ask(&socket, service.target(family)));
            assert_told_apart(&answers.each_ref(), from);
        }
    }
    world.assert_unnoticed(&[&services[0], &services[1]]);
}

/// A port that has spoken to an endpoint through a Service may speak to the endpoint itself
/// afterwards, and the other way round.
#[test]
fn one_client_port_reaches_an_endpoint_by_turns_through_its_service_and_directly() {
    let Some((world, client, services, _server)) = shared() else {
        return;
    };
    for family in Family::ALL {
        let open = |port, target| {
            let from = SocketAddr::new(client.addresses.of(family), port);
            let mut connection = Connection::open_from(&client, from, target).unwrap();
            connection.echo("hello").unwrap();
            connection
        };
        let through = services[0].target(family);
        let first = open(PORT, through);
        let direct = first.answer().local;
        first.close().unwrap();
        open(PORT, direct).close().unwrap();
        for target in [through, direct, direct, through, direct] {
            open(PORT + 1, target).reset().unwrap();
        }
    }
    world.assert_unnoticed(&[&services[0], &services[1]]);
}

type Shared = (World, Host, [Service; 2], xtask::lab::server::Server);

fn shared() -> Option<Shared> {
    let mut world = World::new(1)?;
    let client = world.lab.pod(1).unwrap();
    let (pods, mut servers) = world.servers(1, 1);
    let endpoints = world.endpoints(1, &pods);
    let services = [("one", 10), ("two", 11)]
        .map(|(name, number)| Service::new(name, number).with(endpoints.clone()));
    for service in &services {
        world.manifests.write_service(service).unwrap();
    }
    world.start();
    Some((world, client, services, servers.remove(0)))
}

fn ask(socket: &UdpSocket, target: SocketAddr) -> Answer {
    socket.send_to(b"who are you?", target).unwrap();
    let mut reply = [0; 1000];
    let (length, from) = socket.recv_from(&mut reply).unwrap();
    assert_eq!(target, from, "the answer comes from elsewhere");
    let text = std::str::from_utf8(&reply[..length]).unwrap();
    text.lines().next().unwrap().parse().unwrap()
}

// The client keeps its address; at the endpoint no two flows may have the same port.
fn assert_told_apart(answers: &[&Answer], from: SocketAddr) {
    let peers: Vec<_> = answers.iter().map(|answer| answer.peer).collect();
    let [one, two] = peers[..] else {
        panic!("{peers:?}")
    };
    assert_eq!([from.ip(); 2], [one.ip(), two.ip()]);
    assert_eq!(from.port(), one.port(), "the first flow keeps its port");
    assert_ne!(one.port(), two.port());
}

const PORT: u16 = 40_000;
