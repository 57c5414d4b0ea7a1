//! Services at addresses that clients outside use: node ports, load balancers, external IPs.

use std::net::SocketAddr;

use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::{Addresses, Family};

use super::scene::{NODE_PORT, Scene, answers, names};
use super::world::{serve, wait_until};

/// The Service has a node port.
fn scene(policy: &str) -> Option<Scene> {
    Scene::new("", |service| {
        let policy = format!("externalTrafficPolicy: {policy}");
        service.at_node_port(NODE_PORT).specified(&policy)
    })
}

#[test]
fn a_node_port_leads_to_all_endpoints_and_they_see_a_node() {
    let Some(scene) = scene("Cluster") else {
        return;
    };
    let outside = scene.world.lab.outside().clone();
    let all: Vec<_> = scene.pods.iter().map(|pod| pod.name.as_str()).collect();
    for family in Family::ALL {
        for node in [1, 2] {
            for answers in answers(&outside, scene.door(node, family)) {
                assert_eq!(all, names(&answers), "{family}, node {node}");
                scene.assert_masqueraded(&answers, node);
            }
        }
    }
    scene.assert_unnoticed(&[]);
}

// B067
#[test]
fn with_the_local_policy_a_node_port_leads_to_the_nodes_own_endpoints_and_they_see_the_client() {
    let Some(scene) = scene("Local") else {
        return;
    };
    let outside = scene.world.lab.outside().clone();
    for family in Family::ALL {
        for (node, pod) in [1, 2].into_iter().zip(&scene.pods) {
            for answers in answers(&outside, scene.door(node, family)) {
                assert_eq!([pod.name.as_str()], *names(&answers), "{family}");
                let own = outside.addresses.of(family);
                assert!(answers.iter().all(|answer| answer.peer.ip() == own));
            }
        }
    }
    scene.assert_unnoticed(&[]);
}

#[test]
fn a_pod_reaches_the_node_port_of_its_own_node() {
    let Some(scene) = scene("Cluster") else {
        return;
    };
    let client = scene.client.clone();
    let all: Vec<_> = scene.pods.iter().map(|pod| pod.name.as_str()).collect();
    for family in Family::ALL {
        for answers in answers(&client, scene.door(1, family)) {
            assert_eq!(all, names(&answers), "{family}");
            scene.assert_masqueraded(&answers, 1);
        }
    }
    // An endpoint that gets itself is no stranger to itself.
    for family in Family::ALL {
        for answers in answers(&scene.pods[0], scene.door(1, family)) {
            assert_eq!(all, names(&answers), "{family}");
            scene.assert_masqueraded(&answers, 1);
        }
    }
    scene.assert_unnoticed(&[]);
}

#[test]
fn answers_to_the_node_itself_are_its_own_even_at_a_node_port() {
    let Some(scene) = scene("Cluster") else {
        return;
    };
    let outside = scene.world.lab.outside().clone();
    let _server = serve(&outside);
    let node = scene.world.lab.node(1);
    for family in Family::ALL {
        let target: SocketAddr = (outside.addresses.of(family), 8080).into();
        let from = scene.door(1, family);
        let mut open = Connection::open_from(&node, from, target).unwrap();
        open.echo("hello").unwrap();
        assert_eq!(
            (outside.name.as_str(), from),
            (open.answer().name.as_str(), open.answer().peer)
        );
        open.upload(100_000, 1).unwrap();
        open.download(100_000, 2).unwrap();
        open.close().unwrap();
        let flow = Datagrams::open_from(&node, from, target).unwrap();
        for _ in 0..3 {
            let answer = flow.ask().unwrap();
            assert_eq!(
                (outside.name.as_str(), from),
                (answer.name.as_str(), answer.peer)
            );
        }
        drop(flow);
        // And the node port is served all the same.
        for answers in answers(&outside, from) {
            assert_eq!(2, names(&answers).len());
        }
    }
    scene.world.assert_unnoticed(&[&scene.service]);
}

// B067, B099
#[test]
fn load_balancer_addresses_and_external_ips_lead_as_the_external_policy_says() {
    for policy in ["Cluster", "Local"] {
        // Of the range that is routed to the first node.
        let [balancer, external] = [20, 21].map(Addresses::service);
        let Some(scene) = Scene::new("", |service| {
            let policy = format!("externalTrafficPolicy: {policy}");
            let external = format!("externalIPs: [\"{}\", \"{}\"]", external.v4, external.v6);
            let service = service.at_node_port(NODE_PORT).balanced(20);
            service.specified(&policy).specified(&external)
        }) else {
            return;
        };
        let vips = [balancer, external]
            .map(|own| Family::ALL.map(|family| own.of(family)))
            .concat();
        let outside = scene.world.lab.outside().clone();
        for family in Family::ALL {
            for vip in [balancer, external] {
                for answers in answers(&outside, (vip.of(family), 80).into()) {
                    if policy == "Cluster" {
                        assert_eq!(2, names(&answers).len());
                        scene.assert_masqueraded(&answers, 1);
                    } else {
                        assert_eq!([scene.pods[0].name.as_str()], *names(&answers));
                        let own = outside.addresses.of(family);
                        assert!(answers.iter().all(|answer| answer.peer.ip() == own));
                    }
                }
            }
        }
        scene.assert_unnoticed(&vips);
    }
}

/// What is sent to a Service that nobody serves is refused, and at once.
// B081, B153
#[test]
fn a_node_port_without_endpoints_is_refused() {
    let Some(scene) = scene("Cluster") else {
        return;
    };
    // The kernel counts the redirects that it has sent to a client against its ICMP errors, and it
    // sends some: half of the endpoints are where the client could go by itself.
    let node = scene.world.lab.node(1).namespace;
    let limits = ["ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit"];
    node.set(&limits.map(|name| (name.to_owned(), "0")))
        .unwrap();
    let clients = [scene.world.lab.outside().clone(), scene.client.clone()];
    for family in Family::ALL {
        let target = scene.door(1, family);
        drop(answers(&clients[0], target));
        let slice = scene.service.slice_name(family);
        scene.world.manifests.remove(&slice).unwrap();
        for client in &clients {
            // The first that fails is refused: nobody has to wait.
            let mut refused = Vec::new();
            wait_until("connections fail", || {
                refused.extend(Connection::open(client, target).err());
                !refused.is_empty()
            });
            wait_until("datagrams fail", || {
                let flow = Datagrams::open(client, target).unwrap();
                refused.extend(flow.ask().err());
                refused.len() > 1
            });
            for error in refused {
                assert!(
                    format!("{error:#}").contains("Connection refused"),
                    "{}: {error:#}",
                    client.name
                );
            }
        }
    }
    scene.assert_unnoticed(&[]);
}
