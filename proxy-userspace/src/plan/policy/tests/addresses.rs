//! At which addresses a Service is reached.

use std::collections::BTreeSet;
use std::sync::Arc;

use proxy_common::abi::FrontendFlags;
use proxy_common::net::Proto;

use super::world::{BALANCER, CLUSTER_IP, EXTERNAL, PRIMARY, SECONDARY, World, addresses, config};
use crate::config::{Config, ExternalIps, Mode, NodePortAddresses};
use crate::model::{Family, Protocol};

/// Where node ports of a Service of both families are served.
fn node_ports(config: Config) -> Vec<String> {
    let mut world = World::new(config).with_endpoints(&["10.1.0.1@one", "fd00:1::1@one"]);
    world.service.cluster_ips = addresses(&[CLUSTER_IP, "fd00:96::1"]);
    let all = world.wanted();
    let frontends = all.iter().flat_map(|wanted| &wanted.frontends);
    let node_ports = frontends.filter(|frontend| frontend.at.port == 30080);
    node_ports
        .map(|frontend| {
            assert!(frontend.flags.has(FrontendFlags::OWN_ADDRESS));
            frontend.at.addr.to_string()
        })
        .collect()
}

#[test]
fn node_ports_are_where_mode_and_configuration_say() {
    const ALL4: &[&str] = &[PRIMARY, SECONDARY];
    const ALL6: &[&str] = &["2001:db8::1", "2001:db8::2"];
    const LOOPBACK: &[&str] = &["127.0.0.1"];
    let ranges = |texts: &[&str]| NodePortAddresses::In {
        primary: false,
        ranges: texts.iter().map(|text| text.parse().unwrap()).collect(),
    };
    let first = &[&ALL4[..1], &ALL6[..1]];
    for (given, iptables, nftables) in [
        (
            NodePortAddresses::Default,
            &[ALL4, LOOPBACK, ALL6][..],
            &first[..],
        ),
        (
            NodePortAddresses::In {
                primary: true,
                ranges: vec![],
            },
            first,
            first,
        ),
        (ranges(&["192.0.2.0/24"]), &[ALL4, ALL6], &[ALL4, ALL6]),
        (
            ranges(&["192.0.2.2/32", "2001:db8::2/128"]),
            &[&ALL4[1..], &ALL6[1..]],
            &[&ALL4[1..], &ALL6[1..]],
        ),
        (
            ranges(&["0.0.0.0/0", "2001:db8::/127"]),
            &[ALL4, LOOPBACK, &ALL6[..1]],
            &[ALL4, &ALL6[..1]],
        ),
        (ranges(&["127.0.0.0/8", "::1/128"]), &[LOOPBACK], &[]),
        (ranges(&["203.0.113.0/24", "::/0"]), &[ALL6], &[ALL6]),
        // Addresses of one link are there for whoever asks for them.
        (
            ranges(&["203.0.113.0/24", "fe80::/10"]),
            &[&["fe80::1"]],
            &[&["fe80::1"]],
        ),
    ] {
        for (mode, expected) in [(Mode::Iptables, iptables), (Mode::Nftables, nftables)] {
            let config = Config {
                node_port_addresses: given.clone(),
                ..config(mode)
            };
            assert_eq!(expected.concat(), node_ports(config), "{mode:?} {given:?}");
        }
    }
}

#[test]
fn node_ports_at_loopback_can_be_switched_off() {
    let config = Config {
        localhost_node_ports: false,
        ..config(Mode::Iptables)
    };
    assert_eq!(
        [PRIMARY, SECONDARY, "2001:db8::1", "2001:db8::2"],
        *node_ports(config)
    );
}

#[test]
fn a_family_whose_primary_address_is_unknown_is_served_everywhere() {
    let mut world = World::new(config(Mode::Nftables)).with_endpoints(&["10.1.0.1"]);
    assert_eq!("pass", world.send("client", SECONDARY, 30080));
    world.policy.follow_node(None);
    assert_eq!("10.1.0.1*", world.send("client", SECONDARY, 30080));
    // One that no interface has serves nobody.
    let mut node = super::world::node();
    node.addresses = addresses(&["203.0.113.77"]);
    world.policy.follow_node(Some(&node));
    assert_eq!("pass", world.send("client", PRIMARY, 30080));
    assert_eq!("pass", world.send("client", "203.0.113.77", 30080));
}

#[test]
fn a_node_port_of_another_node_is_nobodys() {
    for mode in [Mode::Iptables, Mode::Nftables] {
        let world = World::new(config(mode)).with_endpoints(&["10.1.0.1"]);
        for from in ["pod", "host", "client"] {
            assert_eq!("pass", world.send(from, "192.0.2.77", 30080));
        }
    }
}

#[test]
fn other_ports_and_protocols_of_external_addresses_pass() {
    for mode in [Mode::Iptables, Mode::Nftables] {
        let world = World::new(config(mode)).with_endpoints(&["10.1.0.1"]);
        for (to, port) in [(BALANCER, 81), (EXTERNAL, 30080), (PRIMARY, 80)] {
            assert_eq!("pass", world.send("client", to, port));
        }
        for (to, port) in super::world::EXTERNAL_WAYS {
            assert_eq!("pass", world.send_as(Proto::UDP, "client", to, port));
        }
    }
}

