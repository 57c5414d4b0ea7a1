//! Messages as bytes, and what is done about a table that is found in any state.

mod bytes;
mod properties;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use netlink_packet_netfilter::NetfilterMessageInner;
use netlink_packet_netfilter::nftables::NfTablesMessageType;

use super::attribute::{Count, counter};
use super::change::{rebuild, replace};
use super::found::Found;
use super::kernel::in_halves;
use super::message::Request;
use super::wanted::{CLUSTER_IPS, TABLE, UNTRANSLATED, wanted};
use crate::model::Family;
use NfTablesMessageType as Type;

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 96, 0, last])
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

/// The table as it is after it was made.
fn found(family: Family) -> Found {
    let table = wanted(family);
    let mut found = Found::default();
    found.note_table(TABLE, attributes(&Request::new_table(&table)));
    for chain in &table.chains {
        found.note_chain(TABLE, attributes(&Request::new_chain(&table, chain)));
        for rule in &chain.rules {
            found.note_rule(TABLE, attributes(&Request::new_rule(&table, chain, rule)));
        }
    }
    found.note_set(
        TABLE,
        &attributes(&Request::new_set(&table, CLUSTER_IPS, 1)),
    );
    let count = Count {
        packets: 7,
        bytes: 420,
    };
    let counter = Request::new_counter(&table, UNTRANSLATED, count);
    found.note_object(TABLE, &attributes(&counter));
    found
}

/// What a table has by now if none was found, behind what removes the former.
const CHAINS: [Type; 5] = [
    Type::NewObject,
    Type::NewChain,
    Type::NewRule,
    Type::NewChain,
    Type::NewRule,
];

#[test]
fn a_table_that_is_missing_is_made() {
    let none = BTreeMap::new();
    for family in Family::ALL {
        let made = replace(&wanted(family), &Found::default(), &none);
        let expected = [&[Type::NewTable, Type::NewSet], &CHAINS[..]].concat();
        assert_eq!(expected, types(&made));
    }
}

#[test]
fn rules_and_chains_are_replaced_while_the_set_and_the_counter_stay() {
    for family in Family::ALL {
        let found = found(family);
        assert_eq!(7, found.counters[UNTRANSLATED].packets);
        let made = replace(&wanted(family), &found, &found.counters);
        let former = [
            Type::NewTable,
            Type::DeleteRule,
            Type::DeleteChain,
            Type::DeleteChain,
        ];
        // Making a counter that is there changes nothing.
        assert_eq!([&former, &CHAINS[..]].concat(), types(&made));
    }
}

#[test]
fn a_set_of_another_kind_is_made_anew() {
    let mut other = found(Family::V4);
    let v6 = wanted(Family::V6);
    other.shape.sets.clear();
    other.note_set(TABLE, &attributes(&Request::new_set(&v6, CLUSTER_IPS, 1)));
    other.note_set(TABLE, &attributes(&Request::new_set(&v6, "strange", 2)));
    let made = types(&replace(&wanted(Family::V4), &other, &BTreeMap::new()));
    let sets = [Type::DeleteSet, Type::DeleteSet, Type::NewSet];
    assert_eq!(sets, made[4..7]);
}

#[test]
fn a_table_with_a_strange_object_is_made_anew_with_its_count() {
    let mut other = found(Family::V4);
    // A quota.
    let mut quota = attributes(&Request::new_counter(
        &wanted(Family::V4),
        "strange",
        Count::default(),
    ));
    let kind = 1_u32.to_be_bytes();
    let at = quota.windows(4).position(|window| window == kind).unwrap();
    quota[at + 3] = 2;
    other.note_object(TABLE, &quota);
    let table = wanted(Family::V4);
    let made = replace(&table, &other, &other.counters);
    assert_eq!(rebuild(&table, &other.counters), made);
    let counted = Request::new_counter(&table, UNTRANSLATED, other.counters[UNTRANSLATED]);
    assert!(made.contains(&counted));
}

#[test]
fn what_belongs_to_other_tables_is_not_noted() {
    let found = found(Family::V4);
    let mut none = Found::default();
    let table = wanted(Family::V4);
    none.note_table("kube-lottery-2", attributes(&Request::new_table(&table)));
    none.note_chain(
        "other",
        attributes(&Request::new_chain(&table, &table.chains[0])),
    );
    none.note_object(
        "other",
        &attributes(&Request::new_counter(&table, "a", Count::default())),
    );
    none.note_set("other", &attributes(&Request::new_set(&table, "a", 1)));
    assert_eq!(Found::default(), none);
    assert_eq!(2, found.shape.chains.len());
    assert_eq!(2, found.shape.rules.len());
}

#[test]
fn one_address_that_is_refused_keeps_out_no_other() {
    let table = wanted(Family::V4);
    let all: Vec<_> = (1..=100).map(address).collect();
    let bad = [address(7), address(8), address(100)];
    let mut held = Vec::new();
    let mut batches = 0;
    let mut refused = Vec::new();
    let mut commit = |requests: &[Request]| {
        batches += 1;
        let mut found = Found::default();
        for request in requests {
            found.note_elements(CLUSTER_IPS, &attributes(request));
        }
        let elements = &found.elements[CLUSTER_IPS];
        if bad.iter().any(|bad| elements.contains(bad)) {
            return Err(io::Error::from_raw_os_error(libc::ENFILE));
        }
        held.extend(elements.iter().copied());
        Ok(())
    };
    let make = |addresses: &[IpAddr]| Request::add_elements(&table, CLUSTER_IPS, addresses);
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
    let table = wanted(Family::V6);
    let mut found = Found::default();
    let request = Request::new_counter(&table, UNTRANSLATED, count);
    found.note_object(TABLE, &attributes(&request));
    assert_eq!(count, found.counters[UNTRANSLATED]);
    assert_eq!(4, counter(TABLE, UNTRANSLATED, count).len());
}
