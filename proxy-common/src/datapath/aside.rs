//! Packets that are rare: ICMP errors, protocols that are not translated, fragments without ports.
//!
//! The common way hands them over before it has done anything. In the kernel they are looked at by
//! global functions, see [`super::work`]: the programs are smaller without them, and so is the
//! stack that they take before they call anybody.

use super::bridge::Seat;
use super::fragment;
use super::header::{Network, Wire};
use super::icmp;
use super::ingress::{drop, undelivered};
use super::packet::Packet;
use super::rewrite::{Side, rewrite_address};
use super::tables::Tables;
use super::verdict::{Step, Verdict};
use super::work::{Part, Room, Work};
use crate::abi::flow::FlowKey as _;
use crate::abi::{Counter, Family, FlowFlags, Hook, V4, V6};
use crate::net::{Piece, Port, eth};
use bytemuck::Zeroable as _;

/// Where a packet is looked at.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Offset of the network header, in bytes.
    pub network: usize,
    /// What the program stands at. It makes no difference to what leaves.
    pub seat: Seat,
    /// The hook.
    pub hook: Hook,
}

impl At {
    /// Where a packet comes in.
    #[inline(always)]
    pub const fn ingress(network: usize, seat: Seat) -> Self {
        Self {
            network,
            seat,
            hook: Hook::INGRESS,
        }
    }

    /// Where a packet leaves.
    #[inline(always)]
    pub const fn egress(network: usize) -> Self {
        Self {
            network,
            seat: Seat::Device,
            hook: Hook::EGRESS,
        }
    }
}

/// Handles a packet that came in, its network header at `network` bytes, whatever it is.
#[inline(always)]
pub fn ingress<P, T, R>(packet: &mut P, tables: &mut T, room: &mut R, network: usize) -> Verdict
where
    P: Packet,
    T: Tables<V4> + Tables<V6>,
    R: Room<V4> + Room<V6>,
{
    super::ingress::ingress(packet, tables, room, network)
        .unwrap_or_else(|| came_in(packet, tables, room, At::ingress(network, Seat::Device)))
}

/// Handles a packet that came in by a port of a bridge, whatever it is.
#[inline(always)]
pub fn port_ingress<P, T, R>(packet: &mut P, tables: &mut T, room: &mut R, seat: Seat) -> Verdict
where
    P: Packet,
    T: Tables<V4> + Tables<V6>,
    R: Room<V4> + Room<V6>,
{
    super::ingress::port_ingress(packet, tables, room, seat)
        .unwrap_or_else(|| came_in(packet, tables, room, At::ingress(eth::LEN, seat)))
}

/// Handles a packet that is about to leave, its network header at `network` bytes, whatever it is.
#[inline(always)]
pub fn egress<P, T, R>(packet: &mut P, tables: &mut T, room: &mut R, network: usize) -> Verdict
where
    P: Packet,
    T: Tables<V4> + Tables<V6>,
    R: Room<V4> + Room<V6>,
{
    super::egress::egress(packet, tables, room, network)
        .unwrap_or_else(|| leaves(packet, tables, room, At::egress(network)))
}

#[inline(always)]
fn came_in<P, T, R>(packet: &mut P, tables: &mut T, room: &mut R, at: At) -> Verdict
where
    P: Packet,
    T: Tables<V4> + Tables<V6>,
    R: Room<V4> + Room<V6>,
{
    match packet.protocol() {
        eth::IPV4 => came_in_of::<V4, P, T, R>(packet, tables, room, at)
            .unwrap_or_else(|| error::<V4, P, T, R>(packet, tables, room, at)),
        _ => came_in_of::<V6, P, T, R>(packet, tables, room, at)
            .unwrap_or_else(|| error::<V6, P, T, R>(packet, tables, room, at)),
    }
}

#[inline(always)]
fn leaves<P, T, R>(packet: &mut P, tables: &mut T, room: &mut R, at: At) -> Verdict
where
    P: Packet,
    T: Tables<V4> + Tables<V6>,
    R: Room<V4> + Room<V6>,
{
    match packet.protocol() {
        eth::IPV4 => leaves_of::<V4, P, T, R>(packet, tables, room, at)
            .unwrap_or_else(|| error::<V4, P, T, R>(packet, tables, room, at)),
        _ => leaves_of::<V6, P, T, R>(packet, tables, room, at)
            .unwrap_or_else(|| error::<V6, P, T, R>(packet, tables, room, at)),
    }
}

