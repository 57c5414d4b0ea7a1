//! Several Services that want one address and port.

use super::*;
use crate::config::{Config, Mode};

/// A Service that was made at this time, at an address that it shares.
fn shared(name: &str, ip: &str, created: i64) -> Change {
    let mut service = service(name, ip, &[("", Protocol::Tcp, 80)]);
    service.external_ips = vec!["192.0.2.1".parse().unwrap()];
    service.created = Some(created);
    Change::Set(Object::Service(service.into()))
}

// B096
#[test]
fn the_oldest_of_several_services_has_what_they_all_want_in_whatever_order_they_are_seen() {
    let all = [
        shared("a", "10.96.0.1", 30),
        shared("b", "10.96.0.2", 20),
        shared("c", "10.96.0.3", 10),
    ];
    let losers = |plan: &Plan| {
        let all = plan.view(|_| true).into_iter();
        let losers = all.filter(|service| !service.notices.is_empty());
        let names: Vec<_> = losers.map(|own| own.name.name().to_owned()).collect();
        names.concat()
    };
    // One by one, and all at once as after a restart.
    let mut one_by_one = World::new(Limits::default());
    for change in all.iter().rev() {
        one_by_one.change(vec![change.clone()]);
    }
    let mut at_once = World::new(Limits::default());
    at_once.change(all.to_vec());
    for mut world in [one_by_one, at_once] {
        assert_eq!("ab", losers(&world.plan));
        for (name, left) in [("c", "a"), ("b", "")] {
            let name = ObjectName::new("default", name);
            world.change(vec![Change::Gone(ObjectKey::Service(name))]);
            assert_eq!(left, losers(&world.plan));
        }
    }
}

const NODE: &str = "192.0.2.1";
const MODES: [Mode; 2] = [Mode::Iptables, Mode::Nftables];

/// A Service with one port, called like the Service.
struct Claimant {
    name: &'static str,
    created: i64,
    cluster_ip: &'static str,
    external_ip: Option<&'static str>,
    balancer: Option<&'static str>,
    port: u16,
    node_port: u16,
}

impl Claimant {
    const fn new(name: &'static str, created: i64, cluster_ip: &'static str) -> Self {
        Self {
            name,
            created,
            cluster_ip,
            external_ip: None,
            balancer: None,
            port: 80,
            node_port: 0,
        }
    }

    fn set(&self) -> Change {
        let mut own = service(
            self.name,
            self.cluster_ip,
            &[("", Protocol::Tcp, self.port)],
        );
        own.created = Some(self.created);
        own.external_ips = self
            .external_ip
            .map(|ip| ip.parse().unwrap())
            .into_iter()
            .collect();
        own.load_balancer_ips = self
            .balancer
            .map(|ip| ip.parse().unwrap())
            .into_iter()
            .collect();
        own.ports[0].node_port = self.node_port;
        Change::Set(Object::Service(own.into()))
    }
}

fn node(mode: Mode) -> World {
    let mut world = World::new(Limits::default());
    world.plan = plan(mode);
    world
}

fn plan(mode: Mode) -> Plan {
    let config = Config {
        mode,
        ..Config::default()
    };
    Plan::new("one", Limits::default()).with_config(config)
}

fn own_address() -> Change {
    Change::Addresses(Arc::new([NODE.parse().unwrap()].into()))
}

fn found(world: &World, ip: &str, port: u16) -> Vec<String> {
    let all = world.tables.reachable(Socket { port, ..at(ip) });
    let all = all.unwrap().into_iter();
    all.map(|(addr, _)| addr.to_string()).collect()
}

/// Carries out changes in several orders, all at once, and once more after a restart; each time the
/// same is to be found there in the end.
fn always_found(mode: Mode, changes: &[Change], (ip, port): (&str, u16), expected: &[&str]) {
    let check = |world: &World, what: &str| {
        assert_eq!(*expected, *found(world, ip, port), "{mode:?} {what}");
    };
    for shift in 0..changes.len() {
        for is_reversed in [false, true] {
            let mut order = changes.to_vec();
            order.rotate_left(shift);
            if is_reversed {
                order.reverse();
            }
            let mut world = node(mode);
            for change in &order {
                let outcome = world.change(vec![change.clone()]);
                let is_taken = |op: &Op| matches!(op, Op::FrontendGone { .. });
                assert!(!outcome.ops.iter().any(is_taken), "{outcome:?}");
            }
            check(&world, "one by one");
            world.plan = plan(mode);
            world.plan.adopt(world.tables.snapshot());
            let outcome = world.plan.complete(order, world.now);
            assert!(outcome.ops.is_empty(), "{outcome:?}");
            world.carry_out(outcome);
            check(&world, "after a restart");
        }
    }
    let mut world = node(mode);
    world.change(changes.to_vec());
    check(&world, "at once");
}

