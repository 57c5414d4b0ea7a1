//! From a client to an endpoint, wherever the endpoint is.

use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::{Endpoint, Service};
use xtask::lab::{Addresses, Family, Host};

use super::exchange::exchange;
use super::world::{World, serve};

#[test]
fn a_pod_reaches_an_endpoint_on_its_own_node() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let server = world.lab.pod(1).unwrap();
    reach(&mut world, &client, &server, 1, client.addresses);
}

#[test]
fn a_pod_reaches_an_endpoint_on_another_node() {
    let Some(mut world) = World::new(2) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let server = world.lab.pod(2).unwrap();
    reach(&mut world, &client, &server, 2, client.addresses);
}

// B057
#[test]
fn a_pod_reaches_itself() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let pod = world.lab.pod(1).unwrap();
    // Its own address as a source would be answered inside of the pod, and never come back.
    let vip = service().addresses;
    reach(&mut world, &pod, &pod, 1, vip);
}

#[test]
fn a_pod_reaches_its_own_node_as_an_endpoint() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let node = world.lab.node(1);
    reach(&mut world, &client, &node, 1, client.addresses);
}

#[test]
fn a_pod_reaches_another_node_as_an_endpoint() {
    let Some(mut world) = World::new(2) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let other = world.lab.node(2);
    // The CNI hides pods behind their node from everybody who is no pod.
    let seen = world.lab.node(1).addresses;
    reach(&mut world, &client, &other, 2, seen);
}

#[test]
fn an_outside_client_that_is_routed_to_a_node_reaches_an_endpoint_there() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let outside = world.lab.outside().clone();
    let server = world.lab.pod(1).unwrap();
    reach(&mut world, &outside, &server, 1, outside.addresses);
}

#[test]
fn a_pod_reaches_every_endpoint_of_a_mixed_service() {
    let Some(mut world) = World::new(2) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let hosts = [
        client.clone(),
        world.lab.pod(1).unwrap(),
        world.lab.pod(2).unwrap(),
        world.lab.node(1),
        world.lab.node(2),
    ];
    let _servers: Vec<_> = hosts.iter().map(serve).collect();
    let places = [1, 1, 2, 1, 2].map(|number| world.lab.node(number));
    let endpoints = hosts
        .iter()
        .zip(&places)
        .map(|(host, node)| Endpoint::new(host, node));
    let service = service().with(endpoints);
    world.start_with(&service);
    for family in Family::ALL {
        let target = service.target(family);
        for host in &hosts {
            // 200 draws miss one of five once in 10^19 times.
            let found = (0..200).any(|_| {
                let mut open = Connection::open(&client, target).unwrap();
                open.echo("hello").unwrap();
                let found = open.answer().name == host.name;
                open.close().unwrap();
                found
            });
            assert!(found, "{} was never drawn over {family}", host.name);
        }
    }
    world.assert_unnoticed(&[&service]);
}

/// The checksum of a packet that a pod sends is often computed only by the last device, after
/// translation; or by the pod itself, before it.
#[test]
fn checksums_are_right_whoever_computes_them() {
    for (by_pods, by_nodes) in [(true, false), (false, true), (true, true)] {
        let Some(mut world) = World::new(2) else {
            return;
        };
        let client = world.lab.pod(1).unwrap();
        let servers = [world.lab.pod(1).unwrap(), world.lab.pod(2).unwrap()];
        let nodes = [world.lab.node(1), world.lab.node(2)];
        for pod in [&client, &servers[0], &servers[1]]
            .into_iter()
            .filter(|_| by_pods)
        {
            world.lab.without_offloads(&pod.namespace).unwrap();
        }
        for node in nodes.iter().filter(|_| by_nodes) {
            world.lab.without_offloads(&node.namespace).unwrap();
        }
        let _servers: Vec<_> = servers.iter().map(serve).collect();
        let endpoints = servers
            .iter()
            .zip(&nodes)
            .map(|(pod, node)| Endpoint::new(pod, node));
        let service = service().with(endpoints);
        world.start_with(&service);
        for family in Family::ALL {
            let target = service.target(family);
            // Each of the two is missed once in 2^20 times.
            for round in 0..20 {
                let what = format!("{family}, pods {by_pods}, nodes {by_nodes}, round {round}");
                let mut open = Connection::open(&client, target).expect(&what);
                open.upload(100_000, round).expect(&what);
                open.download(100_000, round).expect(&what);
                open.close().expect(&what);
                let flow = Datagrams::open(&client, target).expect(&what);
                flow.ask_with(&[0x5a; 777]).expect(&what);
            }
        }
        world.assert_unnoticed(&[&service]);
    }
}

fn service() -> Service {
    Service::new("web", 10)
}

/// The only endpoint of a Service is reached in every way, sees the client as `seen`, and nothing
/// on the nodes notices.
fn reach(world: &mut World, client: &Host, endpoint: &Host, node: u8, seen: Addresses) {
    let server = serve(endpoint);
    let service = service().with([Endpoint::new(endpoint, &world.lab.node(node))]);
    world.start_with(&service);
    let connections = exchange(client, &service, endpoint, seen).unwrap();
    assert_eq!(connections, server.accepted());
    world.assert_unnoticed(&[&service]);
}
