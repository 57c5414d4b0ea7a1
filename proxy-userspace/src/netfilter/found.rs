//! What the kernel has of a table.

use std::collections::{BTreeMap, BTreeSet};

use netlink_packet_core::Parseable as _;
use netlink_packet_netfilter::nftables::{SetAttribute, SetFlags, SetMessage};

use super::attribute::{Count, all, find, parse_object, string};
use super::destination::Destination;
use super::message::key_length;
use super::table::Set;
use crate::model::Family;

const NFTA_TABLE_NAME: u16 = 1;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_DATA_VALUE: u16 = 1;

/// A table as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) shape: Shape,
    pub(super) counters: BTreeMap<String, Count>,
    /// Elements of the set that was asked for.
    pub(super) elements: BTreeSet<Destination>,
}

/// All that stays the same as long as nobody changes the table. Everything carries a handle that
/// the kernel gives once: what was deleted and made again is told from what it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) table: Option<Vec<u8>>,
    pub(super) chains: Vec<(String, Vec<u8>)>,
    pub(super) rules: Vec<Vec<u8>>,
    pub(super) sets: Vec<FoundSet>,
    /// Names of named objects that are no counters.
    pub(super) others: Vec<String>,
    pub(super) counters: Vec<String>,
}

/// A set as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FoundSet {
    pub(super) name: String,
    flags: u32,
    key_length: u32,
    handle: u64,
}

impl FoundSet {
    /// Whether it can serve as this set.
    pub(super) fn is(&self, set: Set, family: Family) -> bool {
        self.name == set.name && self.flags == 0 && self.key_length == key_length(set.key, family)
    }

    /// Whether it goes by itself, with the rule that it is a part of.
    pub(super) const fn is_anonymous(&self) -> bool {
        SetFlags::from_bits_retain(self.flags).contains(SetFlags::Anonymous)
    }
}

impl Found {
    /// Whether a table is there.
    pub(super) const fn is_there(&self) -> bool {
        self.shape.table.is_some()
    }

    /// Takes a table in; whether it is this one.
    pub(super) fn note_table(&mut self, name: &str, attributes: Vec<u8>) {
        if is_named(&attributes, NFTA_TABLE_NAME, name) {
            self.shape.table = Some(attributes);
        }
    }

    /// Takes a chain in.
    pub(super) fn note_chain(&mut self, table: &str, attributes: Vec<u8>) {
        if is_named(&attributes, NFTA_CHAIN_TABLE, table)
            && let Some(name) = find(&attributes, NFTA_CHAIN_NAME)
        {
            self.shape.chains.push((string(name), attributes));
        }
    }

    /// Takes a rule in.
    pub(super) fn note_rule(&mut self, table: &str, attributes: Vec<u8>) {
        if is_named(&attributes, NFTA_RULE_TABLE, table) {
            self.shape.rules.push(attributes);
        }
    }

    /// Takes a set in.
    pub(super) fn note_set(&mut self, table: &str, attributes: &[u8]) {
        let Ok(message) = SetMessage::parse(attributes) else {
            return;
        };
        let mut set = FoundSet::default();
        let mut is_own = false;
        for attribute in message.attributes {
            match attribute {
                SetAttribute::Table(name) => is_own = name == table,
                SetAttribute::Name(name) => set.name = name,
                SetAttribute::Flags(flags) => set.flags = flags.bits(),
                SetAttribute::KeyLen(length) => set.key_length = length,
                SetAttribute::Handle(handle) => set.handle = handle,
                _ => {}
            }
        }
        if is_own {
            self.shape.sets.push(set);
        }
    }

    /// Takes a named object in.
    pub(super) fn note_object(&mut self, table: &str, attributes: &[u8]) {
        let Some((own, name, count)) = parse_object(attributes) else {
            return;
        };
        if own != table {
            return;
        }
        match count {
            Some(count) => {
                self.shape.counters.push(name.clone());
                self.counters.insert(name, count);
            }
            None => self.shape.others.push(name),
        }
    }

    /// Takes elements of the set in.
    ///
    /// Not by `SetElementMessage`, which takes seconds for ten thousand.
    pub(super) fn note_elements(&mut self, attributes: &[u8]) {
        let list = find(attributes, NFTA_SET_ELEM_LIST_ELEMENTS).unwrap_or_default();
        self.elements.extend(all(list).filter_map(|(_, element)| {
            let key = find(element, NFTA_SET_ELEM_KEY)?;
            Destination::parse(find(key, NFTA_DATA_VALUE)?)
        }));
    }
}

fn is_named(attributes: &[u8], kind: u16, name: &str) -> bool {
    find(attributes, kind).is_some_and(|value| string(value) == name)
}
