//! Traffic policies: whom they confine to endpoints of the node, and whom they do not.

use std::net::SocketAddr;

use proxy_common::abi::Counter;
use xtask::lab::client::Connection;
use xtask::lab::manifest::Service;
use xtask::lab::{Addresses, Family};

use super::scene::{CLUSTER_CIDR, NODE_PORT, Scene, answers, assert_seen_as, names, new_flow};
use super::silence::assert_dropped;
use super::world::wait_until;

const LOCAL: &str = "externalTrafficPolicy: Local";
const INTERNALLY_LOCAL: &str = "internalTrafficPolicy: Local";

/// At a node port, a load balancer and an external IP, outsiders confined to the node.
fn at_all_addresses(service: Service) -> Service {
    let external = Addresses::service(21);
    let external = format!("externalIPs: [\"{}\", \"{}\"]", external.v4, external.v6);
    let service = service.at_node_port(NODE_PORT).balanced(20);
    service.specified(&external).specified(LOCAL)
}

/// What clients outside may use of the first node, in both families.
fn doors(scene: &Scene) -> Vec<SocketAddr> {
    let of = |family| {
        let vips = [20, 21].map(Addresses::service);
        let vips = vips.map(|own| SocketAddr::new(own.of(family), 80));
        [scene.door(1, family), vips[0], vips[1]]
    };
    Family::ALL.map(of).concat()
}

#[test]
fn an_outsider_is_dropped_where_the_node_has_no_endpoint_and_the_policy_is_local() {
    let Some(scene) = Scene::with_endpoint_on(2, "", at_all_addresses) else {
        return;
    };
    let node = scene.world.lab.node(1);
    let counter = Counter::DropNoEndpoint;
    assert_dropped(&node, counter, &[&scene.outside()], &doors(&scene));
    scene.assert_unused();
    // The cluster IP is none of this policy's business.
    let client = scene.client.clone();
    for family in Family::ALL {
        for answers in answers(&client, scene.service.target(family)) {
            assert_eq!([scene.pods[1].name.as_str()], *names(&answers));
        }
    }
}

// B074, B080
#[test]
fn a_pod_is_not_confined_by_the_external_policy_and_is_seen_as_itself() {
    let Some(mut scene) = Scene::new(CLUSTER_CIDR, at_all_addresses) else {
        return;
    };
    let client = scene.client.clone();
    for target in doors(&scene) {
        for answers in answers(&client, target) {
            assert_eq!(scene.all(), names(&answers), "{target}");
            assert_seen_as(&client, &answers);
        }
    }
    // Nor where the node has no endpoint.
    scene.service.endpoints.remove(0);
    scene.world.manifests.write_service(&scene.service).unwrap();
    for target in doors(&scene) {
        let connect = || Connection::open(&client, target).unwrap().answer().clone();
        let mut streak = 0;
        wait_until("the other node's endpoint is the only one", || {
            let is_other = connect().name == scene.pods[1].name;
            streak = if is_other { streak + 1 } else { 0 };
            streak == 20
        });
        let flow = new_flow(&client, target);
        assert_eq!(scene.pods[1].name, flow.name);
        assert_seen_as(&client, &[connect(), flow]);
    }
    let vips = doors(&scene).into_iter().filter(|door| door.port() == 80);
    scene.assert_unnoticed(&vips.map(|door| door.ip()).collect::<Vec<_>>());
}

// Without a detector nobody can tell who is a pod.
#[test]
fn a_pod_is_an_outsider_where_nothing_detects_pods() {
    let Some(scene) = Scene::with_endpoint_on(2, "", at_all_addresses) else {
        return;
    };
    let client = scene.client.clone();
    let node = scene.world.lab.node(1);
    assert_dropped(&node, Counter::DropNoEndpoint, &[&client], &doors(&scene));
    scene.assert_unused();
}

// B079, first half
#[test]
fn the_internal_policy_confines_everybody_at_the_cluster_ip_and_nobody_elsewhere() {
    for config in ["", CLUSTER_CIDR] {
        let Some(scene) = Scene::new(config, |service| {
            let service = service.at_node_port(NODE_PORT).balanced(20);
            service.specified(INTERNALLY_LOCAL)
        }) else {
            return;
        };
        let client = scene.client.clone();
        for family in Family::ALL {
            for client in [&client, &scene.outside()] {
                for answers in answers(client, scene.service.target(family)) {
                    assert_eq!([scene.pods[0].name.as_str()], *names(&answers));
                }
                let balancer = Addresses::service(20).of(family);
                for target in [scene.door(1, family), (balancer, 80).into()] {
                    for answers in answers(client, target) {
                        assert_eq!(scene.all(), names(&answers));
                    }
                }
            }
        }
    }
}

// B079, second half
#[test]
fn the_internal_policy_drops_where_the_node_has_no_endpoint() {
    let Some(mut scene) = Scene::with_endpoint_on(2, "", |service| {
        service.at_node_port(NODE_PORT).specified(INTERNALLY_LOCAL)
    }) else {
        return;
    };
    let client = scene.client.clone();
    let neighbour = scene.world.lab.pod(2).unwrap();
    let node = scene.world.lab.node(1);
    let targets = Family::ALL.map(|family| scene.service.target(family));
    let clients = [&client, &scene.outside()];
    assert_dropped(&node, Counter::DropNoEndpoint, &clients, &targets);
    scene.assert_unused();
    for family in Family::ALL {
        for (client, target) in [
            (&client, scene.door(1, family)),
            (&neighbour, scene.service.target(family)),
        ] {
            for answers in answers(client, target) {
                assert_eq!([scene.pods[1].name.as_str()], *names(&answers));
            }
        }
    }
}
