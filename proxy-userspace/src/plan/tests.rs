use std::net::IpAddr;

use proptest::prelude::*;
use proxy_common::abi::{EndpointFlags, Origin};
use proxy_common::net::Proto;

use super::testing::{Found, Tables, endpoint, service, slice};
use super::*;
use crate::model::{Endpoint, Family, Protocol};

mod conflicts;
mod node;
mod properties;
mod restart;
mod room;
mod sets;

const HTTP: &[(&str, Protocol, u16)] = &[("", Protocol::Tcp, 8080)];

fn limits(frontends: u32, endpoints: u32, set_slots: u32) -> Limits {
    Limits {
        set_slots,
        ..Limits::new(frontends, endpoints)
    }
}

/// A plan and the tables it is carried out on, after every operation of which all is well.
struct World {
    plan: Plan,
    tables: Tables,
    now: Duration,
}

impl World {
    fn new(limits: Limits) -> Self {
        Self {
            plan: Plan::new("one", limits),
            tables: Tables::default(),
            now: Duration::ZERO,
        }
    }

    fn change(&mut self, changes: Vec<Change>) -> Outcome {
        let outcome = self.plan.update(changes, self.now);
        self.carry_out(outcome)
    }

    fn retry(&mut self) -> Outcome {
        let outcome = self.plan.retry(self.now);
        self.carry_out(outcome)
    }

    fn carry_out(&mut self, outcome: Outcome) -> Outcome {
        for op in &outcome.ops {
            self.tables.apply(op);
            for at in self.tables.frontends.keys() {
                self.tables.reachable(*at);
            }
        }
        self.plan.applied(self.now);
        outcome
    }

    fn reachable(&self, ip: &str) -> Vec<String> {
        let all = self.tables.reachable(at(ip)).unwrap();
        all.into_iter()
            .map(|(addr, port)| format!("{addr}:{port}"))
            .collect()
    }

    fn slot(&self, ip: &str, addr: &str) -> Option<(u32, u32)> {
        let value = *self.tables.frontends.get(&at(ip))?;
        let wanted: IpAddr = addr.parse().unwrap();
        let found = self.tables.read(Family::of(wanted), value, Origin::Inside);
        found.into_iter().find_map(|found| match found {
            Found::Endpoint {
                addr,
                slot,
                generation,
                ..
            } if addr == wanted => Some((slot, generation)),
            _ => None,
        })
    }
}

fn at(ip: &str) -> Socket {
    Socket {
        addr: ip.parse().unwrap(),
        port: 80,
        proto: Proto::TCP,
    }
}

fn set_service(name: &str, ip: &str) -> Change {
    let service = service(name, ip, &[("", Protocol::Tcp, 80)]);
    Change::Set(Object::Service(service.into()))
}

fn set_slice(service: &str, addrs: &[&str]) -> Change {
    let endpoints: Vec<_> = addrs.iter().map(|addr| endpoint(addr)).collect();
    Change::Set(Object::Slice(slice(service, "a", HTTP, &endpoints)))
}

fn gone(name: &str) -> Change {
    Change::Gone(ObjectKey::Service(ObjectName::new("default", name)))
}

fn messages(outcome: &Outcome) -> Vec<String> {
    let notices = outcome.notices.iter();
    notices
        .map(|(name, notice)| format!("{name}: {notice}"))
        .collect()
}

#[test]
fn a_service_needs_no_particular_order_of_objects() {
    for order in [[0, 1], [1, 0]] {
        let mut world = World::new(Limits::default());
        let changes = [
            set_service("web", "10.96.0.1"),
            set_slice("web", &["10.1.0.1"]),
        ];
        for index in order {
            world.change(vec![changes[index].clone()]);
        }
        assert_eq!(["10.1.0.1:8080"], *world.reachable("10.96.0.1"));
        assert!(
            world
                .tables
                .has_bit(Bitmap::Frontends, "10.96.0.1".parse().unwrap())
        );
        let reverse = Socket {
            addr: "10.1.0.1".parse().unwrap(),
            port: 8080,
            proto: Proto::TCP,
        };
        assert!(world.tables.has_socket_bits(reverse));
        assert_eq!(
            ("10.96.0.1".parse().unwrap(), 80),
            world.tables.reverse[&reverse][0]
        );
    }
}

#[test]
fn a_service_without_slices_is_one_without_endpoints() {
    let mut world = World::new(Limits::default());
    world.change(vec![set_service("web", "10.96.0.1")]);
    let value = world.tables.frontends[&at("10.96.0.1")];
    assert_eq!(proxy_common::abi::EndpointSet::EMPTY, value.inside);
    assert_ne!(0, value.service);
}

