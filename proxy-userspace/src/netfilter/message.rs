//! From a table to the messages that make it.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, Cmp, DataAttribute, Expressions, Hook as HookAttribute,
    HookNumber, Immediate, InetHookNumber, ListAttribute, Lookup, NfTablesMessage, Operator,
    Payload, Register, RuleAttribute, RuleMessage, SetAttribute, SetElementAttribute,
    SetElementList, SetElementMessage, SetFlags, SetMessage, TableAttribute, TableFlags,
    TableMessage, Verdict, VerdictAttribute,
};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};

use super::attribute::{self, Count};
use super::table::{Chain, Hook, Statement, Table};
use crate::model::Family;

/// A message of nftables with its flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) flags: u16,
    pub(super) message: NetfilterMessage,
}

/// `NFT_PAYLOAD_NETWORK_HEADER`.
const NETWORK_HEADER: u32 = 1;
/// `NF_DROP`.
const NF_DROP: u32 = 0;
/// `NF_ACCEPT`.
const NF_ACCEPT: u32 = 1;
/// `RTN_LOCAL`.
const RTN_LOCAL: u32 = 2;

/// The kernel takes an attribute of up to 65,535 bytes; an IPv6 element takes 28.
const ELEMENTS_EACH: usize = 2_000;

impl Request {
    fn new(family: Family, flags: u16, message: NfTablesMessage) -> Self {
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
    pub(super) fn delete_table(table: &Table) -> Self {
        let attributes = vec![TableAttribute::Name(table.name.to_owned())];
        let message = NfTablesMessage::DeleteTable(TableMessage { attributes });
        Self::new(table.family, 0, message)
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
    pub(super) fn new_set(table: &Table, set: &str, id: u32) -> Self {
        let attributes = vec![
            SetAttribute::Table(table.name.to_owned()),
            SetAttribute::Name(set.to_owned()),
            SetAttribute::Flags(SetFlags::empty()),
            SetAttribute::KeyType(key_type(table.family)),
            SetAttribute::KeyLen(address_length(table.family)),
            SetAttribute::Id(id),
        ];
        let message = NfTablesMessage::NewSet(SetMessage { attributes });
        Self::new(table.family, NLM_F_CREATE, message)
    }

    /// Makes a counter, or leaves the one that is there as it is.
    pub(super) fn new_counter(table: &Table, counter: &str, from: Count) -> Self {
        let attributes = attribute::counter(table.name, counter, from);
        let message = NfTablesMessage::NewObject(attributes);
        Self::new(table.family, NLM_F_CREATE, message)
    }

    /// Makes a chain without rules.
    pub(super) fn new_chain(table: &Table, chain: &Chain) -> Self {
        let hook = match chain.hook {
            Hook::Prerouting => InetHookNumber::PreRouting,
            Hook::Output => InetHookNumber::LocalOut,
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
            ChainAttribute::Type("filter".to_owned()),
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

    /// Puts elements into a set. One that is there already is no error.
    pub(super) fn add_elements(table: &Table, set: &str, addresses: &[IpAddr]) -> Vec<Self> {
        let messages = elements(table, set, addresses).map(NfTablesMessage::NewSetElement);
        messages
            .map(|message| Self::new(table.family, NLM_F_CREATE, message))
            .collect()
    }

    /// Takes elements out of a set, all of which must be there.
    pub(super) fn delete_elements(table: &Table, set: &str, addresses: &[IpAddr]) -> Vec<Self> {
        let messages = elements(table, set, addresses).map(NfTablesMessage::DeleteSetElement);
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

fn elements(
    table: &Table,
    set: &str,
    addresses: &[IpAddr],
) -> impl Iterator<Item = SetElementMessage> {
    addresses.chunks(ELEMENTS_EACH).map(move |addresses| {
        let elements = addresses.iter().map(|address| {
            let value = match address {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            ListAttribute::Element(vec![SetElementAttribute::Key(DataAttribute::Value(value))])
        });
        SetElementMessage {
            attributes: vec![
                SetElementList::Table(table.name.to_owned()),
                SetElementList::Set(set.to_owned()),
                SetElementList::Elements(elements.collect()),
            ],
        }
    })
}

fn expressions(statement: Statement, family: Family) -> Vec<Expressions> {
    match statement {
        Statement::DestinationIn(set) => vec![
            Expressions::Payload(vec![
                Payload::DestinationRegister(Register::Reg1),
                Payload::Base(NETWORK_HEADER),
                Payload::Offset(destination_offset(family)),
                Payload::Len(address_length(family)),
            ]),
            Expressions::Lookup(vec![
                Lookup::Set(set.to_owned()),
                Lookup::SourceRegister(Register::Reg1),
            ]),
        ],
        Statement::DestinationElsewhere => vec![
            attribute::destination_type(Register::Reg1),
            Expressions::Cmp(vec![
                Cmp::SourceRegister(Register::Reg1),
                Cmp::Op(Operator::NotEqual),
                Cmp::Data(DataAttribute::Value(RTN_LOCAL.to_ne_bytes().to_vec())),
            ]),
        ],
        Statement::Count(counter) => vec![attribute::count(counter)],
        Statement::Drop => vec![Expressions::Immediate(vec![
            Immediate::DestinationRegister(Register::Verdict),
            Immediate::Data(DataAttribute::Verdict(vec![VerdictAttribute::Code(
                Verdict::Other(NF_DROP),
            )])),
        ])],
    }
}

/// What the kernel does not look at; `nft` reads it as `ipv4_addr` and `ipv6_addr`.
const fn key_type(family: Family) -> u32 {
    match family {
        Family::V4 => 7,
        Family::V6 => 8,
    }
}

/// Bytes of an address.
pub(super) const fn address_length(family: Family) -> u32 {
    match family {
        Family::V4 => 4,
        Family::V6 => 16,
    }
}

/// Bytes of the IP header before the destination.
const fn destination_offset(family: Family) -> u32 {
    match family {
        Family::V4 => 16,
        Family::V6 => 24,
    }
}
