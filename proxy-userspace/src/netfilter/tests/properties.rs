//! Whatever happens in whatever order, the set ends with what it should hold.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::super::accepts::FoundAccept as Accept;
use super::super::addresses::ClusterIps;
use super::super::batch::replies;
use super::super::destination::Destination;
use super::super::elements::{ElementChange, Elements};
use super::super::events::foreign;
use super::super::found::Found;
use super::super::wanted::TABLE;
use super::{MODES, address};
use crate::config::Mode;
use crate::model::{Change, Object, ObjectKey, ObjectName, Protocol, Service, ServicePort};

/// What can happen to a set.
#[derive(Clone, Debug)]
enum Event {
    Declare(BTreeSet<u8>),
    Withdraw(BTreeSet<u8>),
    Complete,
    /// Somebody else changes the set.
    Foreign(BTreeSet<u8>),
    /// Everything is looked at.
    Look,
    /// The kernel refuses these from now on.
    Refuse(BTreeSet<u8>),
}

fn some() -> impl Strategy<Value = BTreeSet<u8>> {
    btree_set(0..12_u8, 0..5)
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        some().prop_map(Event::Declare),
        some().prop_map(Event::Withdraw),
        Just(Event::Complete),
        some().prop_map(Event::Foreign),
        Just(Event::Look),
        some().prop_map(Event::Refuse),
    ]
}

/// The set in the kernel.
#[derive(Debug, Default)]
struct Kernel {
    held: BTreeSet<Destination>,
    refuses: BTreeSet<Destination>,
}

impl Kernel {
    fn carry_out(&mut self, change: &ElementChange, elements: &mut Elements) {
        for address in &change.remove {
            self.held.remove(address);
            elements.note_removed(*address);
        }
        for address in &change.add {
            if !self.refuses.contains(address) {
                self.held.insert(*address);
                elements.note_added(*address);
            }
        }
    }
}

fn addresses(all: &BTreeSet<u8>) -> BTreeSet<Destination> {
    all.iter().copied().map(address).collect()
}

fn service(name: ObjectName, addresses: &BTreeSet<u8>, ports: &BTreeSet<u8>) -> Service {
    let cluster_ips = addresses.iter().map(|own| address(*own).address).collect();
    let ports = ports.iter().map(|own| ServicePort {
        name: own.to_string().into(),
        protocol: [Protocol::Tcp, Protocol::Udp][usize::from(own % 2)],
        port: u16::from(own / 2) + 80,
        node_port: 0,
    });
    Service::new(name, cluster_ips, ports.collect())
}

/// What these Services have together.
fn guarded(mode: Mode, services: &BTreeMap<u8, Service>) -> BTreeSet<Destination> {
    let mut all = BTreeSet::new();
    for service in services.values() {
        for address in &service.cluster_ips {
            match mode {
                Mode::Nftables => drop(all.insert(Destination::address(*address))),
                Mode::Iptables => all.extend(
                    service
                        .ports
                        .iter()
                        .map(|port| Destination::port(*address, port.protocol.into(), port.port)),
                ),
            }
        }
    }
    all
}

proptest! {
    #[test]
    fn a_set_ends_with_what_is_declared(
        former in some(),
        events in vec(event(), 0..30),
    ) {
        let mut kernel = Kernel { held: addresses(&former), ..Kernel::default() };
        let mut elements = Elements::default();
        elements.note_held(kernel.held.clone());
        let mut declared = BTreeSet::new();
        let mut kept = addresses(&former);
        for event in events.into_iter().chain([Event::Refuse(BTreeSet::new()), Event::Look]) {
            match event {
                Event::Declare(some) => {
                    let some = addresses(&some);
                    for address in &some {
                        elements.declare(*address);
                    }
                    declared.extend(some.iter().copied());
                    let change = elements.change_of(&some);
                    prop_assert!(change.add.iter().all(|address| some.contains(address)));
                    prop_assert!(change.remove.is_empty());
                    kernel.carry_out(&change, &mut elements);
                }
                Event::Withdraw(some) => {
                    let some = addresses(&some);
                    for address in &some {
                        elements.withdraw(*address);
                    }
                    declared.retain(|address| !some.contains(address));
                    kept.retain(|address| !some.contains(address));
                    let change = elements.change_of(&some);
                    prop_assert!(change.remove.iter().all(|address| some.contains(address)));
                    prop_assert!(change.add.is_empty());
                    kernel.carry_out(&change, &mut elements);
                }
                Event::Complete => {
                    elements.complete();
                    kept.clear();
                }
                Event::Foreign(some) => kernel.held = addresses(&some),
                Event::Refuse(some) => kernel.refuses = addresses(&some),
                Event::Look => {
                    elements.note_held(kernel.held.clone());
                    let change = elements.change();
                    kernel.carry_out(&change, &mut elements);
                    let wanted: BTreeSet<_> = declared.union(&kept).copied().collect();
                    let missing: BTreeSet<_> = wanted.difference(&kernel.held).collect();
                    prop_assert!(missing.iter().all(|address| kernel.refuses.contains(address)));
                    prop_assert!(kernel.held.is_subset(&wanted));
                    prop_assert_eq!(kernel.held.len(), elements.served());
                }
            }
        }
        prop_assert_eq!(declared.union(&kept).copied().collect::<BTreeSet<_>>(), kernel.held);
    }

    #[test]
    fn what_is_guarded_is_that_of_any_service(
        steps in vec(vec((0..4_u8, some(), some()), 1..4), 1..12),
    ) {
        for mode in MODES {
            let mut ips = ClusterIps::new(mode);
            let mut services = BTreeMap::new();
            for step in &steps {
                let before = guarded(mode, &services);
                let mut changes = Vec::new();
                for (number, some, ports) in step {
                    let name = ObjectName::new("default", &number.to_string());
                    changes.push(if some.is_empty() {
                        services.remove(number);
                        Change::Gone(ObjectKey::Service(name))
                    } else {
                        let service = service(name, some, ports);
                        services.insert(*number, service.clone());
                        Change::Set(Object::Service(service.into()))
                    });
                }
                let delta = ips.note(&changes);
                let after = guarded(mode, &services);
                prop_assert_eq!(&after - &before, delta.added);
                prop_assert_eq!(&before - &after, delta.gone);
            }
        }
    }

    #[test]
    fn nothing_that_comes_from_a_socket_is_a_panic(bytes in vec(any::<u8>(), 0..200)) {
        replies(&bytes).for_each(drop);
        foreign(&bytes, Some(1));
        let mut found = Found::default();
        found.note_table(TABLE, bytes.clone());
        found.note_chain(TABLE, bytes.clone());
        found.note_rule(TABLE, bytes.clone());
        found.note_set(TABLE, &bytes);
        found.note_object(TABLE, &bytes);
        found.note_elements(&bytes);
        Accept::parse(&bytes);
    }
}
