//! Attributes that `netlink-packet-netfilter` has no types for. Values are in network order.
//!
//! Numbers are those of the kernel's `include/uapi/linux/netfilter/nf_tables.h`.

use netlink_packet_core::{DefaultNla, Emitable as _, NLA_F_NESTED, NLA_HEADER_SIZE, NlasIterator};
use netlink_packet_netfilter::nftables::{Expressions, Register};

/// `NFT_OBJECT_COUNTER`.
const COUNTER: u32 = 1;

const NFTA_OBJ_TABLE: u16 = 1;
const NFTA_OBJ_NAME: u16 = 2;
const NFTA_OBJ_TYPE: u16 = 3;
const NFTA_OBJ_DATA: u16 = 4;

const NFTA_COUNTER_BYTES: u16 = 1;
const NFTA_COUNTER_PACKETS: u16 = 2;

const NFTA_OBJREF_IMM_TYPE: u16 = 1;
const NFTA_OBJREF_IMM_NAME: u16 = 2;

const NFTA_FIB_DREG: u16 = 1;
const NFTA_FIB_RESULT: u16 = 2;
const NFTA_FIB_FLAGS: u16 = 3;
const NFT_FIB_RESULT_ADDRTYPE: u32 = 3;
const NFTA_FIB_F_DADDR: u32 = 1 << 1;

const NFTA_CT_DREG: u16 = 1;
const NFTA_CT_KEY: u16 = 2;
const NFT_CT_STATE: u32 = 0;

const NFTA_MASQ_FLAGS: u16 = 1;
const NF_NAT_RANGE_PROTO_RANDOM_FULLY: u32 = 1 << 4;

const NFTA_REJECT_TYPE: u16 = 1;
const NFTA_REJECT_ICMP_CODE: u16 = 2;
const NFT_REJECT_ICMP_UNREACH: u32 = 0;

/// What a counter has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
}

/// An object of any type in a table: all, or the one of this name.
pub(super) fn object(table: &str, name: Option<&str>) -> Vec<DefaultNla> {
    let mut all = vec![text(NFTA_OBJ_TABLE, table)];
    if let Some(name) = name {
        all.push(text(NFTA_OBJ_NAME, name));
        all.push(number(NFTA_OBJ_TYPE, COUNTER));
    }
    all
}

/// A counter that begins with a count.
pub(super) fn counter(table: &str, name: &str, count: Count) -> Vec<DefaultNla> {
    let mut all = object(table, Some(name));
    let data = [
        DefaultNla::new(NFTA_COUNTER_BYTES, count.bytes.to_be_bytes().to_vec()),
        DefaultNla::new(NFTA_COUNTER_PACKETS, count.packets.to_be_bytes().to_vec()),
    ];
    let mut nested = vec![0; data.as_slice().buffer_len()];
    data.as_slice().emit(&mut nested);
    all.push(DefaultNla::new(NFTA_OBJ_DATA | NLA_F_NESTED, nested));
    all
}

/// Table, name and count of an object; no count unless it is a counter.
pub(super) fn parse_object(attributes: &[u8]) -> Option<(String, String, Option<Count>)> {
    let table = find(attributes, NFTA_OBJ_TABLE)?;
    let name = find(attributes, NFTA_OBJ_NAME)?;
    let kind = find(attributes, NFTA_OBJ_TYPE)?;
    let count = || {
        let data = find(attributes, NFTA_OBJ_DATA)?;
        let word = |kind| Some(u64::from_be_bytes(find(data, kind)?.try_into().ok()?));
        Some(Count {
            packets: word(NFTA_COUNTER_PACKETS)?,
            bytes: word(NFTA_COUNTER_BYTES)?,
        })
    };
    let count = (kind == COUNTER.to_be_bytes()).then(count).flatten();
    Some((string(table), string(name), count))
}

/// Counts the packet by the counter of this name.
pub(super) fn count(counter: &str) -> Expressions {
    Expressions::Other {
        expression_type: "objref".to_owned(),
        attributes: vec![
            number(NFTA_OBJREF_IMM_TYPE, COUNTER),
            text(NFTA_OBJREF_IMM_NAME, counter),
        ],
    }
}

/// Loads the type of the destination address (`RTN_…`, in the machine's order) into a register.
pub(super) fn destination_type(register: Register) -> Expressions {
    Expressions::Other {
        expression_type: "fib".to_owned(),
        attributes: vec![
            number(NFTA_FIB_DREG, register.into()),
            number(NFTA_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE),
            number(NFTA_FIB_FLAGS, NFTA_FIB_F_DADDR),
        ],
    }
}

/// Loads what conntrack calls the packet (a bit of `NF_CT_STATE_…`, in the machine's order) into a
/// register.
pub(super) fn conntrack_state(register: Register) -> Expressions {
    Expressions::Other {
        expression_type: "ct".to_owned(),
        attributes: vec![
            number(NFTA_CT_DREG, register.into()),
            number(NFTA_CT_KEY, NFT_CT_STATE),
        ],
    }
}

/// Masquerades with a port that is drawn, so that two connections that begin at once do not get the
/// same.
pub(super) fn masquerade() -> Expressions {
    Expressions::Other {
        expression_type: "masq".to_owned(),
        attributes: vec![number(NFTA_MASQ_FLAGS, NF_NAT_RANGE_PROTO_RANDOM_FULLY)],
    }
}

/// Drops the packet and answers that its destination is unreachable, with a code of ICMP.
pub(super) fn reject(code: u8) -> Expressions {
    Expressions::Other {
        expression_type: "reject".to_owned(),
        attributes: vec![
            number(NFTA_REJECT_TYPE, NFT_REJECT_ICMP_UNREACH),
            DefaultNla::new(NFTA_REJECT_ICMP_CODE, vec![code]),
        ],
    }
}

/// The value of the first attribute of a kind.
pub(super) fn find(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    all(attributes).find_map(|(own, value)| (own == kind).then_some(value))
}

/// The kind and value of each attribute.
pub(super) fn all(attributes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let all = NlasIterator::new(attributes).map_while(Result::ok);
    all.filter_map(|attribute| {
        let (kind, end) = (attribute.kind(), usize::from(attribute.length()));
        Some((kind, attribute.into_inner().get(NLA_HEADER_SIZE..end)?))
    })
}

/// A string as the kernel writes it, with a zero at its end.
pub(super) fn string(value: &[u8]) -> String {
    let value = value.strip_suffix(&[0]).unwrap_or(value);
    String::from_utf8_lossy(value).into_owned()
}

pub(super) fn number(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_be_bytes().to_vec())
}

pub(super) fn text(kind: u16, value: &str) -> DefaultNla {
    let mut bytes = value.as_bytes().to_vec();
    bytes.push(0);
    DefaultNla::new(kind, bytes)
}
