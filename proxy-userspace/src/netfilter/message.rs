//! From a table to the messages that make it.

use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, DataAttribute, Hook as HookAttribute, HookNumber, InetHookNumber,
    ListAttribute, NfTablesMessage, RuleAttribute, RuleMessage, SetAttribute, SetElementAttribute,
    SetElementList, SetElementMessage, SetFlags, SetMessage, TableAttribute, TableFlags,
    TableMessage,
};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};

use super::attribute::{self, Count};
use super::counter::Counter;
use super::destination::Destination;
use super::expressions::{address_length, expressions};
use super::table::{Chain, Hook, Key, Kind, Set, Statement, Table};
use crate::model::Family;

/// A message of nftables with its flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) flags: u16,
    pub(super) message: NetfilterMessage,
}

/// `NF_ACCEPT`.
const NF_ACCEPT: u32 = 1;

/// The kernel takes an attribute of up to 65,535 bytes; a port of an IPv6 address takes 36.
const ELEMENTS_EACH: usize = 1_800;

impl Request {
    pub(super) fn new(family: Family, flags: u16, message: NfTablesMessage) -> Self {
        let family = match family {
            Family::V4 => NetfilterProtoFamily::IPv4,
            Family::V6 => NetfilterProtoFamily::IPv6,
        };
        let header = NetfilterHeader::new(family, 0, 0);
        Self {
            flags: NLM_F_REQUEST | flags,
            message: NetfilterMessage::new(header, message),
        }
    }

    /// Makes a table, or wakes one that is dormant.
    pub(super) fn new_table(table: &Table) -> Self {
        let attributes = vec![
            TableAttribute::Name(table.name.to_owned()),
            TableAttribute::Flags(TableFlags::empty()),
        ];
        let message = NfTablesMessage::NewTable(TableMessage { attributes });
        Self::new(table.family, NLM_F_CREATE, message)
    }

    /// Deletes a table with all that is in it.
    pub(super) fn delete_table(family: Family, table: &str) -> Self {
        let attributes = vec![TableAttribute::Name(table.to_owned())];
        let message = NfTablesMessage::DeleteTable(TableMessage { attributes });
        Self::new(family, 0, message)
    }

    /// Deletes all rules of a table.
    pub(super) fn delete_rules(table: &Table) -> Self {
        let attributes = vec![RuleAttribute::Table(table.name.to_owned())];
        let message = NfTablesMessage::DeleteRule(RuleMessage { attributes });
        Self::new(table.family, 0, message)
    }

    /// Deletes a chain, which must have lost its rules.
    pub(super) fn delete_chain(table: &Table, chain: &str) -> Self {
        let attributes = vec![
            ChainAttribute::Table(table.name.to_owned()),
            ChainAttribute::Name(chain.to_owned()),
        ];
        let message = NfTablesMessage::DeleteChain(ChainMessage { attributes });
        Self::new(table.family, 0, message)
    }

    /// Deletes a set, which no rule may name any more.
    pub(super) fn delete_set(table: &Table, set: &str) -> Self {
        let attributes = vec![
            SetAttribute::Table(table.name.to_owned()),
            SetAttribute::Name(set.to_owned()),
        ];
        let message = NfTablesMessage::DeleteSet(SetMessage { attributes });
        Self::new(table.family, 0, message)
    }

    /// Makes an empty set; `id` tells it from the others of its batch.
    pub(super) fn new_set(table: &Table, set: Set, id: u32) -> Self {
        let attributes = vec![
            SetAttribute::Table(table.name.to_owned()),
            SetAttribute::Name(set.name.to_owned()),
            SetAttribute::Flags(SetFlags::empty()),
            SetAttribute::KeyType(key_type(set.key, table.family)),
            SetAttribute::KeyLen(key_length(set.key, table.family)),
            SetAttribute::Id(id),
        ];
        let message = NfTablesMessage::NewSet(SetMessage { attributes });
        Self::new(table.family, NLM_F_CREATE, message)
    }

    /// Makes a counter, or leaves the one that is there as it is.
    pub(super) fn new_counter(table: &Table, counter: Counter, from: Count) -> Self {
        let attributes = attribute::counter(table.name, counter.key(), from);
        let message = NfTablesMessage::NewObject(attributes);
        Self::new(table.family, NLM_F_CREATE, message)
    }

    /// Deletes a counter, which no rule may name any more.
    pub(super) fn delete_counter(table: &Table, counter: &str) -> Self {
        let attributes = attribute::object(table.name, Some(counter));
        Self::new(table.family, 0, NfTablesMessage::DeleteObject(attributes))
    }

    /// Makes a chain without rules.
    pub(super) fn new_chain(table: &Table, chain: &Chain) -> Self {
        let hook = match chain.hook {
            Hook::Prerouting => InetHookNumber::PreRouting,
            Hook::Input => InetHookNumber::LocalIn,
            Hook::Forward => InetHookNumber::Forward,
            Hook::Output => InetHookNumber::LocalOut,
            Hook::Postrouting => InetHookNumber::PostRouting,
        };
        let kind = match chain.kind {
            Kind::Filter => "filter",
            Kind::Nat => "nat",
        };
        let hook = vec![
            HookAttribute::Number(HookNumber::Inet(hook)),
            HookAttribute::Priority(chain.priority.cast_unsigned()),
        ];
        let attributes = vec![
            ChainAttribute::Table(table.name.to_owned()),
            ChainAttribute::Name(chain.name.to_owned()),
            ChainAttribute::Hook(hook),
            ChainAttribute::Policy(NF_ACCEPT),
            ChainAttribute::Type(kind.to_owned()),
        ];
        let message = NfTablesMessage::NewChain(ChainMessage { attributes });
        Self::new(table.family, NLM_F_CREATE, message)
    }

