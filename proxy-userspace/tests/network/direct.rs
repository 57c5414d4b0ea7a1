//! One client port for an endpoint's own address and for a Service that leads there.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use xtask::lab::client::{Answer, Connection};
use xtask::lab::manifest::Service;
use xtask::lab::server::Server;
use xtask::lab::{Family, Host};

use super::world::World;

// B043: bootstrap through the Service, then work with the pod itself, or the other way round.
#[test]
fn direct_and_service_connections_from_one_port_live_side_by_side() {
    for node in [1, 2] {
        let Some(scene) = Scene::new(node) else {
            return;
        };
        let mut port = 40_000;
        for family in Family::ALL {
            let (service, direct) = scene.targets(family);
            for order in [[service, direct], [direct, service]] {
                port += 1;
                let from = SocketAddr::new(scene.client.addresses.of(family), port);
                // The first one is open when the second one opens.
                let mut open =
                    order.map(|to| Connection::open_from(&scene.client, from, to).unwrap());
                let answers = open.each_ref().map(Connection::answer);
                assert_eq!(from, answers[0].peer, "the first one keeps its port");
                assert_told_apart(answers, from);
                for seed in 0..3 {
                    for connection in &mut open {
                        connection.echo("still there?").unwrap();
                        connection.upload(500_000, seed).unwrap();
                        connection.download(500_000, seed).unwrap();
                    }
                }
                let [first, mut second] = open;
                if port % 2 == 0 {
                    first.close().unwrap();
                } else {
                    first.reset().unwrap();
                }
                second.download(500_000, 9).unwrap();
                second.close().unwrap();
            }
        }
        scene.world.assert_unnoticed(&[&scene.service]);
    }
}

#[test]
fn direct_and_service_connections_that_open_at_once_do_not_disturb_each_other() {
    let Some(scene) = Scene::new(1) else {
        return;
    };
    for family in Family::ALL {
        let (service, direct) = scene.targets(family);
        for port in 41_000..41_030 {
            let from = SocketAddr::new(scene.client.addresses.of(family), port);
            let open = |to| Connection::open_from(&scene.client, from, to).unwrap();
            let (mut one, mut two) = std::thread::scope(|scope| {
                let other = scope.spawn(|| open(direct));
                (open(service), other.join().unwrap())
            });
            assert_told_apart([one.answer(), two.answer()], from);
            one.echo("through the Service").unwrap();
            two.echo("past the Service").unwrap();
        }
    }
    scene.world.assert_unnoticed(&[&scene.service]);
}

#[test]
fn one_udp_socket_speaks_to_an_endpoint_directly_and_through_its_service() {
    for node in [1, 2] {
        let Some(scene) = Scene::new(node) else {
            return;
        };
        for family in Family::ALL {
            let (service, direct) = scene.targets(family);
            for (order, port) in [([service, direct], 42_001), ([direct, service], 42_002)] {
                let from = SocketAddr::new(scene.client.addresses.of(family), port);
                let client = &scene.client.namespace;
                let socket = client.enter(|| Ok(UdpSocket::bind(from)?)).unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                for round in 0..6 {
                    // By turns, and both questions before the first answer.
                    let answers = if round % 2 == 0 {
                        order.map(|to| {
                            ask(&socket, &[to]);
                            receive(&socket, to)
                        })
                    } else {
                        ask(&socket, &order);
                        let mut answers = [(); 2].map(|()| read(&socket));
                        answers.sort_by_key(|(at, _)| order.iter().position(|to| to == at));
                        assert_eq!(order, answers.each_ref().map(|(at, _)| *at));
                        answers.map(|(_, answer)| answer)
                    };
                    assert_eq!(from, answers[0].peer, "the first one keeps its port");
                    assert_told_apart(answers.each_ref(), from);
                }
            }
        }
        scene.world.assert_unnoticed(&[&scene.service]);
    }
}

/// A client on the first node, and a Service with one endpoint.
struct Scene {
    world: World,
    client: Host,
    endpoint: Host,
    service: Service,
    _server: Server,
}

impl Scene {
    /// The endpoint is on this node.
    fn new(node: u8) -> Option<Self> {
        let mut world = World::new(2)?;
        let client = world.lab.pod(1).unwrap();
        let (pods, mut servers) = world.servers(node, 1);
        let service = Service::new("web", 10).with(world.endpoints(node, &pods));
        world.start_with(&service);
        Some(Self {
            world,
            client,
            endpoint: pods[0].clone(),
            service,
            _server: servers.remove(0),
        })
    }

    /// The Service, and the endpoint itself.
    fn targets(&self, family: Family) -> (SocketAddr, SocketAddr) {
        let direct = SocketAddr::new(self.endpoint.addresses.of(family), 8080);
        (self.service.target(family), direct)
    }
}

fn ask(socket: &UdpSocket, targets: &[SocketAddr]) {
    for target in targets {
        socket.send_to(b"who are you?", target).unwrap();
    }
}

fn receive(socket: &UdpSocket, target: SocketAddr) -> Answer {
    let (from, answer) = read(socket);
    assert_eq!(target, from, "the answer comes from elsewhere");
    answer
}

fn read(socket: &UdpSocket) -> (SocketAddr, Answer) {
    let mut reply = [0; 1000];
    let (length, from) = socket.recv_from(&mut reply).unwrap();
    let text = std::str::from_utf8(&reply[..length]).unwrap();
    (from, text.lines().next().unwrap().parse().unwrap())
}

// The client keeps its address, and the endpoint sees two ports.
fn assert_told_apart(answers: [&Answer; 2], from: SocketAddr) {
    let [one, two] = answers.map(|answer| answer.peer);
    assert_eq!([from.ip(); 2], [one.ip(), two.ip()]);
    assert_ne!(one.port(), two.port());
}

const PATIENCE: Duration = Duration::from_secs(10);