/// An ICMP error, from the beginning to the end.
#[inline(always)]
fn error<F: Wire, P: Packet, T: Tables<F>, R: Room<F>>(
    packet: &mut P,
    tables: &mut T,
    room: &mut R,
    at: At,
) -> Verdict {
    if let Some(verdict) = error_of(packet, tables, room, at) {
        return verdict;
    }
    match room.work().map(|work| tables.part(Part::Quote, work)) {
        Some(Step::REWRITE) => translate_of(packet, tables, room, at),
        _ => Verdict::Pass,
    }
}

/// A rare packet that came in, for an address of Services or endpoints: nothing to say if it is an
/// ICMP error.
#[inline(always)]
pub fn came_in_of<F: Wire, P: Packet, T: Tables<F>, R: Room<F>>(
    packet: &mut P,
    tables: &mut T,
    room: &mut R,
    at: At,
) -> Option<Verdict> {
    let Some(network) = F::network(packet, at.network) else {
        return Some(Verdict::Pass);
    };
    let Some(work) = room.work() else {
        return Some(Verdict::Pass);
    };
    meet(packet, work, &network, at.hook);
    if icmp::is_error(packet, &network) {
        return None;
    }
    Some(if network.piece == Piece::Later {
        later_in(packet, tables, work, &network, at.seat)
    } else {
        other_protocol(packet, tables, work, &network)
    })
}

/// A rare packet that is about to leave: nothing to say if it is an ICMP error.
#[inline(always)]
pub fn leaves_of<F: Wire, P: Packet, T: Tables<F>, R: Room<F>>(
    packet: &mut P,
    tables: &mut T,
    room: &mut R,
    at: At,
) -> Option<Verdict> {
    let Some(network) = F::network(packet, at.network) else {
        return Some(Verdict::Pass);
    };
    let Some(work) = room.work() else {
        return Some(Verdict::Pass);
    };
    meet(packet, work, &network, at.hook);
    if icmp::is_error(packet, &network) {
        return None;
    }
    if network.piece == Piece::Later {
        return Some(later_out(packet, tables, work, &network));
    }
    if network.piece == Piece::First {
        // Of no Service.
        fragment::forget(packet, tables, work, &network, at.hook);
    }
    Some(Verdict::Pass)
}

/// An ICMP error: nothing to say before [`Part::Quote`] is asked.
#[inline(always)]
pub fn error_of<F: Wire, P: Packet, T: Tables<F>, R: Room<F>>(
    packet: &mut P,
    tables: &mut T,
    room: &mut R,
    at: At,
) -> Option<Verdict> {
    let Some(network) = F::network(packet, at.network) else {
        return Some(Verdict::Pass);
    };
    let Some(work) = room.work() else {
        return Some(Verdict::Pass);
    };
    meet(packet, work, &network, at.hook);
    icmp::inspect(packet, tables, work, &network, at.hook)
}

/// An ICMP error whose flow was found.
#[inline(always)]
pub fn translate_of<F: Wire, P: Packet, T: Tables<F>, R: Room<F>>(
    packet: &mut P,
    tables: &mut T,
    room: &mut R,
    at: At,
) -> Verdict {
    let Some(network) = F::network(packet, at.network) else {
        return Verdict::Pass;
    };
    let Some(work) = room.work() else {
        return Verdict::Pass;
    };
    let verdict = icmp::translate(packet, tables, work, &network, at.hook);
    cross(packet, tables, work, at.seat, verdict)
}

/// Keeps the packet's addresses in `work.answer`, where they take no room on the stack. Its key has
/// no ports.
#[inline(always)]
fn meet<F: Family, P: Packet>(packet: &P, work: &mut Work<F>, network: &Network<F>, hook: Hook) {
    let none = Port::zeroed();
    let addrs = (&network.src, &network.dst);
    work.answer.fill(addrs, (none, none), network.proto, hook);
    work.key.fill(addrs, (none, none), network.proto, hook);
    work.device = packet.device();
}

