//! UDP sockets that go on sending from one port while what they send to changes.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::Service;
use xtask::lab::{Family, Host};

use super::marks::without_limits;
use super::pinned::Live;
use super::recreated::wait_for_endpoints;
use super::world::{World, wait_until};

const PORT: u16 = 40_053;

/// Longer than any answer takes, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an answer is waited for that must not come, or may come later.
const SHORT: Duration = Duration::from_millis(200);

/// A client that never changes its port.
struct Sender {
    socket: UdpSocket,
    target: SocketAddr,
    asked: Cell<u32>,
}

impl Sender {
    fn new(client: &Host, service: &Service, family: Family) -> Self {
        let target = service.target(family);
        let from = SocketAddr::new(client.addresses.of(family), PORT);
        let open = || {
            let socket = UdpSocket::bind(from)?;
            socket.connect(target)?;
            Ok(socket)
        };
        Self {
            socket: client.namespace.enter(open).unwrap(),
            target,
            asked: Cell::new(0),
        }
    }

    /// Sends, and says who answered, or how it failed.
    fn ask(&self) -> Result<String, ErrorKind> {
        self.ask_within(PATIENCE)
    }

    /// As `ask`; passes over answers to questions that were given up.
    fn ask_within(&self, patience: Duration) -> Result<String, ErrorKind> {
        let failed = |error: std::io::Error| error.kind();
        self.asked.set(self.asked.get() + 1);
        let question = format!("question {}", self.asked.get());
        self.socket
            .set_read_timeout(Some(patience))
            .map_err(failed)?;
        self.socket.send(question.as_bytes()).map_err(failed)?;
        loop {
            let mut reply = [0; 512];
            let length = self.socket.recv(&mut reply).map_err(failed)?;
            let text = String::from_utf8_lossy(&reply[..length]).into_owned();
            let (answer, back) = text.split_once('\n').unwrap();
            if back == question {
                return Ok(answer.split_whitespace().next().unwrap().to_owned());
            }
        }
    }

    fn is_refused(&self) -> bool {
        self.ask_within(SHORT) == Err(ErrorKind::ConnectionRefused)
    }
}

fn both(client: &Host, service: &Service) -> [Sender; 2] {
    Family::ALL.map(|family| Sender::new(client, service, family))
}

fn write_slices(world: &World, service: &Service) {
    for family in Family::ALL {
        world.manifests.write_slice(service, family).unwrap();
    }
}

/// What a datagram found in its way stays nobody's: not no Service, not an empty one, not a
/// node that translates nothing yet.
// B022 B029 B035
#[test]
fn a_socket_that_sends_from_before_there_is_a_service_is_served_once_there_is_one() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    let node = world.lab.node(1);
    without_limits(&node);
    let mut service = Service::new("web", 10).balanced(20);
    let balanced = Service {
        addresses: service.balancer.unwrap(),
        ..service.clone()
    };
    let endpoints = world.endpoints(1, &pods);
    let senders = both(&client, &service);
    // The same port: the other one's target is another.
    let outside = world.lab.outside().clone();
    let strangers = both(&outside, &balanced);
    let all = || senders.iter().chain(&strangers);
    let none_is_answered = || {
        for sender in all() {
            let answer = sender.ask_within(SHORT);
            assert!(answer.is_err(), "{}: {answer:?}", sender.target);
        }
    };
    none_is_answered();
    world.start();
    none_is_answered();
    world.manifests.write_service(&service).unwrap();
    for sender in all() {
        wait_until("an empty Service refuses", || sender.is_refused());
    }
    service.endpoints = endpoints;
    write_slices(&world, &service);
    wait_for_endpoints(&Live::open(&node), &service);
    for sender in all() {
        sender.ask().unwrap();
    }
}

/// Every change while the old endpoint still answers: no datagram is lost.
// B021 B031 B038
#[test]
fn a_socket_follows_every_change_of_the_endpoints_without_a_loss() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 3);
    let all = world.endpoints(1, &pods);
    let mut service = Service::new("web", 10).with(all.clone());
    world.start_with(&service);
    let live = Live::open(&world.lab.node(1));
    let senders = both(&client, &service);
    for round in 0..20 {
        // One, and then another one: never the one that there was.
        service.endpoints = vec![all[round % 3].clone()];
        write_slices(&world, &service);
        for sender in &senders {
            sender.ask().unwrap();
        }
        wait_for_endpoints(&live, &service);
        for sender in &senders {
            assert_eq!(Ok(&pods[round % 3].name), sender.ask().as_ref());
        }
    }
    world.assert_unnoticed(&[&service]);
}

/// Only what it has to end: not the Service beside it at the same endpoints, and not TCP.
// B033
#[test]
fn flows_of_a_service_that_loses_everything_end_and_no_others_do() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    without_limits(&world.lab.node(1));
    let endpoints = world.endpoints(1, &pods);
    let mut service = Service::new("web", 10).with(endpoints.clone());
    let neighbour = Service::new("neighbour", 11).with(endpoints);
    world.manifests.write_service(&neighbour).unwrap();
    world.start_with(&service);
    for is_deleted in [false, true] {
        let senders = both(&client, &service);
        for sender in &senders {
            sender.ask().unwrap();
        }
        let open = |service: &Service, family| {
            let flow = Datagrams::open(&client, service.target(family)).unwrap();
            let name = flow.ask().unwrap().name;
            (flow, name)
        };
        let beside = Family::ALL.map(|family| open(&neighbour, family));
        let mut connections =
            Family::ALL.map(|family| Connection::open(&client, service.target(family)).unwrap());
        let kept = std::mem::take(&mut service.endpoints);
        if is_deleted {
            for part in ["service-web", "slice-web-ipv4", "slice-web-ipv6"] {
                world.manifests.remove(part).unwrap();
            }
        } else {
            write_slices(&world, &service);
        }
        for sender in &senders {
            if is_deleted {
                // An address of nothing: where the route leads, nobody answers.
                wait_until("the flow is over", || sender.ask_within(SHORT).is_err());
            } else {
                wait_until("the flow is over", || sender.is_refused());
            }
        }
        for (flow, name) in &beside {
            assert_eq!(*name, flow.ask().unwrap().name);
        }
        for connection in &mut connections {
            connection.echo("still there?").unwrap();
        }
        service.endpoints = kept;
        world.manifests.write_service(&service).unwrap();
        for sender in &senders {
            wait_until("it is served again", || sender.ask_within(SHORT).is_ok());
        }
    }
}
