//! The tables as data, messages as bytes, and what is done about a table that is found in any state.

mod bytes;
mod judge;
mod properties;
mod tables;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use netlink_packet_netfilter::NetfilterMessageInner;
use netlink_packet_netfilter::nftables::NfTablesMessageType;
use proxy_common::net::Proto;

use super::attribute::{Count, counter};
use super::change::{rebuild, replace};
use super::counter::Counter;
use super::destination::Destination;
use super::found::Found;
use super::kernel::in_halves;
use super::message::Request;
use super::options::Options;
use super::table::{Set, Table};
use super::wanted::{CLUSTER_IP_PORTS, CLUSTER_IPS, TABLE};
use crate::config::{Config, Mode};
use crate::model::Family;
use NfTablesMessageType as Type;

const MODES: [Mode; 2] = [Mode::Iptables, Mode::Nftables];

fn address(last: u8) -> Destination {
    Destination::address(IpAddr::from([10, 96, 0, last]))
}

fn options(mode: Mode) -> Options {
    let mut options = Options::new(&Config {
        mode,
        ..Config::default()
    });
    let ranges = ["10.96.0.0/16", "fd00:10:96::/112"];
    options.service_cidrs = ranges.map(|range| range.parse().unwrap()).into();
    options
}

fn wanted(family: Family, mode: Mode) -> Table {
    super::wanted::wanted(family, &options(mode))
}

/// A table whose set holds addresses.
fn of_addresses(family: Family) -> Table {
    wanted(family, Mode::Nftables)
}

fn types(requests: &[Request]) -> Vec<Type> {
    let types = requests.iter().map(|request| match &request.message.inner {
        NetfilterMessageInner::NfTables(message) => message.message_type(),
        other => panic!("{other:?}"),
    });
    types.collect()
}

/// The attributes of a message, as a listing brings them.
fn attributes(request: &Request) -> Vec<u8> {
    use netlink_packet_core::Emitable as _;
    let mut bytes = vec![0; request.message.inner.buffer_len()];
    request.message.inner.emit(&mut bytes);
    bytes
}

/// The table as it is after it was made, with 7 packets in each counter.
fn found(table: &Table) -> Found {
    let mut found = Found::default();
    found.note_table(TABLE, attributes(&Request::new_table(table)));
    for chain in &table.chains {
        found.note_chain(TABLE, attributes(&Request::new_chain(table, chain)));
        for rule in &chain.rules {
            found.note_rule(TABLE, attributes(&Request::new_rule(table, chain, rule)));
        }
    }
    found.note_set(TABLE, &attributes(&Request::new_set(table, table.set, 1)));
    for counter in &table.counters {
        let count = Count {
            packets: 7,
            bytes: 420,
        };
        let counter = Request::new_counter(table, *counter, count);
        found.note_object(TABLE, &attributes(&counter));
    }
    found
}

/// What makes counters and chains, behind what removes the former.
fn made_anew(table: &Table) -> Vec<Type> {
    let mut all = vec![Type::NewObject; table.counters.len()];
    for chain in &table.chains {
        all.push(Type::NewChain);
        all.extend(chain.rules.iter().map(|_| Type::NewRule));
    }
    all
}

fn all_tables() -> impl Iterator<Item = Table> {
    let all = MODES.map(|mode| Family::ALL.map(|family| wanted(family, mode)));
    all.into_iter().flatten()
}

#[test]
fn a_table_that_is_missing_is_made() {
    for table in all_tables() {
        let made = replace(&table, &Found::default(), &BTreeMap::new());
        let expected = [vec![Type::NewTable, Type::NewSet], made_anew(&table)].concat();
        assert_eq!(expected, types(&made));
    }
}

#[test]
fn rules_and_chains_are_replaced_while_the_set_and_the_counters_stay() {
    for table in all_tables() {
        let found = found(&table);
        let made = replace(&table, &found, &found.counters);
        let mut former = vec![Type::NewTable, Type::DeleteRule];
        former.extend(table.chains.iter().map(|_| Type::DeleteChain));
        // Making a counter that is there changes nothing.
        assert_eq!([former, made_anew(&table)].concat(), types(&made));
    }
}

#[test]
fn another_mode_replaces_the_set_and_removes_its_counter_in_the_same_batch() {
    for [former, mode] in [MODES, [Mode::Nftables, Mode::Iptables]] {
        for family in Family::ALL {
            let (before, table) = (wanted(family, former), wanted(family, mode));
            let found = found(&before);
            let made = replace(&table, &found, &found.counters);
            let made_types = types(&made);
            let count = |kind| made_types.iter().filter(|own| **own == kind).count();
            let removals = [Type::DeleteRule, Type::DeleteSet, Type::DeleteObject];
            assert_eq!([1, 1, 1], removals.map(count), "{made_types:?}");
            assert_eq!(before.chains.len(), count(Type::DeleteChain));
            assert_eq!(1, count(Type::NewSet));
            let kept = Request::new_counter(
                &table,
                Counter::Untranslated,
                found.counters[Counter::Untranslated.key()],
            );
            assert!(made.contains(&kept));
        }
    }
}

