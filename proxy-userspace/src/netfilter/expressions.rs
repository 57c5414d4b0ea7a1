//! From the statements of a rule to the expressions of the kernel.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_netfilter::nftables::{
    Bitwise, Cmp, DataAttribute, Expressions, Immediate, Lookup, Meta, MetaKey, Operator, Payload,
    Register, Verdict, VerdictAttribute,
};

use super::attribute;
use super::table::{Key, State, Statement};
use crate::model::Family;

/// `NFT_PAYLOAD_NETWORK_HEADER`.
const NETWORK_HEADER: u32 = 1;
/// `NFT_PAYLOAD_TRANSPORT_HEADER`.
const TRANSPORT_HEADER: u32 = 2;
/// Bytes of a TCP, UDP or SCTP header before the destination port, and of that.
const PORT: (u32, u32) = (2, 2);
/// `NF_DROP`.
const NF_DROP: u32 = 0;
/// `NF_ACCEPT`.
const NF_ACCEPT: u32 = 1;
/// `RTN_LOCAL`.
const RTN_LOCAL: u32 = 2;
/// `NF_CT_STATE_INVALID_BIT`.
const STATE_INVALID: u32 = 1;
/// `NF_CT_STATE_BIT(IP_CT_NEW)`.
const STATE_NEW: u32 = 1 << 3;
/// `ICMP_PORT_UNREACH`.
const ICMP_PORT_UNREACHABLE: u8 = 3;
/// `ICMPV6_PORT_UNREACH`.
const ICMPV6_PORT_UNREACHABLE: u8 = 4;

/// What all statements but those with a place of their own load into.
const ONE: Register = Register::Reg1;

/// The expressions of a statement.
pub(super) fn expressions(statement: Statement, family: Family) -> Vec<Expressions> {
    match statement {
        Statement::DestinationIn(set) => {
            let mut all = vec![destination(family)];
            if let Key::Port = set.key {
                all.extend(port(family));
            }
            all.push(Expressions::Lookup(vec![
                Lookup::Set(set.name.to_owned()),
                Lookup::SourceRegister(ONE),
            ]));
            all
        }
        Statement::DestinationWithin(range) => within(range, family),
        Statement::DestinationElsewhere => vec![
            attribute::destination_type(ONE),
            compare(Operator::NotEqual, RTN_LOCAL.to_ne_bytes().to_vec()),
        ],
        Statement::Marked(bits) => marked(bits),
        Statement::Unmarked(bits) => {
            vec![
                mark(),
                keep_bits(bits),
                compare(Operator::Equal, vec![0; 4]),
            ]
        }
        Statement::In(state) => any_state(match state {
            State::New => STATE_NEW,
            State::Invalid => STATE_INVALID,
        }),
        Statement::ClearMark(bits) => vec![
            mark(),
            keep_bits(!bits),
            Expressions::Meta(vec![Meta::Key(MetaKey::Mark), Meta::SourceRegister(ONE)]),
        ],
        Statement::Count(counter) => vec![attribute::count(counter.key())],
        Statement::Masquerade => vec![attribute::masquerade()],
        Statement::Reject => vec![attribute::reject(match family {
            Family::V4 => ICMP_PORT_UNREACHABLE,
            Family::V6 => ICMPV6_PORT_UNREACHABLE,
        })],
        Statement::Drop => vec![verdict(NF_DROP)],
    }
}

/// Goes on if the mark has any of these bits.
pub(super) fn marked(bits: u32) -> Vec<Expressions> {
    vec![
        mark(),
        keep_bits(bits),
        compare(Operator::NotEqual, vec![0; 4]),
    ]
}

/// Goes on if conntrack calls the packet by any of these bits (`NF_CT_STATE_…`).
pub(super) fn any_state(bits: u32) -> Vec<Expressions> {
    vec![
        attribute::conntrack_state(ONE),
        keep_bits(bits),
        compare(Operator::NotEqual, vec![0; 4]),
    ]
}

/// Lets the packet go on to the next chain.
pub(super) fn accept() -> Expressions {
    verdict(NF_ACCEPT)
}

fn verdict(code: u32) -> Expressions {
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Verdict),
        Immediate::Data(DataAttribute::Verdict(vec![VerdictAttribute::Code(
            Verdict::Other(code),
        )])),
    ])
}

/// Loads the mark, in the machine's order.
fn mark() -> Expressions {
    Expressions::Meta(vec![
        Meta::Key(MetaKey::Mark),
        Meta::DestinationRegister(ONE),
    ])
}

fn keep_bits(bits: u32) -> Expressions {
    mask(bits.to_ne_bytes().to_vec())
}

fn mask(mask: Vec<u8>) -> Expressions {
    let length = u32::try_from(mask.len()).unwrap_or_default();
    Expressions::Bitwise(vec![
        Bitwise::SourceRegister(ONE),
        Bitwise::DestinationRegister(ONE),
        Bitwise::Length(length),
        Bitwise::Xor(DataAttribute::Value(vec![0; mask.len()])),
        Bitwise::Mask(DataAttribute::Value(mask)),
    ])
}

fn compare(operator: Operator, value: Vec<u8>) -> Expressions {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(ONE),
        Cmp::Op(operator),
        Cmp::Data(DataAttribute::Value(value)),
    ])
}

fn destination(family: Family) -> Expressions {
    let (offset, length) = (destination_offset(family), address_length(family));
    payload(ONE, NETWORK_HEADER, (offset, length))
}

/// Loads protocol and destination port behind the address that was loaded.
fn port(family: Family) -> [Expressions; 2] {
    let (proto, port) = match family {
        Family::V4 => (Register::Reg32_01, Register::Reg32_02),
        Family::V6 => (Register::Reg32_04, Register::Reg32_05),
    };
    [
        Expressions::Meta(vec![
            Meta::Key(MetaKey::L4Proto),
            Meta::DestinationRegister(proto),
        ]),
        payload(port, TRANSPORT_HEADER, PORT),
    ]
}

fn within(range: IpNet, family: Family) -> Vec<Expressions> {
    vec![
        destination(family),
        mask(octets(range.netmask())),
        compare(Operator::Equal, octets(range.network())),
    ]
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn payload(register: Register, base: u32, (offset, length): (u32, u32)) -> Expressions {
    Expressions::Payload(vec![
        Payload::DestinationRegister(register),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(length),
    ])
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
