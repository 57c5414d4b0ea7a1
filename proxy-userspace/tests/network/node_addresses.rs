//! Node ports at the addresses that a node has.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use xtask::lab::client::Connection;
use xtask::lab::manifest::Service;
use xtask::lab::{Addresses, Family, Host};

use super::marks::{refused, without_limits};
use super::scene::{NODE_PORT, Scene, new_flow};
use super::world::{World, ip, wait_until};

/// One more address of the node that is on the device of the others, from the range that is
/// routed to it.
const fn more(family: Family) -> IpAddr {
    Addresses::service(30).of(family)
}

fn add(node: &Host, family: Family) {
    let (address, tail) = match family {
        Family::V4 => (format!("{}/32", more(family)), ""),
        Family::V6 => (format!("{}/128", more(family)), " nodad"),
    };
    ip(node, &[format!("address add {address} dev eth0{tail}")]);
}

fn take_away(node: &Host, family: Family) {
    let length = match family {
        Family::V4 => 32,
        Family::V6 => 128,
    };
    ip(
        node,
        &[format!("address del {}/{length} dev eth0", more(family))],
    );
}

/// Nobody who uses one address notices that another comes and goes.
// B090
#[test]
fn a_node_port_is_at_every_address_that_comes_and_goes_and_the_others_stay() {
    let Some(scene) = Scene::with_endpoint_on(1, "", |service| service.at_node_port(NODE_PORT))
    else {
        return;
    };
    let node = scene.world.lab.node(1);
    let outside = scene.outside();
    let is_known = |family| {
        let known = scene.world.look(&["services", "-o", "json"]).text;
        known.contains(&more(family).to_string())
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let lanes = Family::ALL.map(|family| {
            let door = scene.door(1, family);
            let (outside, stop) = (&outside, &stop);
            scope.spawn(move || {
                let mut held = Connection::open(outside, door).unwrap();
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    Connection::open(outside, door).unwrap().reset().unwrap();
                    new_flow(outside, door);
                    held.echo("still there?").unwrap();
                    count += 1;
                }
                count
            })
        });
        for round in 0..20 {
            let family = Family::ALL[round % 2];
            add(&node, family);
            let door = SocketAddr::new(more(family), NODE_PORT);
            wait_until("it is known", || is_known(family));
            Connection::open(&outside, door).unwrap().reset().unwrap();
            new_flow(&outside, door);
            take_away(&node, family);
            wait_until("it is not known any more", || !is_known(family));
            assert!(!lanes.iter().any(thread::ScopedJoinHandle::is_finished));
        }
        stop.store(true, Ordering::Relaxed);
        for lane in lanes {
            assert!(lane.join().unwrap() > 10);
        }
    });
    scene.assert_unnoticed(&[]);
}

/// What else the node has on such an address is its own.
// B091, B092
#[test]
fn a_node_port_is_at_the_configured_addresses_only() {
    for (config, is_open) in [
        ("", true),
        ("nodePortAddresses: [primary]", false),
        (
            "nodePortAddresses: [192.0.2.0/24, \"2001:db8::/64\"]",
            false,
        ),
        // Nothing of one family leaves all of it open.
        ("nodePortAddresses: [10.96.0.0/16]", true),
    ] {
        let Some(mut world) = World::new(1) else {
            return;
        };
        world.configure(config);
        let node = world.lab.node(1);
        for family in Family::ALL {
            add(&node, family);
        }
        let (pods, _servers) = world.servers(1, 1);
        let service = Service::new("web", 10).with(world.endpoints(1, &pods));
        world.start_with(&service.at_node_port(NODE_PORT));
        without_limits(&node);
        let outside = world.lab.outside();
        let is_other_only = config.contains("10.96");
        for family in Family::ALL {
            for (address, is_open) in [
                (more(family), is_open),
                (
                    node.addresses.of(family),
                    !is_other_only || family == Family::V6,
                ),
            ] {
                let door = SocketAddr::new(address, NODE_PORT);
                if is_open {
                    Connection::open(outside, door).unwrap();
                    new_flow(outside, door);
                } else {
                    refused(outside, door);
                }
            }
        }
    }
}
