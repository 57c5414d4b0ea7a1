//! Pods on one bridge while the node, or they themselves, forget who has which address.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::Service;
use xtask::lab::network::Network;
use xtask::lab::server::Server;
use xtask::lab::{Family, Host, observe};

use super::world::{World, is_long, wait_until};

#[test]
fn connections_on_a_bridge_live_on_while_neighbours_are_forgotten() {
    forget(Network::bridged(false));
}

#[test]
fn connections_on_a_bridge_that_netfilter_sees_live_on_while_neighbours_are_forgotten() {
    forget(Network::bridged(true));
}

fn forget(network: Network) {
    let Some(mut world) = World::on(1, network) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let ends = StopOnDrop(&stop);
        let lanes = Family::ALL.map(|family| {
            let (client, target, stop) = (&client, service.target(family), &stop);
            scope.spawn(move || talk(client, target, stop))
        });
        for round in 0..if is_long() { 300 } else { 12 } {
            thread::sleep(Duration::from_millis(200));
            observe::forget_neighbours(&world.lab.node(1).namespace).unwrap();
            // Now and then all others as well.
            if round % 3 == 0 {
                for pod in pods.iter().chain([&client]) {
                    observe::forget_neighbours(&pod.namespace).unwrap();
                }
            }
        }
        drop(ends);
        for lane in lanes {
            lane.join().unwrap().unwrap();
        }
    });
    world.assert_unnoticed(&[&service]);
}

/// Open connections, new ones, and flows, until it is stopped. A connection that stands still for
/// five seconds is an error.
fn talk(client: &Host, target: SocketAddr, stop: &AtomicBool) -> Result<()> {
    let open = || Connection::open(client, target);
    let mut connections = [open()?, open()?, open()?, open()?];
    let flow = Datagrams::open(client, target)?;
    while !stop.load(Ordering::Relaxed) {
        for connection in &mut connections {
            connection.echo("still there?")?;
            connection.upload(20_000, 1)?;
        }
        open()?.close()?;
        for flow in [&flow, &Datagrams::open(client, target)?] {
            // What waits for a neighbour is dropped with its entry.
            flow.ask().or_else(|_| flow.ask())?;
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

#[test]
fn an_endpoint_that_comes_back_with_another_hardware_address_is_reached() {
    for netfilter in [false, true] {
        let Some(mut world) = World::on(1, Network::bridged(netfilter)) else {
            return;
        };
        let client = world.lab.pod(1).unwrap();
        let mut pod = world.lab.pods_at(1, &[100]).unwrap().remove(0);
        let mut server = Server::start(&pod, "first", 8080).unwrap();
        let service = Service::new("web", 10).with(world.endpoints(1, &[pod.clone()]));
        world.start_with(&service);
        let targets = Family::ALL.map(|family| service.target(family));
        let mut open = open_from_known_ports(&client, &targets);
        let flows = targets.map(|target| Flow::new(&client, target));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let _stop = StopOnDrop(&stop);
            scope.spawn(|| keep_sending(&flows, &stop));
            for round in 0..3 {
                drop(server);
                world.lab.remove(&pod).unwrap();
                // For long enough that what is sent meanwhile finds nobody.
                thread::sleep(Duration::from_millis(50));
                pod = world.lab.pods_at(1, &[100]).unwrap().remove(0);
                let name = format!("round-{round}");
                server = Server::start(&pod, &name, 8080).unwrap();
                for flow in &flows {
                    wait_until("the flow reaches the new pod", || {
                        flow.is_answered_by(&name)
                    });
                }
                for connection in open {
                    connection.reset().unwrap();
                }
                open = open_from_known_ports(&client, &targets);
                assert!(open.iter().all(|open| open.answer().name == name));
            }
        });
        world.assert_unnoticed(&[&service]);
    }
}

#[test]
fn a_client_that_comes_back_with_another_hardware_address_is_served() {
    for netfilter in [false, true] {
        let Some(mut world) = World::on(1, Network::bridged(netfilter)) else {
            return;
        };
        let (pods, _servers) = world.servers(1, 2);
        let service = Service::new("web", 10).with(world.endpoints(1, &pods));
        world.start_with(&service);
        let targets = Family::ALL.map(|family| service.target(family));
        for _ in 0..3 {
            let client = world.lab.pods_at(1, &[100]).unwrap().remove(0);
            // A device is found a moment after it came up, and UDP sends nothing again.
            let open = open_from_known_ports(&client, &targets);
            let flows = targets.map(|target| {
                let from = SocketAddr::new(client.addresses.of(family_of(target)), PORT);
                Datagrams::open_from(&client, from, target).unwrap()
            });
            for flow in &flows {
                flow.ask().unwrap();
            }
            // It goes without a word.
            world.lab.remove(&client).unwrap();
            drop(open);
        }
        world.assert_unnoticed(&[&service]);
    }
}

fn open_from_known_ports(client: &Host, targets: &[SocketAddr]) -> Vec<Connection> {
    let open = |target: &SocketAddr| {
        let from = SocketAddr::new(client.addresses.of(family_of(*target)), PORT);
        let mut open = Connection::open_from(client, from, *target).unwrap();
        open.upload(100_000, 1).unwrap();
        open
    };
    targets.iter().map(open).collect()
}

const fn family_of(address: SocketAddr) -> Family {
    if address.is_ipv4() {
        Family::V4
    } else {
        Family::V6
    }
}

/// Ends the lanes of a test that fails as well: the scope waits for them.
struct StopOnDrop<'s>(&'s AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One UDP flow whose client sends without waiting for answers.
struct Flow(UdpSocket);

impl Flow {
    fn new(client: &Host, target: SocketAddr) -> Self {
        let from = SocketAddr::new(client.addresses.of(family_of(target)), PORT);
        let socket = client
            .namespace
            .enter(|| Ok(UdpSocket::bind(from)?))
            .unwrap();
        socket.connect(target).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        Self(socket)
    }

    fn is_answered_by(&self, name: &str) -> bool {
        let mut answer = [0; 200];
        let length = self.0.recv(&mut answer).unwrap_or_default();
        answer[..length].starts_with(name.as_bytes())
    }
}

fn keep_sending(flows: &[Flow], stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for Flow(socket) in flows {
            // Refused while nobody serves.
            drop(socket.send(b"who are you?"));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

const PORT: u16 = 40_000;
