//! Many clients behind one address of the node.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use proxy_common::abi::Counter;
use xtask::lab::client::{Answer, Connection, Datagrams};
use xtask::lab::draw::draw;
use xtask::lab::{Family, Host, Protocol};

use super::moves::is_attached;
use super::pinned::Live;
use super::scene::{NODE_PORT, Scene};
use super::world::{device_of, is_long};

/// A node port of the first node; who is masqueraded there shares one endpoint on the second.
fn scene() -> Option<Scene> {
    Scene::with_endpoint_on(2, "", |service| service.at_node_port(NODE_PORT))
}

/// What conntrack could not enter, because somebody else had the same ports at the same moment, or
/// had no port for.
fn lost(node: &Host) -> u64 {
    let output = node.namespace.command("conntrack").arg("-S").output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let words = text
        .split_whitespace()
        .filter_map(|word| word.split_once('='));
    let counts = words.filter(|(name, _)| ["insert_failed", "drop"].contains(name));
    counts.map(|(_, count)| count.parse::<u64>().unwrap()).sum()
}

/// What our programs found no port or no room for.
fn refused(node: &Host) -> u64 {
    let live = Live::open(node);
    live.count(Counter::DropNoPort) + live.count(Counter::DropTableFull)
}

/// Has conntrack of a node remember for longer than any test takes.
fn patient(node: &Host, timeout: &str) {
    let name = format!("netfilter/nf_conntrack_{timeout}");
    node.namespace.set(&[(name, "900")]).unwrap();
}

// B040, B186
#[test]
fn thousands_of_short_connections_of_many_clients_are_masqueraded_and_none_fails() {
    let Some(mut scene) = scene() else {
        return;
    };
    let node = scene.world.lab.node(1);
    let mut clients = scene.world.lab.pods(1, 3).unwrap();
    clients.push(scene.outside());
    for pod in &clients[..3] {
        let device = device_of(pod);
        scene.world.wait_for_device(&device, is_attached);
    }
    let each = if is_long() { 10_000 } else { 400 };
    let own = node.addresses;
    for (protocol, family) in [
        (Protocol::Tcp, Family::V4),
        (Protocol::Udp, Family::V6),
        (Protocol::Tcp, Family::V6),
        (Protocol::Udp, Family::V4),
    ] {
        let door = scene.door(1, family);
        let masqueraded = AtomicU64::new(0);
        let count = |answer: &Answer| {
            let is_so = answer.peer.ip() == own.of(family);
            masqueraded.fetch_add(is_so.into(), Ordering::Relaxed);
        };
        thread::scope(|scope| {
            for client in &clients {
                scope.spawn(|| draw(client, protocol, door, each, &count).unwrap());
            }
        });
        assert_eq!(4 * each, masqueraded.into_inner(), "{protocol} {family}");
    }
    // Two CPUs that draw one port at one moment are rare, and the packet is sent again.
    assert!(lost(&node) <= 16 * each / 1000, "{}", lost(&node));
    assert_eq!(0, refused(&node));
    scene.assert_unnoticed(&[]);
}

// B041
#[test]
fn new_flows_find_a_port_where_tens_of_thousands_are_taken() {
    let Some(scene) = scene() else {
        return;
    };
    let node = scene.world.lab.node(1);
    let door = scene.door(1, Family::V4);
    // They count as open for half a minute, which a busy machine may take.
    patient(&node, "udp_timeout");
    let open = if is_long() { 40_000 } else { 8_000 };
    let ports = std::sync::Mutex::new(BTreeSet::new());
    let record = |answer: &Answer| {
        let is_new = ports.lock().unwrap().insert(answer.peer.port());
        assert!(is_new, "port {} is taken twice", answer.peer.port());
    };
    draw(&scene.outside(), Protocol::Udp, door, open, &record).unwrap();
    assert_eq!(open as usize, ports.lock().unwrap().len());
    for _ in 0..100 {
        let connection = Connection::open(&scene.client, door).unwrap();
        connection.reset().unwrap();
        let flow = Datagrams::open(&scene.client, door).unwrap();
        record(&flow.ask().unwrap());
    }
    assert_eq!(0, refused(&node));
    scene.assert_unnoticed(&[]);
}

/// Nobody else is seen at the ports of connections that are over, until the endpoint has forgotten
/// them as well.
// B051
#[test]
fn a_pod_that_takes_the_place_of_another_is_not_seen_at_its_ports() {
    let Some(mut scene) = scene() else {
        return;
    };
    let node = scene.world.lab.node(1);
    patient(&node, "tcp_timeout_time_wait");
    for family in Family::ALL {
        let door = scene.door(1, family);
        let mut former = BTreeSet::new();
        for first in [20_000, 40_000] {
            let pod = scene.world.lab.pods_at(1, &[100]).unwrap().remove(0);
            let device = device_of(&pod);
            scene.world.wait_for_device(&device, is_attached);
            let mut ports = BTreeSet::new();
            for port in first..first + 700 {
                let from = SocketAddr::new(pod.addresses.of(family), port);
                let open = Connection::open_from(&pod, from, door).unwrap();
                let peer = open.answer().peer;
                assert_eq!(node.addresses.of(family), peer.ip());
                ports.insert(peer.port());
                open.close().unwrap();
            }
            scene.world.lab.remove(&pod).unwrap();
            // By chance alone it would be so once in 2000 times.
            assert!(ports.is_disjoint(&former), "{family}");
            former = ports;
        }
    }
    scene.assert_unnoticed(&[]);
}