#[test]
fn a_set_of_another_kind_is_made_anew() {
    let table = of_addresses(Family::V4);
    let mut other = found(&table);
    let v6 = of_addresses(Family::V6);
    other.shape.sets.clear();
    let strange = Set {
        name: "strange",
        ..CLUSTER_IPS
    };
    for (set, id) in [CLUSTER_IPS, strange].into_iter().zip(1..) {
        other.note_set(TABLE, &attributes(&Request::new_set(&v6, set, id)));
    }
    let made = types(&replace(&table, &other, &BTreeMap::new()));
    let sets = [Type::DeleteSet, Type::DeleteSet, Type::NewSet];
    assert_eq!(sets, made[2 + table.chains.len()..][..3]);
}

#[test]
fn a_table_with_a_strange_object_is_made_anew_with_its_count() {
    let table = of_addresses(Family::V4);
    let mut other = found(&table);
    // A quota.
    let mut quota = attributes(&Request::new_counter(
        &table,
        Counter::Untranslated,
        Count::default(),
    ));
    let kind = 1_u32.to_be_bytes();
    let at = quota.windows(4).position(|window| window == kind).unwrap();
    quota[at + 3] = 2;
    other.note_object(TABLE, &quota);
    let made = replace(&table, &other, &other.counters);
    assert_eq!(rebuild(&table, &other.counters), made);
    let count = other.counters[Counter::Untranslated.key()];
    let counted = Request::new_counter(&table, Counter::Untranslated, count);
    assert!(made.contains(&counted));
}

#[test]
fn what_belongs_to_other_tables_is_not_noted() {
    let table = of_addresses(Family::V4);
    let found = found(&table);
    let mut none = Found::default();
    none.note_table("kube-lottery-2", attributes(&Request::new_table(&table)));
    none.note_chain(
        "other",
        attributes(&Request::new_chain(&table, &table.chains[0])),
    );
    none.note_object(
        "other",
        &attributes(&Request::new_counter(
            &table,
            Counter::Rejected,
            Count::default(),
        )),
    );
    none.note_set(
        "other",
        &attributes(&Request::new_set(&table, CLUSTER_IPS, 1)),
    );
    assert_eq!(Found::default(), none);
    assert_eq!(table.chains.len(), found.shape.chains.len());
    let rules = table.chains.iter().flat_map(|chain| &chain.rules);
    assert_eq!(rules.count(), found.shape.rules.len());
}

#[test]
fn one_address_that_is_refused_keeps_out_no_other() {
    let table = of_addresses(Family::V4);
    let all: Vec<_> = (1..=100).map(address).collect();
    let bad = [address(7), address(8), address(100)];
    let mut held = Vec::new();
    let mut batches = 0;
    let mut refused = Vec::new();
    let mut commit = |requests: &[Request]| {
        batches += 1;
        let mut found = Found::default();
        for request in requests {
            found.note_elements(&attributes(request));
        }
        let elements = &found.elements;
        if bad.iter().any(|bad| elements.contains(bad)) {
            return Err(io::Error::from_raw_os_error(libc::ENFILE));
        }
        held.extend(elements.iter().copied());
        Ok(())
    };
    let make = |some: &[Destination]| Request::add_elements(&table, some);
    in_halves(&mut commit, &make, &all, &mut refused);
    let refused: Vec<_> = refused.into_iter().map(|(address, _)| address).collect();
    assert_eq!(bad, *refused);
    let good: Vec<_> = all.into_iter().filter(|own| !bad.contains(own)).collect();
    assert_eq!(good, held);
    assert!(batches < 50, "{batches}");
}

#[test]
fn a_count_is_read_as_it_was_written() {
    let count = Count {
        packets: u64::MAX - 1,
        bytes: 5,
    };
    let mut found = Found::default();
    let request = Request::new_counter(&of_addresses(Family::V6), Counter::Invalid, count);
    found.note_object(TABLE, &attributes(&request));
    assert_eq!(count, found.counters["invalid"]);
    assert_eq!(4, counter(TABLE, "invalid", count).len());
}

#[test]
fn elements_are_read_as_they_were_written() {
    let addresses: [IpAddr; 2] = [[10, 96, 0, 10].into(), "fd00:10:96::a".parse().unwrap()];
    for (family, address) in Family::ALL.into_iter().zip(addresses) {
        for (mode, destination) in MODES.into_iter().zip([
            Destination::port(address, Proto::SCTP, 65_534),
            Destination::address(address),
        ]) {
            let table = wanted(family, mode);
            let request = &Request::add_elements(&table, &[destination])[0];
            let mut found = Found::default();
            found.note_elements(&attributes(request));
            assert!(found.elements.iter().eq([&destination]), "{found:?}");
            assert_eq!(
                u32::try_from(destination.bytes().len()).unwrap(),
                super::message::key_length(table.set.key, family)
            );
        }
    }
    assert_ne!(CLUSTER_IPS.name, CLUSTER_IP_PORTS.name);
}