#[test]
fn an_older_service_without_endpoints_stands_back() {
    let shared = "198.51.100.1";
    let pairs = [
        (shared, ["10.96.0.1", "10.96.0.2"], Some(shared), None),
        (shared, ["10.96.0.1", "10.96.0.2"], None, Some(shared)),
        ("10.96.0.1", ["10.96.0.1"; 2], None, None),
    ];
    for mode in MODES {
        for (ip, [old, young], external_ip, balancer) in pairs {
            let [old, young] =
                [("old", 1, old), ("young", 2, young)].map(|(name, created, ip)| Claimant {
                    external_ip,
                    balancer,
                    ..Claimant::new(name, created, ip)
                });
            let with_one = [old.set(), young.set(), set_slice("young", &["10.1.0.2"])];
            always_found(mode, &with_one, (ip, 80), &["10.1.0.2"]);
            let with_both = [&with_one[..], &[set_slice("old", &["10.1.0.1"])]].concat();
            always_found(mode, &with_both, (ip, 80), &["10.1.0.1"]);

            // It changes hands whenever endpoints come or go, and is never gone meanwhile.
            let mut world = node(mode);
            world.change(with_both);
            for (endpoints, expected) in [(&[][..], "10.1.0.2"), (&["10.1.0.1"], "10.1.0.1")] {
                let outcome = world.change(vec![set_slice("old", endpoints)]);
                assert_eq!([expected], *found(&world, ip, 80));
                let shared = at(ip);
                let is_gone = |op: &Op| matches!(op, Op::FrontendGone { at } if *at == shared);
                assert!(!outcome.ops.iter().any(is_gone), "{outcome:?}");
                let writes = outcome.ops.iter();
                let writes =
                    writes.filter(|op| matches!(op, Op::Frontend { at, .. } if *at == shared));
                assert_eq!(1, writes.count());
            }
        }
    }
}

#[test]
fn a_node_port_stands_back_for_an_address_of_any_age() {
    for mode in MODES {
        for (is_balancer, created) in [(false, 1), (false, 3), (true, 1), (true, 3)] {
            let addressed = Claimant {
                external_ip: (!is_balancer).then_some(NODE),
                balancer: is_balancer.then_some(NODE),
                port: 30080,
                ..Claimant::new("addressed", created, "10.96.0.2")
            };
            let ported = Claimant {
                node_port: 30080,
                ..Claimant::new("ported", 2, "10.96.0.1")
            };
            let services = [own_address(), addressed.set(), ported.set()];
            let of_addressed = set_slice("addressed", &["10.1.0.2"]);
            let of_ported = set_slice("ported", &["10.1.0.1"]);
            for (slices, expected) in [
                (
                    vec![of_addressed.clone(), of_ported.clone()],
                    &["10.1.0.2"][..],
                ),
                (vec![of_addressed.clone()], &["10.1.0.2"]),
                (vec![of_ported.clone()], &["10.1.0.1"]),
                (vec![], &[]),
            ] {
                let changes = [&services[..], &slices].concat();
                always_found(mode, &changes, (NODE, 30080), expected);
            }
        }
    }
}

#[test]
fn a_node_port_stands_back_for_another_port_of_its_service_in_any_order() {
    for mode in MODES {
        for order in [[0, 1], [1, 0]] {
            let ports = [("a", Protocol::Tcp, 80), ("b", Protocol::Tcp, 30080)];
            let mut own = service("web", "10.96.0.1", &order.map(|place| ports[place]));
            own.external_ips = vec![NODE.parse().unwrap()];
            for port in &mut own.ports {
                port.node_port = if &*port.name == "a" { 30080 } else { 30081 };
            }
            let slices = [("a", "10.1.0.1"), ("b", "10.1.0.2")].map(|(port, addr)| {
                let ports = [(port, Protocol::Tcp, 8080)];
                let slice = slice("web", port, &ports, &[endpoint(addr)]);
                Change::Set(Object::Slice(slice))
            });
            let changes = [own_address(), Change::Set(Object::Service(own.into()))];
            let changes = [&changes[..], &slices].concat();
            always_found(mode, &changes, (NODE, 30080), &["10.1.0.2"]);
        }
    }
}

#[test]
fn a_service_that_is_edited_has_what_it_would_have_had_from_the_start() {
    let at_first = Claimant::new("old", 1, "10.96.0.1");
    let edited = Claimant {
        external_ip: Some("198.51.100.1"),
        ..Claimant::new("old", 1, "10.96.0.1")
    };
    let young = Claimant {
        external_ip: Some("198.51.100.1"),
        ..Claimant::new("young", 2, "10.96.0.2")
    };
    let mut world = World::new(Limits::default());
    world.change(vec![
        at_first.set(),
        young.set(),
        set_slice("old", &["10.1.0.1"]),
        set_slice("young", &["10.1.0.2"]),
    ]);
    assert_eq!(["10.1.0.2"], *found(&world, "198.51.100.1", 80));
    let outcome = world.change(vec![edited.set()]);
    assert_eq!(["10.1.0.1"], *found(&world, "198.51.100.1", 80));
    assert_eq!(
        [
            "default/young: 198.51.100.1:80/TCP belongs to Service default/old, whose claim comes first"
        ],
        *messages(&outcome)
    );
    world.change(vec![at_first.set()]);
    assert_eq!(["10.1.0.2"], *found(&world, "198.51.100.1", 80));
    assert_eq!(0, world.plan.notices().count());
}

/// Endpoints that only the former run knows count until all is known.
#[test]
fn a_service_whose_slices_come_late_keeps_what_it_has() {
    let all = ["old", "young"].map(|name| {
        let created = if name == "old" { 1 } else { 2 };
        Claimant::new(name, created, "10.96.0.1").set()
    });
    let slices = [
        set_slice("old", &["10.1.0.1"]),
        set_slice("young", &["10.1.0.2"]),
    ];
    let mut world = World::new(Limits::default());
    world.change([&all[..], &slices].concat());
    world.plan = Plan::new("one", Limits::default());
    world.plan.adopt(world.tables.snapshot());
    world.change(all.to_vec());
    world.change(vec![slices[1].clone()]);
    assert_eq!(["10.1.0.1"], *found(&world, "10.96.0.1", 80));
    let outcome = world.plan.complete([], world.now);
    world.carry_out(outcome);
    assert_eq!(["10.1.0.2"], *found(&world, "10.96.0.1", 80));
}
