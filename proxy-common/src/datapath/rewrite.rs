//! Other addresses and ports for a packet.

use super::header::{Network, Transport, Wire};
use super::packet::Packet;
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

/// Applies a change; `None` if the kernel refused, the packet may then be half rewritten and must
/// be dropped.
#[inline(always)]
pub fn rewrite<F: Wire, P: Packet>(
    packet: &mut P,
    network: &Network<F>,
    transport: &Transport,
    side: Side,
    change: &Change<F::Addr>,
) -> Option<()> {
    let (offset, from) = match side {
        Side::Source => (network.offset + F::SRC, network.src),
        Side::Destination => (network.offset + F::DST, network.dst),
    };
    F::fix_checksums(
        packet,
        network.offset,
        transport.checksum,
        from,
        change.addr,
    )?;
    packet.store(offset, change.addr)?;
    port(
        packet,
        network.payload,
        transport,
        transport.sport,
        change.sport,
    )?;
    port(
        packet,
        network.payload + 2,
        transport,
        transport.dport,
        change.dport,
    )
}

#[inline(always)]
fn port<P: Packet>(
    packet: &mut P,
    offset: usize,
    transport: &Transport,
    from: Port,
    to: Port,
) -> Option<()> {
    if from == to {
        return Some(());
    }
    let checksum = transport.checksum;
    packet.fix_checksum_port(checksum.offset, from, to, checksum.optional)?;
    packet.store(offset, to)
}
