//! Other addresses and ports for a packet.

use super::header::{Checksum, Wire};
use super::packet::Packet;
use crate::abi::flow::FlowKey as _;
use crate::net::Port;

/// Which address of a packet is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// What a packet is to carry from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<A> {
    /// The address that is replaced: the destination at ingress, the source at egress.
    pub addr: A,
    /// The source port, changed or not.
    pub sport: Port,
    /// The destination port, changed or not.
    pub dport: Port,
}

/// Where the headers of a packet stand.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Offset of the network header, in bytes.
    pub network: usize,
    /// Offset of the transport header, in bytes.
    pub transport: usize,
    /// Length of the transport header and what follows, in bytes.
    pub len: u32,
    /// The transport checksum.
    pub checksum: Checksum,
}

/// Applies a change to a packet with `key`; `None` if the kernel refused, the packet may then be
/// half rewritten and must be dropped.
#[inline(always)]
pub fn rewrite<F: Wire, P: Packet>(
    packet: &mut P,
    place: &Place,
    key: &F::FlowKey,
    side: Side,
    change: &Change<F::Addr>,
) -> Option<()> {
    let (src, dst) = key.addrs();
    let (offset, from) = match side {
        Side::Source => (place.network + F::SRC, src),
        Side::Destination => (place.network + F::DST, dst),
    };
    F::fix_checksums(packet, place.network, place.checksum, from, &change.addr)?;
    F::store_address(packet, offset, &change.addr)?;
    port(
        packet,
        place.transport,
        place.checksum,
        key.sport(),
        change.sport,
    )?;
    port(
        packet,
        place.transport + 2,
        place.checksum,
        key.dport(),
        change.dport,
    )?;
    if place.checksum.is_crc {
        let before = (key.sport(), key.dport());
        return fix_crc(packet, place, before, (change.sport, change.dport));
    }
    Some(())
}

/// Replaces an address of a packet with `key` that has no transport header, and its network header
/// at `network` bytes; `None` if the kernel refused, as above.
#[inline(always)]
pub fn rewrite_address<F: Wire, P: Packet>(
    packet: &mut P,
    network: usize,
    key: &F::FlowKey,
    side: Side,
    to: &F::Addr,
) -> Option<()> {
    let (offset, from) = match side {
        Side::Source => (F::SRC, key.src()),
        Side::Destination => (F::DST, key.dst()),
    };
    F::replace_address(packet, network, network + offset, from, to)
}

/// Corrects the checksum of an SCTP packet for changed ports, source first.
#[inline(always)]
fn fix_crc<P: Packet>(
    packet: &mut P,
    place: &Place,
    before: (Port, Port),
    after: (Port, Port),
) -> Option<()> {
    let at = place.checksum.offset;
    let check = u32::from_le(packet.load(at)?);
    // A device fills it in.
    if check == 0 || before == after {
        return Some(());
    }
    let difference = word(before) ^ word(after);
    let change = packet.crc_change(difference, place.len);
    packet.store(at, (check ^ change).to_le())
}

/// The first four bytes of a header, as a little-endian number.
#[inline(always)]
pub(super) const fn word((sport, dport): (Port, Port)) -> u32 {
    let [a, b] = sport.wire().to_ne_bytes();
    let [c, d] = dport.wire().to_ne_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[inline(always)]
fn port<P: Packet>(
    packet: &mut P,
    offset: usize,
    checksum: Checksum,
    from: Port,
    to: Port,
) -> Option<()> {
    if from == to {
        return Some(());
    }
    if !checksum.is_crc {
        packet.fix_checksum_port(checksum.offset, from, to, checksum.optional)?;
    }
    packet.store(offset, to)
}
