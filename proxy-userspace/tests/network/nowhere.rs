//! Services that nobody serves.

use std::net::SocketAddr;
use std::thread;

use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::{Addresses, Family};

use super::marks::{refused, refused_datagram, without_limits};
use super::scene::{NODE_PORT, Scene};
use super::world::wait_until;

/// In both modes, and with either policy: nobody has an endpoint.
// B079, B081
#[test]
fn what_nobody_serves_is_refused_at_every_address() {
    for (mode, policy) in [("iptables", "Local"), ("nftables", "Cluster")] {
        let external = Addresses::service(21);
        let Some(scene) = Scene::new(&format!("mode: {mode}"), |mut service| {
            service.endpoints.clear();
            let external = format!("externalIPs: [\"{}\", \"{}\"]", external.v4, external.v6);
            let policies = ["internal", "external"];
            let policies = policies.map(|of| format!("{of}TrafficPolicy: {policy}"));
            service.spec.extend(policies);
            let service = service.at_node_port(NODE_PORT).balanced(20);
            service.specified(&external)
        }) else {
            return;
        };
        without_limits(&scene.world.lab.node(1));
        let clients = [scene.client.clone(), scene.outside()];
        let balancer = Addresses::service(20);
        let targets = Family::ALL.map(|family| {
            let vips = [balancer, external].map(|own| SocketAddr::new(own.of(family), 80));
            let own = scene.service.target(family);
            [own, scene.door(1, family), vips[0], vips[1]]
        });
        // All at once: between two hosts of one machine the answer to the first SYN may come while
        // the client still holds its socket, and is lost.
        thread::scope(|scope| {
            for (client, target) in clients
                .iter()
                .flat_map(|client| targets.concat().into_iter().map(move |at| (client, at)))
            {
                scope.spawn(move || refused(client, target));
                scope.spawn(move || refused_datagram(client, target));
            }
        });
        scene.assert_unused();
    }
}

/// Whether the slice is emptied or deleted, and whoever is in the middle of something stays.
// B153
#[test]
fn a_service_that_has_lost_all_endpoints_is_refused_at_once() {
    let Some(scene) = Scene::new("", |service| service) else {
        return;
    };
    without_limits(&scene.world.lab.node(1));
    let client = scene.client.clone();
    let full = scene.service.clone();
    let mut empty = full.clone();
    empty.endpoints.clear();
    for family in Family::ALL {
        let target = full.target(family);
        for is_deleted in [false, true] {
            let mut open = Connection::open(&client, target).unwrap();
            let manifests = &scene.world.manifests;
            if is_deleted {
                manifests.remove(&full.slice_name(family)).unwrap();
            } else {
                manifests.write_slice(&empty, family).unwrap();
            }
            // The first that fails is refused.
            let mut refused = Vec::new();
            wait_until("connections fail", || {
                refused.extend(Connection::open(&client, target).err());
                !refused.is_empty()
            });
            refused.extend(Datagrams::open(&client, target).unwrap().ask().err());
            assert_eq!(2, refused.len());
            for error in refused {
                assert!(
                    format!("{error:#}").contains("Connection refused"),
                    "{error:#}"
                );
            }
            open.echo("still there?").unwrap();
            open.upload(100_000, 1).unwrap();
            manifests.write_slice(&full, family).unwrap();
            wait_until("it is served again", || {
                Connection::open(&client, target).is_ok()
            });
        }
    }
    scene.assert_unnoticed(&[]);
}
