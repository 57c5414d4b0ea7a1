//! Services and endpoints that go and come back, or come back as something else.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use proxy_common::lottery::{Random as _, XorShift};
use proxy_common::net::Proto;
use xtask::lab::client::Connection;
use xtask::lab::manifest::Service;
use xtask::lab::{Family, Host};

use super::marks::{refused, refused_datagram, without_limits};
use super::pinned::{Live, Pinned};
use super::scene::{NODE_PORT, new_flow};
use super::world::{World, wait_until};

const PROTOS: [Proto; 2] = [Proto::TCP, Proto::UDP];

/// Fails unless new connections and flows are answered.
fn assert_served(client: &Host, service: &Service) {
    for family in Family::ALL {
        let target = service.target(family);
        let mut open = Connection::open(client, target).unwrap();
        open.echo("hello").unwrap();
        open.reset().unwrap();
        new_flow(client, target);
    }
}

/// Waits until the tables have exactly these endpoints, for both protocols and families.
pub(super) fn wait_for_endpoints(live: &Live, service: &Service) {
    wait_until("the tables have the endpoints of the slices", || {
        Family::ALL.into_iter().all(|family| {
            let expected: BTreeSet<IpAddr> = service
                .endpoints
                .iter()
                .map(|endpoint| endpoint.addresses.of(family))
                .collect();
            PROTOS.into_iter().all(|proto| {
                live.endpoints(service.target(family), proto).as_ref() == Some(&expected)
            })
        })
    });
}

/// Sooner and later than whatever is cleaned up after it.
// B148
#[test]
fn a_service_that_is_deleted_and_made_again_is_served_each_time() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    let service = service.at_node_port(NODE_PORT);
    world.start_with(&service);
    let live = Live::open(&world.lab.node(1));
    let mut random = XorShift(0x5eed_0148);
    for round in 0..40 {
        let parts = ["service-web", "slice-web-ipv4", "slice-web-ipv6"];
        for (part, nth) in parts.iter().zip(0..) {
            // All of it, the Service alone, or the endpoints alone.
            if round % 3 == 0 || (round % 3 == 1) == (nth == 0) {
                world.manifests.remove(part).unwrap();
            }
        }
        thread::sleep(Duration::from_millis((random.draw() % 100).into()));
        world.manifests.write_service(&service).unwrap();
        wait_for_endpoints(&live, &service);
        // It answers between changes: the last one is complete.
        assert_eq!(0, world.look(&["status"]).code);
        assert_served(&client, &service);
    }
    let log = world.log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    world.assert_unnoticed(&[&service]);
}

// B150
#[test]
fn an_endpoint_that_leaves_and_returns_all_the_time_is_where_the_slices_say() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    let full = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&full);
    let node = world.lab.node(1);
    let live = Live::open(&node);
    let mut less = full.clone();
    less.endpoints.remove(0);
    let mut held = Vec::new();
    for _ in 0..50 {
        for family in Family::ALL {
            held.push(Connection::open(&client, full.target(family)).unwrap());
        }
        for (service, may_be_first) in [(&less, false), (&full, true)] {
            world.manifests.write_service(service).unwrap();
            wait_for_endpoints(&live, service);
            assert_eq!(0, world.look(&["status"]).code);
            for family in Family::ALL {
                let target = service.target(family);
                let name = Connection::open(&client, target)
                    .unwrap()
                    .answer()
                    .name
                    .clone();
                let flow = new_flow(&client, target);
                for name in [name, flow.name] {
                    assert!(may_be_first || name == pods[1].name, "{name}");
                }
            }
        }
    }
    assert!(held.iter().any(|open| open.answer().name == pods[0].name));
    for open in &mut held {
        open.echo("still there?").unwrap();
    }
    // Those of now, and no more: each of two endpoints for two protocols in two families.
    let pinned = Pinned::read(&node);
    let all = pinned.frontends();
    assert_eq!(4, all.len());
    assert!(all.values().all(|(_, endpoints)| endpoints.len() == 2));
    world.assert_unnoticed(&[&full]);
}

/// Somebody has taken an entry out of the tables.
// B154
#[test]
fn deleting_what_is_gone_already_is_no_error() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 1);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let mut live = Live::open(&world.lab.node(1));
    for family in Family::ALL {
        for proto in PROTOS {
            assert!(live.take_away(service.target(family), proto));
        }
    }
    world.manifests.remove("service-web").unwrap();
    wait_until("it is not served any more", || {
        world.json(&["status"])["tables"]["services"] == 0
    });
    assert_eq!(0, world.look(&["status"]).code, "{}", world.log());
    world.manifests.write_service(&service).unwrap();
    wait_for_endpoints(&live, &service);
    assert_eq!(0, world.look(&["status"]).code, "{}", world.log());
    assert_served(&client, &service);
}

/// The port's name stays, and so do connections to the old one.
// B155
#[test]
fn a_service_whose_port_is_another_one_is_served_there_and_nowhere_else() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    // In this mode whoever asks for a port that is none is told so.
    world.configure("mode: nftables");
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    let mut service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let node = world.lab.node(1);
    without_limits(&node);
    let live = Live::open(&node);
    let mut held = Vec::new();
    for port in [8080, 80, 81] {
        for family in Family::ALL {
            held.push(Connection::open(&client, service.target(family)).unwrap());
        }
        let old = service.clone();
        service.port = port;
        world.manifests.write_service(&service).unwrap();
        wait_for_endpoints(&live, &service);
        assert_eq!(0, world.look(&["status"]).code, "{}", world.log());
        assert_served(&client, &service);
        wait_until("the old port is closed", || {
            let mut all = Family::ALL.into_iter();
            all.all(|family| live.endpoints(old.target(family), Proto::TCP).is_none())
        });
        for family in Family::ALL {
            refused(&client, old.target(family));
            refused_datagram(&client, old.target(family));
        }
        for open in &mut held {
            open.echo("still there?").unwrap();
        }
    }
    assert_eq!(0, world.look(&["status"]).code, "{}", world.log());
    world.assert_unnoticed(&[&service]);
}