#[test]
fn each_protocol_is_a_port_of_its_own() {
    for (protocol, proto) in [(Protocol::Udp, Proto::UDP), (Protocol::Sctp, Proto::SCTP)] {
        let mut world = World::new(config(Mode::Iptables)).with_endpoints(&["10.1.0.1"]);
        world.service.ports[0].protocol = protocol;
        let mut slice = (*world.slices[0]).clone();
        slice.ports[0].protocol = protocol;
        world.slices = vec![slice.into()];
        assert_eq!("10.1.0.1", world.send_as(proto, "pod", CLUSTER_IP, 80));
        assert_eq!("10.1.0.1*", world.send_as(proto, "client", PRIMARY, 30080));
        assert_eq!("pass", world.send("client", PRIMARY, 30080));
    }
}

#[test]
fn external_ips_are_served_as_far_as_they_are_allowed() {
    let listed = |text: &str| ExternalIps::In(vec![text.parse().unwrap()]);
    for (external_ips, expected) in [
        (ExternalIps::Allow, "10.1.0.1*"),
        (ExternalIps::Deny, "pass"),
        (listed("198.51.100.0/24"), "10.1.0.1*"),
        (listed("198.51.100.0/31"), "pass"),
    ] {
        let config = Config {
            external_ips,
            ..config(Mode::Nftables)
        };
        let world = World::new(config).with_endpoints(&["10.1.0.1"]);
        assert_eq!(expected, world.send("client", EXTERNAL, 80));
        assert_eq!("10.1.0.1*", world.send("client", BALANCER, 80));
    }
}

#[test]
fn a_cluster_ip_that_the_node_has_itself_is_left_alone() {
    for mode in [Mode::Iptables, Mode::Nftables] {
        let mut world = World::new(config(mode)).with_endpoints(&["10.1.0.1@one"]);
        let own = addresses(&[PRIMARY, CLUSTER_IP]).into_iter().collect();
        world.policy.follow_addresses(Arc::new(own));
        for from in ["pod", "host", "client"] {
            assert_eq!("pass", world.send(from, CLUSTER_IP, 80), "{mode:?}");
            assert_eq!("pass", world.send(from, CLUSTER_IP, 81), "{mode:?}");
        }
        // The rest of the Service is served.
        assert_eq!("10.1.0.1*", world.send("client", BALANCER, 80));
        assert_eq!("10.1.0.1*", world.send("client", PRIMARY, 30080));
    }
}

#[test]
fn addresses_of_the_node_are_marked_as_such() {
    let mut world = World::new(config(Mode::Iptables)).with_endpoints(&["10.1.0.1@one"]);
    world.service.external_ips = addresses(&[EXTERNAL, SECONDARY]);
    let own: BTreeSet<_> = world.wanted()[0]
        .frontends
        .iter()
        .filter(|frontend| frontend.flags.has(FrontendFlags::OWN_ADDRESS))
        .map(|frontend| frontend.at.to_string())
        .collect();
    let expected = [
        "127.0.0.1:30080/TCP",
        "192.0.2.1:30080/TCP",
        "192.0.2.2:30080/TCP",
        "192.0.2.2:80/TCP",
    ];
    assert_eq!(BTreeSet::from(expected.map(str::to_owned)), own);
}

#[test]
fn the_cluster_ip_comes_first_and_each_address_once() {
    let mut world = World::new(config(Mode::Iptables)).with_endpoints(&["10.1.0.1@one"]);
    world.service.external_ips = addresses(&[EXTERNAL, BALANCER, EXTERNAL, CLUSTER_IP]);
    let all = world.wanted();
    let places: Vec<_> = all[0]
        .frontends
        .iter()
        .map(|frontend| frontend.at)
        .collect();
    assert_eq!(CLUSTER_IP, places[0].addr.to_string());
    assert_eq!(BTreeSet::from_iter(&places).len(), places.len());
    assert_eq!("10.1.0.1", world.send("pod", CLUSTER_IP, 80));
}

#[test]
fn a_change_of_addresses_concerns_whom_it_touches() {
    let mut world = World::new(config(Mode::Iptables));
    let with = |more: &[&str]| {
        let own = [
            "192.0.2.1",
            "192.0.2.2",
            "2001:db8::1",
            "2001:db8::2",
            "fe80::1",
        ];
        Arc::new(addresses(&[&own, more].concat()).into_iter().collect())
    };
    let mut plain = world.service.clone();
    plain.ports[0].node_port = 0;
    let mut check = |more: &[&str], web: bool, other: bool| {
        let moved = world.policy.follow_addresses(with(more));
        let seen = (moved.concerns(&world.service), moved.concerns(&plain));
        assert_eq!((web, other), seen, "{more:?}");
    };
    check(&[], false, false);
    // Pods come and go with such.
    check(&["fe80::2"], false, false);
    // The Service has no cluster IP of that family.
    check(&["2001:db8::3"], false, false);
    check(&["192.0.2.3"], true, false);
    check(&["192.0.2.3", BALANCER], true, true);
    check(&["192.0.2.3", BALANCER, CLUSTER_IP], true, true);
    check(&["192.0.2.3", BALANCER, CLUSTER_IP], false, false);
    assert_eq!(Family::V4, Family::of(world.service.cluster_ips[0]));
}
