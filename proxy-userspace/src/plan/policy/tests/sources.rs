//! Who may use the addresses of a load balancer.

use super::world::{BALANCER, CLUSTER_IP, EXTERNAL, PRIMARY, World, addresses, config};
use crate::config::Mode;

const MODES: [Mode; 2] = [Mode::Iptables, Mode::Nftables];

fn world(mode: Mode, ranges: &[&str]) -> World {
    let mut world = World::new(config(mode)).with_endpoints(&["10.1.0.1@one"]);
    world.service.source_ranges = ranges.iter().map(|text| text.parse().unwrap()).collect();
    world
}

#[test]
fn ranges_hold_for_all_origins_and_for_the_load_balancer_alone() {
    for mode in MODES {
        // The host part of a range does not matter.
        let allowed = world(mode, &["203.0.113.77/24"]);
        assert_eq!("10.1.0.1*", allowed.send("client", BALANCER, 80));
        for from in ["pod", "host", "198.18.0.1"] {
            assert_eq!("drop", allowed.send(from, BALANCER, 80), "{mode:?} {from}");
            for (to, port) in [(EXTERNAL, 80), (PRIMARY, 30080)] {
                assert_eq!("10.1.0.1*", allowed.send(from, to, port), "{mode:?} {from}");
            }
        }
        assert_eq!("10.1.0.1", allowed.send("pod", CLUSTER_IP, 80));
        let everybody = world(mode, &["0.0.0.0/0"]);
        for from in ["pod", "host", "client"] {
            assert_eq!("10.1.0.1*", everybody.send(from, BALANCER, 80));
        }
    }
}

#[test]
fn ranges_of_the_other_family_restrict_nobody() {
    for mode in MODES {
        let other = world(mode, &["2001:db8::/32"]);
        assert_eq!("10.1.0.1*", other.send("client", BALANCER, 80));
        assert!(other.wanted()[0].sources.is_empty());
    }
}

#[test]
fn an_external_ip_that_is_the_load_balancers_is_restricted() {
    for mode in MODES {
        let mut world = world(mode, &["198.18.0.0/15"]);
        world.service.external_ips = addresses(&[BALANCER]);
        assert_eq!("drop", world.send("client", BALANCER, 80));
    }
}

#[test]
fn without_endpoints_iptables_mode_refuses_everybody() {
    for (mode, stranger) in [(Mode::Iptables, "reject"), (Mode::Nftables, "drop")] {
        let mut world = world(mode, &["203.0.113.0/24"]);
        world.slices.clear();
        assert_eq!("reject", world.send("client", BALANCER, 80), "{mode:?}");
        assert_eq!(stranger, world.send("198.18.0.1", BALANCER, 80), "{mode:?}");
    }
}

#[test]
fn a_node_that_is_allowed_may_come_from_the_load_balancers_address() {
    for mode in MODES {
        let own = world(mode, &["192.0.2.0/24"]);
        assert_eq!("10.1.0.1*", own.send(BALANCER, BALANCER, 80));
        assert_eq!("drop", own.send(EXTERNAL, BALANCER, 80));
        // Another address of the node than the primary one does not count.
        let secondary = world(mode, &["192.0.2.2/32"]);
        assert_eq!("drop", secondary.send(BALANCER, BALANCER, 80));
    }
}
