//! Services that are changed while they are in use.

use std::thread;
use std::time::Duration;

use xtask::lab::client::Connection;
use xtask::lab::{Addresses, Family, Host};

use super::scene::{NODE_PORT, Scene, new_flow};
use super::traffic::during;
use super::world::wait_until;

/// Waits until an outsider is confined to the first node and seen as itself, or neither.
fn wait_until_confined(scene: &Scene, outside: &Host, is_confined: bool) {
    let node = scene.world.lab.node(1);
    let seen = [&node, outside][usize::from(is_confined)].addresses;
    for family in Family::ALL {
        let ask = || {
            let door = scene.door(1, family);
            let open = Connection::open(outside, door).unwrap();
            [open.answer().clone(), new_flow(outside, door)]
        };
        wait_until("the policy is in force", || {
            ask()
                .iter()
                .all(|answer| answer.peer.ip() == seen.of(family))
        });
        for _ in 0..5 {
            for answer in ask() {
                assert_eq!(seen.of(family), answer.peer.ip());
                assert!(!is_confined || answer.name == scene.pods[0].name);
            }
        }
    }
}

// B166
#[test]
fn the_external_policy_of_a_live_service_can_be_changed_and_nobody_inside_notices() {
    let Some(scene) = Scene::new("", |service| service.at_node_port(NODE_PORT)) else {
        return;
    };
    let client = scene.client.clone();
    let outside = scene.outside();
    let mut held: Vec<_> = Family::ALL
        .iter()
        .map(|family| Connection::open(&outside, scene.door(1, *family)).unwrap())
        .collect();
    let ((), tally) = during(
        &client,
        &scene.service,
        |_| true,
        |_| {
            for round in 0..6 {
                let policy = ["Local", "Cluster"][round % 2];
                let service = scene.service.clone();
                let service = service.specified(&format!("externalTrafficPolicy: {policy}"));
                scene.world.manifests.write_service(&service).unwrap();
                wait_until_confined(&scene, &outside, policy == "Local");
                // Whoever was masqueraded still is.
                for open in &mut held {
                    open.echo("still there?").unwrap();
                }
            }
        },
    );
    assert!(tally.connections.into_inner() > 10);
    scene.assert_unnoticed(&[]);
}

/// From a cluster IP to a node port to a load balancer and back.
#[test]
fn the_type_of_a_live_service_can_be_changed_and_nobody_inside_notices() {
    let Some(scene) = Scene::new("", |service| service) else {
        return;
    };
    let client = scene.client.clone();
    let outside = scene.outside();
    let plain = scene.service.clone();
    let node_port = plain.clone().at_node_port(NODE_PORT);
    let exposed = node_port.clone().balanced(20);
    let other_port = plain.clone().at_node_port(NODE_PORT + 1).balanced(20);
    let balancer = Family::ALL.map(|family| Addresses::service(20).of(family));
    let ((), tally) = during(
        &client,
        &scene.service,
        |_| true,
        |_| {
            for service in [
                &node_port,
                &exposed,
                &other_port,
                &exposed,
                &node_port,
                &plain,
            ] {
                scene.world.manifests.write_service(service).unwrap();
                let mut doors = Vec::new();
                for (family, balancer) in Family::ALL.into_iter().zip(balancer) {
                    let node = scene.door(1, family).ip();
                    doors.extend(service.node_port.map(|port| (node, port)));
                    doors.extend(service.balancer.map(|_| (balancer, 80)));
                }
                wait_until("the controller has it", || {
                    let known = scene.world.json(&["services"]).to_string();
                    let has = |text: String| known.contains(&text);
                    let ports = [NODE_PORT, NODE_PORT + 1].iter().all(|port| {
                        has(format!("{}:{port}", scene.door(1, Family::V4).ip()))
                            == (service.node_port == Some(*port))
                    });
                    ports && has(format!("{}:80", balancer[0])) == service.balancer.is_some()
                });
                for door in doors {
                    Connection::open(&outside, door.into()).unwrap();
                    new_flow(&outside, door.into());
                }
            }
        },
    );
    assert!(tally.connections.into_inner() > 10);
    scene.assert_unnoticed(&balancer);
}

/// Whoever writes manifests may write the same again and again.
// B165
#[test]
fn slices_that_are_written_again_as_they_were_change_no_table() {
    let Some(scene) = Scene::new("", |service| service) else {
        return;
    };
    let change = || scene.world.json(&["status"])["tables"]["lastChange"].clone();
    // Another age of it would be another change.
    wait_until("the last change is two seconds old", || {
        change()["secondsAgo"].as_u64() >= Some(2)
    });
    for _ in 0..20 {
        scene.world.manifests.write_service(&scene.service).unwrap();
        thread::sleep(Duration::from_millis(50));
    }
    // What is written after them is read after them.
    scene.world.manifests.write("broken", "kind: [").unwrap();
    wait_until("the last file has been read", || {
        scene.world.look(&["status"]).text.contains("broken.yaml")
    });
    assert!(change()["secondsAgo"].as_u64() >= Some(2), "{}", change());
}
