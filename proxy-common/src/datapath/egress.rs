//! Packets that go out: back to a Service's client, or from a client to itself.

use super::direct;
use super::flow::source_of;
use super::fragment;
use super::header::{Transport, Wire};
use super::ingress::drop;
use super::lifetime;
use super::note::{Event, Sender, is_quiet};
use super::own::note_leaving;
use super::packet::Packet;
use super::rewrite::{Side, rewrite};
use super::tables::{Tables, find};
use super::verdict::{Step, Verdict};
use super::work::{Part, Room, Work};
use crate::abi::flow::{Flow as _, FlowKey as _};
use crate::abi::{Counter, Family, FlowState, Hook, Kind, Tier, V4, V6};
use crate::net::tcp::Flags;
use crate::net::{Piece, eth};

/// Handles a packet that is about to leave, its network header at `network` bytes; nothing to say
/// if it is one of the rare ones, see [`super::aside`].
#[inline(always)]
pub fn egress<P, T, R>(
    packet: &mut P,
    tables: &mut T,
    room: &mut R,
    network: usize,
) -> Option<Verdict>
where
    P: Packet,
    T: Tables<V4> + Tables<V6>,
    R: Room<V4> + Room<V6>,
{
    if packet.has_vlan() {
        return Some(Verdict::Pass);
    }
    match packet.protocol() {
        eth::IPV4 => of_family::<V4, P, T, R>(packet, tables, room, network),
        eth::IPV6 => of_family::<V6, P, T, R>(packet, tables, room, network),
        _ => Some(Verdict::Pass),
    }
}

#[inline(always)]
fn of_family<F: Wire, P: Packet, T: Tables<F>, R: Room<F>>(
    packet: &mut P,
    tables: &mut T,
    room: &mut R,
    offset: usize,
) -> Option<Verdict> {
    let Some(network) = F::network(packet, offset) else {
        return Some(Verdict::Pass);
    };
    if network.proto == F::ICMP && network.piece == Piece::Whole {
        // From anybody on the way to the endpoint, or the endpoint itself.
        return None;
    }
    if !tables.may_be_endpoint(network.src) {
        return Some(Verdict::Pass);
    }
    if network.piece == Piece::Later {
        return None;
    }
    // Unlike at ingress, other protocols of an endpoint's address are nothing remarkable.
    let Some(transport) = Transport::read(packet, &network) else {
        return Some(Verdict::Pass);
    };
    // What an endpoint's pod sends as somebody's client comes from other ports than it serves. Only
    // what it sends to itself does as well.
    if !tables.may_be_served(network.src, transport.sport, network.proto)
        && network.src != network.dst
    {
        return match network.piece {
            Piece::First => None,
            _ => Some(Verdict::Pass),
        };
    }
    let Some(work) = room.work() else {
        return Some(Verdict::Pass);
    };
    work.key.fill(
        (&network.src, &network.dst),
        (transport.sport, transport.dport),
        network.proto,
        Hook::EGRESS,
    );
    work.device = packet.device();
    work.event = Event::new(Sender::Endpoint, &transport, tables.now());
    fragment::meet(packet, work, &network, (Hook::EGRESS, true));
    let mut step = decide(tables, work);
    if work.piece == Piece::First {
        step = fragment::begin(tables, work, step, Counter::DropFragmentHeadOut);
        if let Some(reason) = step.dropped() {
            return Some(drop(tables, work, reason));
        }
    }
    if step != Step::REWRITE {
        return Some(Verdict::Pass);
    }
    let place = network.place(&transport);
    match rewrite::<F, P>(packet, &place, &work.key, Side::Source, &work.change) {
        Some(()) => Some(Verdict::Rewritten),
        None => Some(drop(tables, work, Counter::DropRewriteOut)),
    }
}

#[inline(always)]
fn decide<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let Some((tier, flow)) = find(tables, &work.key) else {
        return search(tables, work);
    };
    work.change = source_of(flow);
    let state = flow.state();
    match state.marks.kind() {
        Kind::UNDNAT => {
            if is_remains(tier, state, &work.event) {
                return search(tables, work);
            }
            if !is_quiet(tier, state, &work.event) {
                work.tier = tier;
                tables.part(Part::Note, work);
            }
            Step::REWRITE
        }
        Kind::SNAT => Step::REWRITE,
        _ => {
            if !direct::is_quiet(state, &work.event) {
                work.tier = tier;
                tables.part(Part::NoteDirect, work);
                let tier = work.tier;
                note_leaving(tables, work, tier);
            }
            Step::PASS
        }
    }
}

/// Looks for the flow of a packet of which nothing is found, or another one's remains.
#[inline(always)]
fn search<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let step = tables.part(Part::RepairReply, work);
    if step == Step::NONE {
        note_leaving(tables, work, Tier::HalfOpen);
    }
    step
}

/// Whether an endpoint's packet belongs to something newer than the flow it was found in.
///
/// A flow that is over comes to life by its client's packet, which writes it anew before the
/// endpoint can answer. So an answer to an opening, or a datagram, that still finds the old one
/// goes to a client that speaks to the endpoint directly, from a port that it has used before.
#[inline(always)]
pub(super) fn is_remains(tier: Tier, flow: &FlowState, event: &Event) -> bool {
    if event.proto.connects() {
        return event.flags.any(Flags::SYN)
            && lifetime::is_over(event.proto, tier, flow, event.now);
    }
    // A first answer may be slow: it has as long as the next one.
    event.now.saturating_sub(flow.last_seen) > lifetime::UDP_REPLIED
}