#[test]
fn what_does_not_change_is_not_touched() {
    let mut world = World::new(Limits::default());
    let changes = vec![
        set_service("web", "10.96.0.1"),
        set_slice("web", &["10.1.0.1", "10.1.0.2"]),
        set_service("other", "10.96.0.2"),
        set_slice("other", &["10.1.0.1"]),
    ];
    world.change(changes.clone());
    assert_eq!(Vec::<Op>::new(), world.change(changes).ops);
    // Another order of the same endpoints is the same set.
    let outcome = world.change(vec![set_slice("web", &["10.1.0.2", "10.1.0.1"])]);
    assert_eq!(Vec::<Op>::new(), outcome.ops);
}

#[test]
fn one_endpoint_less_is_one_set_one_switch_one_farewell() {
    let mut world = World::new(Limits::default());
    world.change(vec![
        set_service("web", "10.96.0.1"),
        set_slice("web", &["10.1.0.1", "10.1.0.2", "10.1.0.3"]),
    ]);
    let (slot, generation) = world.slot("10.96.0.1", "10.1.0.2").unwrap();
    let ops = world
        .change(vec![set_slice("web", &["10.1.0.1", "10.1.0.3"])])
        .ops;
    match &*ops {
        [
            Op::ResetDraws { base: 3, len: 2 },
            Op::Set { base, slots },
            Op::Frontend { value, .. },
            Op::Endpoint { slot: dead, record },
        ] => {
            assert_eq!((3, 2), (*base, slots.len()));
            assert_eq!((3, 2), (value.inside.base(), value.inside.count()));
            assert_eq!(slot, *dead);
            assert_eq!(generation + 1, record.generation);
            assert!(!record.flags.has(EndpointFlags::ALIVE));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn slots_stay_and_an_endpoint_that_returns_has_a_new_generation() {
    let mut world = World::new(Limits::default());
    world.change(vec![
        set_service("web", "10.96.0.1"),
        set_slice("web", &["10.1.0.1", "10.1.0.2"]),
    ]);
    let before = ["10.1.0.1", "10.1.0.2"].map(|addr| world.slot("10.96.0.1", addr).unwrap());
    world.change(vec![set_slice("web", &["10.1.0.2"])]);
    assert_eq!(Some(before[1]), world.slot("10.96.0.1", "10.1.0.2"));
    world.change(vec![set_slice("web", &["10.1.0.1", "10.1.0.2"])]);
    assert_eq!(Some(before[1]), world.slot("10.96.0.1", "10.1.0.2"));
    let (slot, generation) = world.slot("10.96.0.1", "10.1.0.1").unwrap();
    assert_eq!((before[0].0, before[0].1 + 1), (slot, generation));
}

#[test]
fn an_endpoint_that_ends_but_serves_keeps_its_generation() {
    let mut world = World::new(Limits::default());
    world.change(vec![
        set_service("web", "10.96.0.1"),
        set_slice("web", &["10.1.0.1", "10.1.0.2"]),
    ]);
    let (slot, generation) = world.slot("10.96.0.1", "10.1.0.1").unwrap();
    let with = |serving| {
        let ending = Endpoint {
            ready: false,
            serving,
            terminating: true,
            ..endpoint("10.1.0.1")
        };
        Change::Set(Object::Slice(slice(
            "web",
            "a",
            HTTP,
            &[ending, endpoint("10.1.0.2")],
        )))
    };
    world.change(vec![with(true)]);
    assert_eq!(["10.1.0.2:8080"], *world.reachable("10.96.0.1"));
    let record = world.tables.records[&(Family::V4, slot)];
    assert_eq!(generation, record.generation);
    assert!(!record.flags.has(EndpointFlags::ALIVE));

    world.change(vec![with(false)]);
    assert_eq!(
        generation + 1,
        world.tables.records[&(Family::V4, slot)].generation
    );
}

#[test]
fn a_deleted_service_raises_the_generations_of_its_slots() {
    let mut world = World::new(Limits::default());
    world.change(vec![
        set_service("web", "10.96.0.1"),
        set_slice("web", &["10.1.0.1"]),
        set_service("twin", "10.96.0.2"),
        set_slice("twin", &["10.1.0.1"]),
    ]);
    let (slot, generation) = world.slot("10.96.0.1", "10.1.0.1").unwrap();
    let twin = world.slot("10.96.0.2", "10.1.0.1").unwrap();
    let number = world.tables.frontends[&at("10.96.0.1")].service;
    world.change(vec![gone("web")]);
    assert_eq!(None, world.tables.reachable(at("10.96.0.1")));
    assert_eq!(
        generation + 1,
        world.tables.records[&(Family::V4, slot)].generation
    );
    assert_eq!(Some(twin), world.slot("10.96.0.2", "10.1.0.1"));

    // The same Service again is another one to flows of the first.
    world.change(vec![set_service("web", "10.96.0.1")]);
    assert_ne!(number, world.tables.frontends[&at("10.96.0.1")].service);
}

#[test]
fn a_local_endpoint_is_marked() {
    let mut world = World::new(Limits::default());
    let local = Endpoint {
        node: Some("one".into()),
        ..endpoint("10.1.0.1")
    };
    world.change(vec![
        set_service("web", "10.96.0.1"),
        Change::Set(Object::Slice(slice(
            "web",
            "a",
            HTTP,
            std::slice::from_ref(&local),
        ))),
    ]);
    let (slot, _) = world.slot("10.96.0.1", "10.1.0.1").unwrap();
    assert!(
        world.tables.records[&(Family::V4, slot)]
            .flags
            .has(EndpointFlags::LOCAL)
    );
    let ops = world.change(vec![set_slice("web", &["10.1.0.1"])]).ops;
    assert!(matches!(&*ops, [Op::Endpoint { .. }]), "{ops:?}");
}

#[test]
fn a_frontend_changes_hands_within_one_step() {
    let mut world = World::new(Limits::default());
    world.change(vec![
        set_service("a", "10.96.0.1"),
        set_slice("a", &["10.1.0.1"]),
        set_slice("b", &["10.1.0.2"]),
    ]);
    let outcome = world.change(vec![set_service("b", "10.96.0.1")]);
    let expected = "default/b: 10.96.0.1:80/TCP belongs to Service default/a, whose claim comes \
                    first";
    assert_eq!([expected], *messages(&outcome));
    assert_eq!(["10.1.0.1:8080"], *world.reachable("10.96.0.1"));

    let outcome = world.change(vec![gone("a")]);
    assert_eq!(["10.1.0.2:8080"], *world.reachable("10.96.0.1"));
    assert!(
        !outcome
            .ops
            .iter()
            .any(|op| matches!(op, Op::FrontendGone { .. }))
    );
}

#[test]
fn a_changed_cluster_ip_moves_the_frontend_and_keeps_the_slots() {
    let mut world = World::new(Limits::default());
    world.change(vec![
        set_service("web", "10.96.0.1"),
        set_slice("web", &["10.1.0.1"]),
    ]);
    let before = world.slot("10.96.0.1", "10.1.0.1");
    let outcome = world.change(vec![set_service("web", "10.96.0.2")]);
    assert_eq!(None, world.tables.reachable(at("10.96.0.1")));
    assert_eq!(before, world.slot("10.96.0.2", "10.1.0.1"));
    assert!(!outcome.ops.iter().any(|op| matches!(op, Op::Set { .. })));
}

#[test]
fn what_failed_is_done_again_as_it_is_right_by_then() {
    let mut world = World::new(Limits::default());
    let first = world.plan.update(
        [
            set_service("web", "10.96.0.1"),
            set_slice("web", &["10.1.0.1", "10.1.0.2"]),
        ],
        Duration::ZERO,
    );
    // Nothing was carried out, and then an endpoint left.
    let second = world
        .plan
        .update([set_slice("web", &["10.1.0.2"])], Duration::ZERO);
    for op in first
        .ops
        .iter()
        .chain(&second.ops)
        .filter_map(|op| world.plan.current(op))
    {
        world.tables.apply(&op);
    }
    assert_eq!(["10.1.0.2:8080"], *world.reachable("10.96.0.1"));
    assert_eq!(world.tables.records[&(Family::V4, 0)].generation, 1);
}

/// Endpoints keep their generations when a frontend goes, or all flows of the service port would
/// draw again. A flow that leads there finds by its frontend that it is over.
#[test]
fn only_the_flows_of_a_frontend_are_over_when_it_goes() {
    let udp = |name: &str, ip: &str| {
        let service = service(name, ip, &[("", Protocol::Udp, 53)]);
        Change::Set(Object::Service(service.into()))
    };
    let endpoints = |service: &str, addr: &str| {
        let ports = &[("", Protocol::Udp, 5353)];
        Change::Set(Object::Slice(slice(service, "a", ports, &[endpoint(addr)])))
    };
    let mut world = World::new(Limits::default());
    world.change(vec![
        udp("a", "10.96.0.1"),
        endpoints("a", "10.1.0.1"),
        endpoints("b", "10.1.0.2"),
    ]);
    let at = Socket {
        addr: "10.96.0.1".parse().unwrap(),
        port: 53,
        proto: Proto::UDP,
    };
    let value = world.tables.frontends[&at];
    let slot = world.tables.sets[&value.inside.base()].endpoint;
    let chosen = world.tables.records[&(Family::V4, slot)];
    world.change(vec![udp("a", "10.96.0.9"), udp("b", "10.96.0.1")]);
    assert_eq!(chosen, world.tables.records[&(Family::V4, slot)]);
    assert_ne!(value.service, world.tables.frontends[&at].service);
}