/// Replaces an address by that of `work.change`.
#[inline(always)]
fn readdress<F: Wire, P: Packet>(
    packet: &mut P,
    network: &Network<F>,
    work: &Work<F>,
    side: Side,
) -> Option<()> {
    rewrite_address::<F, P>(
        packet,
        network.offset,
        &work.answer,
        side,
        &work.change.addr,
    )
}

/// A fragment that is not its datagram's first came in for an address of Services.
#[inline(always)]
fn later_in<F: Wire, P: Packet, T: Tables<F>>(
    packet: &mut P,
    tables: &mut T,
    work: &mut Work<F>,
    network: &Network<F>,
    seat: Seat,
) -> Verdict {
    if !fragment::may_be_translated(network) {
        return untranslated(tables, true, Counter::PassProtocol);
    }
    let step = fragment::follow(packet, tables, work, network, Hook::INGRESS);
    if step == Step::NONE {
        return if fragment::is_for_service(tables, work.answer.dst()) {
            drop(tables, work, Counter::DropFragment)
        } else {
            untranslated(tables, true, Counter::PassFragment)
        };
    }
    if step != Step::REWRITE {
        return undelivered(packet, tables, work, step);
    }
    if work.flags.has(FlowFlags::MASQUERADE) {
        packet.mark(tables.masquerade_mark());
    }
    let crossed = match work.hop.mac() {
        Some(mac) if seat.is_port() => packet.store(eth::DST, mac),
        _ => Some(()),
    };
    let rewritten = crossed.and_then(|()| readdress(packet, network, work, Side::Destination));
    match rewritten {
        Some(()) => Verdict::Rewritten,
        None => drop(tables, work, Counter::DropRewrite),
    }
}

/// Passes a packet that would be translated if it could be.
#[inline(always)]
fn untranslated<F: Family, T: Tables<F>>(
    tables: &mut T,
    is_service: bool,
    reason: Counter,
) -> Verdict {
    if is_service {
        tables.count(reason);
    }
    Verdict::Pass
}

/// A packet of a protocol that is not translated: it may be for an address of which nothing but
/// its Services' ports is to be reached.
#[inline(always)]
fn other_protocol<F: Wire, P: Packet, T: Tables<F>>(
    packet: &mut P,
    tables: &mut T,
    work: &mut Work<F>,
    network: &Network<F>,
) -> Verdict {
    let dst = work.answer.dst();
    let is_service = tables.may_be_frontend(dst);
    if is_service && network.is_cut_short() && fragment::is_for_service(tables, dst) {
        return drop(tables, work, Counter::DropFragmentHead);
    }
    if !is_service || !network.begins(packet) {
        return untranslated(tables, is_service, Counter::PassProtocol);
    }
    let step = tables.part(Part::Whole, work);
    if step == Step::NONE {
        return untranslated(tables, true, Counter::PassProtocol);
    }
    undelivered(packet, tables, work, step)
}

/// Sends a translated ICMP error across the bridge if that is the way of its flow's packets.
#[inline(always)]
fn cross<F: Family, P: Packet, T: Tables<F>>(
    packet: &mut P,
    tables: &mut T,
    work: &mut Work<F>,
    seat: Seat,
    verdict: Verdict,
) -> Verdict {
    let mac = work
        .hop
        .mac()
        .filter(|_| seat.is_port() && verdict == Verdict::Rewritten);
    match mac {
        Some(mac) if packet.store(eth::DST, mac).is_none() => {
            drop(tables, work, Counter::DropRewrite)
        }
        _ => verdict,
    }
}

/// A fragment that is not its datagram's first is about to leave, an endpoint's.
#[inline(always)]
fn later_out<F: Wire, P: Packet, T: Tables<F>>(
    packet: &mut P,
    tables: &mut T,
    work: &mut Work<F>,
    network: &Network<F>,
) -> Verdict {
    let step = fragment::follow(packet, tables, work, network, Hook::EGRESS);
    if let Some(reason) = step.dropped() {
        return drop(tables, work, reason);
    }
    if step != Step::REWRITE {
        return Verdict::Pass;
    }
    match readdress(packet, network, work, Side::Source) {
        Some(()) => Verdict::Rewritten,
        None => drop(tables, work, Counter::DropRewriteOut),
    }
}
