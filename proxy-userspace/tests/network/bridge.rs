//! Pods on one bridge.

use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::{Endpoint, Service};
use xtask::lab::network::Network;
use xtask::lab::{Family, observe};

use super::exchange::exchange;
use super::world::{World, is_long, serve};

/// Field report B059.
#[test]
fn a_pod_on_a_bridge_without_hairpin_mode_reaches_itself() {
    for netfilter in [false, true] {
        let Some(mut world) = World::on(1, Network::bridged(netfilter)) else {
            return;
        };
        let node = world.lab.node(1);
        let pod = world.lab.pod(1).unwrap();
        let _server = serve(&pod);
        let ports = observe::bridge_ports(&node.namespace).unwrap();
        assert!(ports.contains("hairpin off") && !ports.contains("hairpin on"));
        let service = Service::new("web", 10).with([Endpoint::new(&pod, &node)]);
        world.start_with(&service);
        exchange(&pod, &service, &pod, service.addresses).unwrap();
        world.assert_unnoticed(&[&service]);
    }
}

/// Each stays where it is, also when the node has to ask anew who has the endpoints' addresses.
#[test]
fn many_flows_on_a_bridge_stay_at_their_endpoints() {
    let Some(mut world) = World::on(1, Network::bridged(false)) else {
        return;
    };
    let clients = world.lab.pods(1, 3).unwrap();
    let (pods, _servers) = world.servers(1, 3);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let rounds = if is_long() { 50 } else { 3 };
    for round in 0..rounds {
        let family = Family::ALL[round % 2];
        let target = service.target(family);
        let mut connections = Vec::new();
        let mut flows = Vec::new();
        for client in clients.iter().cycle().take(EACH) {
            connections.push(Connection::open(client, target).unwrap());
            let flow = Datagrams::open(client, target).unwrap();
            let at = flow.ask().unwrap().name;
            flows.push((flow, at));
        }
        observe::forget_neighbours(&world.lab.node(1).namespace).unwrap();
        for connection in &mut connections {
            connection.upload(20_000, 1).unwrap();
        }
        for (flow, at) in &flows {
            assert_eq!(*at, flow.ask().unwrap().name, "a UDP flow was moved");
        }
        for connection in connections {
            connection.reset().unwrap();
        }
    }
    world.assert_unnoticed(&[&service]);
}

/// Both ends of each connection are files of this process, which may have 1024.
const EACH: usize = 300;
