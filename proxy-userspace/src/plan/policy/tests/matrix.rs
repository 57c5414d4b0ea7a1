//! Where first packets go, and which are masqueraded, by origin, frontend and policy.

use super::world::{CLUSTER_IP, EXTERNAL_WAYS, World, config};
use crate::config::{Config, Detect, Mode};
use crate::model::TrafficPolicy::{self, Cluster, Local};

const MODES: [Mode; 2] = [Mode::Iptables, Mode::Nftables];
const ENDPOINTS: [&str; 2] = ["10.1.0.1@one", "10.1.1.1@two"];

fn world(config: Config, internal: TrafficPolicy, external: TrafficPolicy) -> World {
    World::new(config)
        .with_endpoints(&ENDPOINTS)
        .with_policies(internal, external)
}

#[test]
fn cluster_ips_follow_the_internal_policy_and_spare_pods() {
    for mode in MODES {
        for (internal, external, from, expected) in [
            (Cluster, Cluster, "pod", "10.1.0.1 10.1.1.1"),
            (Cluster, Local, "pod", "10.1.0.1 10.1.1.1"),
            (Cluster, Cluster, "host", "10.1.0.1* 10.1.1.1*"),
            (Cluster, Cluster, "client", "10.1.0.1* 10.1.1.1*"),
            (Local, Cluster, "pod", "10.1.0.1"),
            (Local, Cluster, "host", "10.1.0.1*"),
            (Local, Local, "client", "10.1.0.1*"),
        ] {
            let world = world(config(mode), internal, external);
            let seen = world.send(from, CLUSTER_IP, 80);
            assert_eq!(expected, seen, "{mode:?} {internal:?} {external:?} {from}");
        }
    }
}

#[test]
fn external_addresses_follow_the_external_policy() {
    for mode in MODES {
        for (internal, external, from, expected) in [
            (Cluster, Cluster, "pod", "10.1.0.1* 10.1.1.1*"),
            (Cluster, Cluster, "host", "10.1.0.1* 10.1.1.1*"),
            (Local, Cluster, "client", "10.1.0.1* 10.1.1.1*"),
            // The short circuit: what is inside is not what the policy is for.
            (Local, Local, "pod", "10.1.0.1 10.1.1.1"),
            (Cluster, Local, "host", "10.1.0.1* 10.1.1.1*"),
            (Cluster, Local, "client", "10.1.0.1"),
        ] {
            let world = world(config(mode), internal, external);
            for (to, port) in EXTERNAL_WAYS {
                let seen = world.send(from, to, port);
                assert_eq!(
                    expected, seen,
                    "{mode:?} {internal:?} {external:?} {from} {to}"
                );
            }
        }
    }
}

#[test]
fn masquerading_all_is_about_cluster_ips() {
    for mode in MODES {
        let all = Config {
            masquerade_all: true,
            ..config(mode)
        };
        let world = world(all, Cluster, Local);
        for from in ["pod", "host", "client"] {
            assert_eq!("10.1.0.1* 10.1.1.1*", world.send(from, CLUSTER_IP, 80));
        }
        for (to, port) in EXTERNAL_WAYS {
            assert_eq!("10.1.0.1 10.1.1.1", world.send("pod", to, port));
            assert_eq!("10.1.0.1", world.send("client", to, port));
        }
    }
}

#[test]
fn without_a_detector_nobody_is_inside_and_cluster_ips_spare_all() {
    for mode in MODES {
        let none = Config {
            detect: Detect::ClusterCidr(Vec::new()),
            ..config(mode)
        };
        let world = world(none, Cluster, Local);
        for from in ["pod", "host", "client"] {
            assert_eq!("10.1.0.1 10.1.1.1", world.send(from, CLUSTER_IP, 80));
        }
        for (to, port) in EXTERNAL_WAYS {
            assert_eq!("10.1.0.1", world.send("pod", to, port));
            assert_eq!("10.1.0.1* 10.1.1.1*", world.send("host", to, port));
        }
    }
}

#[test]
fn a_detector_is_one_of_its_family() {
    let only6 = Config {
        detect: Detect::ClusterCidr(vec!["fd00:1::/32".parse().unwrap()]),
        ..config(Mode::Nftables)
    };
    let world = world(only6, Cluster, Cluster);
    assert_eq!("10.1.0.1 10.1.1.1", world.send("client", CLUSTER_IP, 80));
}

#[test]
fn a_detector_by_device_is_one_of_both_families() {
    for detect in [
        Detect::BridgeInterface("cni0".into()),
        Detect::InterfaceNamePrefix("cali".into()),
    ] {
        let config = Config {
            detect,
            ..config(Mode::Nftables)
        };
        let world = world(config, Cluster, Cluster);
        assert_eq!(1, world.policy.detector().by_device);
        assert_eq!("10.1.0.1* 10.1.1.1*", world.send("host", CLUSTER_IP, 80));
    }
}

#[test]
fn the_ranges_of_the_node_come_from_its_object() {
    let config = Config {
        detect: Detect::NodeCidr,
        ..config(Mode::Nftables)
    };
    let mut world = world(config, Cluster, Cluster);
    assert_eq!("10.1.0.1 10.1.1.1", world.send("client", CLUSTER_IP, 80));
    let mut node = super::world::node();
    let ranges = ["fd00:1::/64", "10.1.0.7/24", "10.1.1.0/24"];
    node.pod_cidrs = ranges.map(|text| text.parse().unwrap()).into();
    assert!(world.policy.follow_node(Some(&node)));
    assert_eq!("10.1.0.1* 10.1.1.1*", world.send("client", CLUSTER_IP, 80));
    assert_eq!("10.1.0.1 10.1.1.1", world.send("pod", CLUSTER_IP, 80));
    // Only the first range of a family counts.
    assert_eq!(
        "10.1.0.1* 10.1.1.1*",
        world.send("10.1.1.9", CLUSTER_IP, 80)
    );
}

#[test]
fn a_client_that_gets_itself_is_masqueraded_in_nftables_mode_only_on_its_node() {
    for (mode, from, expected) in [
        (Mode::Iptables, "10.1.0.1", "10.1.0.1* 10.1.1.1"),
        (Mode::Nftables, "10.1.0.1", "10.1.0.1* 10.1.1.1"),
        (Mode::Iptables, "10.1.1.1", "10.1.0.1 10.1.1.1*"),
        (Mode::Nftables, "10.1.1.1", "10.1.0.1 10.1.1.1"),
    ] {
        let world = world(config(mode), Cluster, Local);
        for (to, port) in EXTERNAL_WAYS.into_iter().chain([(CLUSTER_IP, 80)]) {
            assert_eq!(expected, world.send(from, to, port), "{mode:?} {to}");
        }
    }
}
