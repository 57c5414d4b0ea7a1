//! What becomes of packets that there is no endpoint for.

use super::world::{
    BALANCER, CLUSTER_IP, EXTERNAL, EXTERNAL_WAYS, PRIMARY, SECONDARY, World, addresses, config,
};
use crate::config::{Config, Mode, NodePortAddresses};
use crate::model::TrafficPolicy::{Cluster, Local};
use proxy_common::net::Proto;

const MODES: [Mode; 2] = [Mode::Iptables, Mode::Nftables];
const FROM: [&str; 3] = ["pod", "host", "client"];

#[test]
fn a_service_without_any_endpoint_rejects() {
    for mode in MODES {
        for policy in [Cluster, Local] {
            let none = World::new(config(mode)).with_policies(policy, policy);
            let unready = World::new(config(mode))
                .with_policies(policy, policy)
                .with_endpoints(&["10.1.0.1@one/serving", "10.1.1.1@two/down"]);
            for world in [none, unready] {
                for from in ["pod", "client"] {
                    for (to, port) in EXTERNAL_WAYS {
                        assert_eq!("reject", world.send(from, to, port), "{mode:?} {from} {to}");
                    }
                }
                for from in FROM {
                    assert_eq!(
                        "reject",
                        world.send(from, CLUSTER_IP, 80),
                        "{mode:?} {from}"
                    );
                }
                assert_eq!("reject", world.send("host", PRIMARY, 30080), "{mode:?}");
            }
        }
    }
}

#[test]
fn in_iptables_mode_the_nodes_packets_pass_to_addresses_that_it_does_not_have() {
    for (mode, expected) in [(Mode::Iptables, "pass"), (Mode::Nftables, "reject")] {
        let mut world = World::new(config(mode));
        world.service.external_ips = addresses(&[EXTERNAL, SECONDARY]);
        assert_eq!(expected, world.send("host", BALANCER, 80));
        assert_eq!(expected, world.send("host", EXTERNAL, 80));
        assert_eq!("reject", world.send("host", SECONDARY, 80));
    }
}

#[test]
fn with_endpoints_elsewhere_only_a_local_policy_drops() {
    for mode in MODES {
        let elsewhere = || World::new(config(mode)).with_endpoints(&["10.1.1.1@two"]);
        let internal = elsewhere().with_policies(Local, Cluster);
        for from in FROM {
            assert_eq!(
                "drop",
                internal.send(from, CLUSTER_IP, 80),
                "{mode:?} {from}"
            );
            for (to, port) in EXTERNAL_WAYS {
                assert_eq!(
                    "10.1.1.1*",
                    internal.send(from, to, port),
                    "{mode:?} {from}"
                );
            }
        }
        let external = elsewhere().with_policies(Cluster, Local);
        for (to, port) in EXTERNAL_WAYS {
            assert_eq!("drop", external.send("client", to, port), "{mode:?} {to}");
            assert_eq!("10.1.1.1", external.send("pod", to, port), "{mode:?} {to}");
            assert_eq!(
                "10.1.1.1*",
                external.send("host", to, port),
                "{mode:?} {to}"
            );
        }
        assert_eq!("10.1.1.1", external.send("pod", CLUSTER_IP, 80));
    }
}

/// A node whose node ports are at its second address.
fn at_secondary(mode: Mode) -> World {
    let ranges = vec!["192.0.2.2/32".parse().unwrap()];
    World::new(Config {
        node_port_addresses: NodePortAddresses::In {
            primary: false,
            ranges,
        },
        ..config(mode)
    })
}

#[test]
fn in_iptables_mode_node_ports_are_refused_at_all_addresses() {
    for (to, mode, expected) in [
        (PRIMARY, Mode::Iptables, "reject"),
        (PRIMARY, Mode::Nftables, "pass"),
        ("127.0.0.1", Mode::Iptables, "reject"),
        ("127.0.0.1", Mode::Nftables, "pass"),
        (SECONDARY, Mode::Iptables, "reject"),
        (SECONDARY, Mode::Nftables, "reject"),
    ] {
        for from in FROM {
            let seen = at_secondary(mode).send(from, to, 30080);
            assert_eq!(expected, seen, "{mode:?} {from} {to}");
        }
    }
    for (mode, expected) in [(Mode::Iptables, "reject"), (Mode::Nftables, "pass")] {
        let mut world = World::new(config(mode));
        world.service.cluster_ips = addresses(&["fd00:96::1"]);
        assert_eq!(expected, world.send("host", "::1", 30080));
    }
    // With endpoints, they pass where they are not served.
    for mode in MODES {
        let world = at_secondary(mode).with_endpoints(&["10.1.0.1@one"]);
        assert_eq!("pass", world.send("client", PRIMARY, 30080));
    }
}

#[test]
fn in_iptables_mode_a_local_policy_drops_at_all_addresses() {
    for (mode, expected) in [(Mode::Iptables, "drop"), (Mode::Nftables, "pass")] {
        let elsewhere = at_secondary(mode)
            .with_policies(Cluster, Local)
            .with_endpoints(&["10.1.1.1@two"]);
        for from in FROM {
            assert_eq!(
                expected,
                elsewhere.send(from, PRIMARY, 30080),
                "{mode:?} {from}"
            );
        }
        assert_eq!("10.1.1.1", elsewhere.send("pod", SECONDARY, 30080));
        let here = elsewhere.with_endpoints(&["10.1.0.1@one"]);
        assert_eq!("pass", here.send("client", PRIMARY, 30080));
    }
}

#[test]
fn in_nftables_mode_other_ports_of_a_cluster_ip_are_refused() {
    for (mode, expected) in [(Mode::Iptables, "pass"), (Mode::Nftables, "reject")] {
        for endpoints in [&[][..], &["10.1.0.1@one"]] {
            let world = World::new(config(mode)).with_endpoints(endpoints);
            for from in FROM {
                assert_eq!(expected, world.send(from, CLUSTER_IP, 81));
                assert_eq!(expected, world.send_as(Proto::UDP, from, CLUSTER_IP, 80));
                assert_eq!(expected, world.send_as(Proto(1), from, CLUSTER_IP, 0));
            }
        }
    }
    let mut without_ports = World::new(config(Mode::Nftables));
    without_ports.service.ports.clear();
    assert!(without_ports.wanted().is_empty());
}
