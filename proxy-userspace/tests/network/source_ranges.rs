//! Load balancers that only some clients may use.

use std::net::SocketAddr;

use proxy_common::abi::Counter;
use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::{Addresses, Family};

use super::scene::{CLUSTER_CIDR, NODE_PORT, Scene, answers, names, new_flow};
use super::silence::assert_dropped;
use super::world::wait_until;

/// The load balancer of a family.
fn balancer(family: Family) -> SocketAddr {
    (Addresses::service(20).of(family), 80).into()
}

/// Pods are no exception, as long as they are not listed.
// B084, B085
#[test]
fn source_ranges_keep_everybody_else_from_the_load_balancer_and_from_nothing_more() {
    for policy in ["Cluster", "Local"] {
        let external = Addresses::service(21);
        let Some(scene) = Scene::new(CLUSTER_CIDR, |service| {
            let policy = format!("externalTrafficPolicy: {policy}");
            let external = format!("externalIPs: [\"{}\", \"{}\"]", external.v4, external.v6);
            let ranges = "loadBalancerSourceRanges: [192.0.2.100/32, \"2001:db8::64/128\"]";
            let service = service.at_node_port(NODE_PORT).balanced(20);
            service
                .specified(&policy)
                .specified(&external)
                .specified(ranges)
        }) else {
            return;
        };
        let client = scene.client.clone();
        for family in Family::ALL {
            for answers in answers(&scene.outside(), balancer(family)) {
                let seen = names(&answers).len();
                assert_eq!(if policy == "Local" { 1 } else { 2 }, seen);
            }
            for target in [
                scene.service.target(family),
                scene.door(1, family),
                (external.of(family), 80).into(),
            ] {
                for answers in answers(&client, target) {
                    assert_eq!(scene.all(), names(&answers));
                }
            }
        }
        let node = scene.world.lab.node(1);
        let targets = Family::ALL.map(balancer);
        assert_dropped(&node, Counter::DropSourceRange, &[&client], &targets);
    }
}

/// The ranges of the other family are nothing to go by.
#[test]
fn source_ranges_of_one_family_leave_the_other_open_and_follow_changes() {
    let listed = |range: &str| format!("loadBalancerSourceRanges: [{range}]");
    let Some(mut scene) = Scene::new("", |service| {
        service.balanced(20).specified(&listed("10.244.1.0/24"))
    }) else {
        return;
    };
    let [pod, outside] = [scene.client.clone(), scene.outside()];
    let node = scene.world.lab.node(1);
    let kept_out = |client, family| {
        let counter = Counter::DropSourceRange;
        assert_dropped(&node, counter, &[client], &[balancer(family)]);
    };
    let let_in = |client, family| {
        Connection::open(client, balancer(family)).unwrap();
        new_flow(client, balancer(family));
    };
    let_in(&pod, Family::V4);
    kept_out(&outside, Family::V4);
    for client in [&pod, &outside] {
        let_in(client, Family::V6);
    }

    // Whoever is in stays in, and the next one is judged anew.
    let mut open = Connection::open(&pod, balancer(Family::V4)).unwrap();
    let flow = Datagrams::open(&pod, balancer(Family::V4)).unwrap();
    flow.ask().unwrap();
    scene.service.spec = vec![listed("192.0.2.100/32")];
    scene.world.manifests.write_service(&scene.service).unwrap();
    wait_until("the other one is let in", || {
        Connection::open(&outside, balancer(Family::V4)).is_ok()
    });
    kept_out(&pod, Family::V4);
    open.echo("still there?").unwrap();
    open.upload(100_000, 1).unwrap();
    flow.ask().unwrap();
}