    /// Puts a rule at the end of a chain.
    pub(super) fn new_rule(table: &Table, chain: &Chain, rule: &[Statement]) -> Self {
        let expressions = rule
            .iter()
            .flat_map(|statement| expressions(*statement, table.family));
        let attributes = vec![
            RuleAttribute::Table(table.name.to_owned()),
            RuleAttribute::Chain(chain.name.to_owned()),
            RuleAttribute::Expressions(expressions.map(ListAttribute::from).collect()),
        ];
        let message = NfTablesMessage::NewRule(RuleMessage { attributes });
        Self::new(table.family, NLM_F_CREATE | NLM_F_APPEND, message)
    }

    /// Puts elements into the set. One that is there already is no error.
    pub(super) fn add_elements(table: &Table, destinations: &[Destination]) -> Vec<Self> {
        let messages = elements(table, destinations).map(NfTablesMessage::NewSetElement);
        messages
            .map(|message| Self::new(table.family, NLM_F_CREATE, message))
            .collect()
    }

    /// Takes elements out of the set, all of which must be there.
    pub(super) fn delete_elements(table: &Table, destinations: &[Destination]) -> Vec<Self> {
        let messages = elements(table, destinations).map(NfTablesMessage::DeleteSetElement);
        messages
            .map(|message| Self::new(table.family, 0, message))
            .collect()
    }

    /// Asks for all tables of a family.
    pub(super) fn list_tables(family: Family) -> Self {
        let attributes = Vec::new();
        let message = NfTablesMessage::GetTable(TableMessage { attributes });
        Self::new(family, NLM_F_DUMP, message)
    }

    /// Asks for all chains of a family.
    pub(super) fn list_chains(family: Family) -> Self {
        let attributes = Vec::new();
        let message = NfTablesMessage::GetChain(ChainMessage { attributes });
        Self::new(family, NLM_F_DUMP, message)
    }

    /// Asks for all rules of a chain.
    pub(super) fn list_rules_of_chain(family: Family, table: &str, chain: &str) -> Self {
        let attributes = vec![
            RuleAttribute::Table(table.to_owned()),
            RuleAttribute::Chain(chain.to_owned()),
        ];
        let message = NfTablesMessage::GetRule(RuleMessage { attributes });
        Self::new(family, NLM_F_DUMP, message)
    }

    /// Asks for all rules of a table.
    pub(super) fn list_rules(family: Family, table: &str) -> Self {
        let attributes = vec![RuleAttribute::Table(table.to_owned())];
        let message = NfTablesMessage::GetRule(RuleMessage { attributes });
        Self::new(family, NLM_F_DUMP, message)
    }

    /// Asks for all sets of a table.
    pub(super) fn list_sets(family: Family, table: &str) -> Self {
        let attributes = vec![SetAttribute::Table(table.to_owned())];
        let message = NfTablesMessage::GetSet(SetMessage { attributes });
        Self::new(family, NLM_F_DUMP, message)
    }

    /// Asks for all elements of a set.
    pub(super) fn list_elements(family: Family, table: &str, set: &str) -> Self {
        let attributes = vec![
            SetElementList::Table(table.to_owned()),
            SetElementList::Set(set.to_owned()),
        ];
        let message = NfTablesMessage::GetSetElement(SetElementMessage { attributes });
        Self::new(family, NLM_F_DUMP, message)
    }

    /// Asks for all named objects of a table.
    pub(super) fn list_objects(family: Family, table: &str) -> Self {
        let message = NfTablesMessage::GetObject(attribute::object(table, None));
        Self::new(family, NLM_F_DUMP, message)
    }
}

fn elements(table: &Table, all: &[Destination]) -> impl Iterator<Item = SetElementMessage> {
    all.chunks(ELEMENTS_EACH).map(|some| {
        let elements = some.iter().map(|destination| {
            let value = DataAttribute::Value(destination.bytes());
            ListAttribute::Element(vec![SetElementAttribute::Key(value)])
        });
        SetElementMessage {
            attributes: vec![
                SetElementList::Table(table.name.to_owned()),
                SetElementList::Set(table.set.name.to_owned()),
                SetElementList::Elements(elements.collect()),
            ],
        }
    })
}

/// `TYPE_INET_PROTOCOL` of `nft`.
const INET_PROTO: u32 = 12;
/// `TYPE_INET_SERVICE` of `nft`.
const INET_SERVICE: u32 = 13;

/// What the kernel does not look at; `nft` reads it as `ipv4_addr` or `ipv6_addr`, and behind that,
/// six bits each, `inet_proto` and `inet_service`.
const fn key_type(key: Key, family: Family) -> u32 {
    let address = match family {
        Family::V4 => 7,
        Family::V6 => 8,
    };
    match key {
        Key::Address => address,
        Key::Port => (address << 6 | INET_PROTO) << 6 | INET_SERVICE,
    }
}

/// Bytes of a key.
pub(super) const fn key_length(key: Key, family: Family) -> u32 {
    match key {
        Key::Address => address_length(family),
        Key::Port => address_length(family) + 8,
    }
}
