//! Each family is a world of its own.

use super::world::{CLUSTER_IP, World, addresses, config};
use crate::config::Mode;
use crate::model::TrafficPolicy::{Cluster, Local};

const CLUSTER_IP6: &str = "fd00:96::1";
const BALANCER6: &str = "2001:db8:1::1";
const EXTERNAL6: &str = "2001:db8:1::2";

fn dual(mode: Mode) -> World {
    let mut world = World::new(config(mode));
    world.service.cluster_ips = addresses(&[CLUSTER_IP, CLUSTER_IP6]);
    world.service.external_ips.extend(addresses(&[EXTERNAL6]));
    world
        .service
        .load_balancer_ips
        .extend(addresses(&[BALANCER6]));
    world
}

#[test]
fn families_do_not_share_endpoints_or_what_follows_from_them() {
    for mode in [Mode::Iptables, Mode::Nftables] {
        let only4 = dual(mode).with_endpoints(&["10.1.0.1@one"]);
        assert_eq!("10.1.0.1", only4.send("pod", CLUSTER_IP, 80));
        for (to, port) in [(CLUSTER_IP6, 80), (BALANCER6, 80), ("2001:db8::1", 30080)] {
            assert_eq!("reject", only4.send("pod", to, port), "{mode:?} {to}");
        }
    }
}

#[test]
fn ipv6_has_all_that_ipv4_has() {
    for mode in [Mode::Iptables, Mode::Nftables] {
        let world = dual(mode)
            .with_policies(Cluster, Local)
            .with_endpoints(&["fd00:1::1@one", "fd00:1:1::1@two"]);
        assert_eq!("fd00:1::1 fd00:1:1::1", world.send("pod", CLUSTER_IP6, 80));
        assert_eq!(
            "fd00:1::1* fd00:1:1::1*",
            world.send("client", CLUSTER_IP6, 80)
        );
        for (to, port) in [(BALANCER6, 80), (EXTERNAL6, 80), ("2001:db8::1", 30080)] {
            assert_eq!("fd00:1::1 fd00:1:1::1", world.send("pod", to, port));
            assert_eq!("fd00:1::1* fd00:1:1::1*", world.send("host", to, port));
            assert_eq!("fd00:1::1", world.send("client", to, port));
        }
    }
}

#[test]
fn without_a_cluster_ip_a_family_has_no_node_port() {
    for mode in [Mode::Iptables, Mode::Nftables] {
        let mut world = dual(mode).with_endpoints(&["fd00:1::1@one"]);
        world.service.cluster_ips = addresses(&[CLUSTER_IP]);
        for (to, port) in [(BALANCER6, 80), (EXTERNAL6, 80), ("2001:db8::1", 30080)] {
            assert_eq!("pass", world.send("client", to, port), "{mode:?} {to}");
        }
    }
}
