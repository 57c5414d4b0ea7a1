//! Packets that come in: towards a Service, or back from an endpoint to itself.

use super::bridge::{Seat, is_passing_by, steer};
use super::direct::{self, open_direct};
use super::flow::destination_of;
use super::fragment;
use super::frontend::frontend_for;
use super::header::{Transport, Wire};
use super::lifetime::{self, is_stale};
use super::note::{Event, Sender, is_quiet};
use super::open::{is_current, is_spent, open};
use super::packet::Packet;
use super::rewrite::{Place, Side, rewrite};
use super::tables::{Tables, find};
use super::verdict::{Step, Verdict};
use super::work::{Part, Room, Work};
use crate::abi::flow::{Flow as _, FlowKey as _};
use crate::abi::{Counter, Family, FlowFlags, FlowState, Hook, Hop, Kind, V4, V6, What};
use crate::net::{Piece, eth};

/// Handles a packet that came in, its network header at `network` bytes; nothing to say if it is
/// one of the rare ones, see [`super::aside`].
#[inline(always)]
pub fn ingress<P, T, R>(
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
    // The device of that VLAN has a program of its own, and overheard frames are nobody's.
    if packet.has_vlan() || packet.is_for_other_host() {
        return Some(Verdict::Pass);
    }
    by_family(packet, tables, room, network, Seat::Device)
}

/// Handles a packet that came in by a port of a bridge; nothing to say as above.
#[inline(always)]
pub fn port_ingress<P, T, R>(
    packet: &mut P,
    tables: &mut T,
    room: &mut R,
    seat: Seat,
) -> Option<Verdict>
where
    P: Packet,
    T: Tables<V4> + Tables<V6>,
    R: Room<V4> + Room<V6>,
{
    // To a port, frames for its bridge are overheard ones.
    if packet.has_vlan() {
        return Some(Verdict::Pass);
    }
    by_family(packet, tables, room, eth::LEN, seat)
}

#[inline(always)]
fn by_family<P, T, R>(
    packet: &mut P,
    tables: &mut T,
    room: &mut R,
    network: usize,
    seat: Seat,
) -> Option<Verdict>
where
    P: Packet,
    T: Tables<V4> + Tables<V6>,
    R: Room<V4> + Room<V6>,
{
    match packet.protocol() {
        eth::IPV4 => of_family::<V4, P, T, R>(packet, tables, room, network, seat),
        eth::IPV6 => of_family::<V6, P, T, R>(packet, tables, room, network, seat),
        _ => Some(Verdict::Pass),
    }
}

#[inline(always)]
fn of_family<F: Wire, P: Packet, T: Tables<F>, R: Room<F>>(
    packet: &mut P,
    tables: &mut T,
    room: &mut R,
    offset: usize,
    seat: Seat,
) -> Option<Verdict> {
    let Some(network) = F::network(packet, offset) else {
        return Some(Verdict::Pass);
    };
    let is_service = tables.may_be_frontend(network.dst);
    if !is_service && !tables.may_be_endpoint(network.dst) {
        return Some(Verdict::Pass);
    }
    if is_passing_by(seat, packet, tables) {
        return Some(Verdict::Pass);
    }
    if network.piece == Piece::Later {
        // Of what goes straight to an endpoint, only ports change.
        return if is_service {
            None
        } else {
            Some(Verdict::Pass)
        };
    }
    let Some(work) = room.work() else {
        return Some(Verdict::Pass);
    };
    let transport = Transport::read(packet, &network)?;
    if !is_service && direct::is_no_concern(tables, &network, &transport, work) {
        return Some(Verdict::Pass);
    }
    work.key.fill(
        (&network.src, &network.dst),
        (transport.sport, transport.dport),
        network.proto,
        Hook::INGRESS,
    );
    work.event = Event::new(Sender::Client, &transport, tables.now());
    work.device = packet.device();
    fragment::meet(packet, work, &network, (Hook::INGRESS, is_service));
    let mut step = decide(tables, work, seat);
    if seat.is_port() && step == Step::REWRITE && steer(packet, tables, work).is_none() {
        return Some(drop(tables, work, Counter::DropRewrite));
    }
    if work.piece == Piece::First {
        if !seat.is_port() {
            work.hop = Hop::UNKNOWN;
        }
        step = fragment::begin(tables, work, step, Counter::DropFragmentHead);
    }
    let place = network.place(&transport);
    Some(finish(packet, tables, work, &place, step))
}

/// Does with a packet that goes to no endpoint what was decided.
#[inline(always)]
pub(super) fn undelivered<F: Family, P: Packet, T: Tables<F>>(
    packet: &mut P,
    tables: &mut T,
    work: &mut Work<F>,
    step: Step,
) -> Verdict {
    if let Some(reason) = step.dropped() {
        return drop(tables, work, reason);
    }
    if step == Step::REJECT {
        count_out(tables, work, Counter::Reject);
        packet.mark(tables.reject_mark());
        return Verdict::Rejected;
    }
    Verdict::Pass
}

/// Does with the packet what was decided: its destination may become another one.
#[inline(always)]
fn finish<F: Wire, P: Packet, T: Tables<F>>(
    packet: &mut P,
    tables: &mut T,
    work: &mut Work<F>,
    place: &Place,
    step: Step,
) -> Verdict {
    if step != Step::REWRITE {
        return undelivered(packet, tables, work, step);
    }
    // On every packet: what becomes of a connection is decided anew where conntrack has lost it.
    if work.flags.has(FlowFlags::MASQUERADE) {
        packet.mark(tables.masquerade_mark());
    }
    match rewrite::<F, P>(packet, place, &work.key, Side::Destination, &work.change) {
        Some(()) => Verdict::Rewritten,
        None => drop(tables, work, Counter::DropRewrite),
    }
}

/// Counts a packet out, of which `work.key` is the key.
#[inline(always)]
pub(super) fn drop<F: Family, T: Tables<F>>(
    tables: &mut T,
    work: &mut Work<F>,
    reason: Counter,
) -> Verdict {
    count_out(tables, work, reason);
    Verdict::Drop(reason)
}

#[inline(always)]
fn count_out<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>, reason: Counter) {
    work.what = What::dropped(reason);
    tables.part(Part::CountOut, work);
}

#[inline(always)]
fn decide<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>, seat: Seat) -> Step {
    let step = known(tables, work, seat);
    if step == Step::OPEN {
        return open(tables, work);
    }
    if step == Step::DIRECT {
        return open_direct(tables, work);
    }
    step
}

/// What the flow table says of a packet.
#[inline(always)]
fn known<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>, seat: Seat) -> Step {
    if seat.is_port() {
        work.asks = false;
    }
    let Some((tier, flow)) = find(tables, &work.key) else {
        return tables.part(Part::Miss, work);
    };
    work.change = destination_of(flow);
    let state = flow.state();
    work.flags = state.marks.flags();
    let kind = state.marks.kind();
    if kind != Kind::DNAT {
        if kind == Kind::OWN {
            work.tier = tier;
            return ask(tables, work, Part::Answers);
        }
        if seat.is_port() {
            // Out by the door it came in by, which is no bridge's way.
            work.hop = Hop::ELSEWHERE;
        }
        return Step::REWRITE;
    }
    if seat.is_port() {
        work.hop = state.hop;
    }
    let last_seen = state.last_seen;
    let is_quiet = is_quiet(tier, state, &work.event);
    // The generation that a UDP flow holds on to is its endpoint's. Whether its frontend is still
    // there, and its service port's, it asks whenever it has something to note.
    let is_due = !is_quiet && !work.event.proto.connects();
    if is_due || may_choose_again(tables, state, &work.event) {
        work.tier = tier;
        let step = ask(tables, work, Part::Renew);
        if step != Step::REWRITE || !is_due {
            return step;
        }
    }
    if !is_quiet {
        if seat.is_port() {
            // As old as the noted time is what is known of the way.
            work.asks = is_stale(work.event.proto, last_seen, work.event.now);
        }
        work.tier = tier;
        tables.part(Part::Note, work);
    }
    Step::REWRITE
}

/// Asks what becomes of a packet whose flow was found, or may be gone in the meantime.
#[inline(always)]
fn ask<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>, part: Part) -> Step {
    let step = tables.part(part, work);
    if step == Step::NONE {
        return tables.part(Part::Miss, work);
    }
    step
}

/// Whether the flow that a packet belongs to may have to choose again.
#[inline(always)]
fn may_choose_again<F: Family, T: Tables<F>>(tables: &T, flow: &FlowState, event: &Event) -> bool {
    if event.proto.connects() {
        return event.flags.opens();
    }
    // UDP has no opening packet: a datagram leaves an endpoint that is gone, and a flow that was
    // idle for too long, at once.
    event.now.saturating_sub(flow.last_seen) > lifetime::udp(flow.marks.state())
        || !is_current(tables, flow)
}

/// A known flow that may have to choose again: a TCP connection that is opened once more, or a
/// UDP flow whose endpoint or time is over. Nothing to say if it is no longer known.
#[inline(always)]
pub fn renew<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let Some(flow) = tables.flow(work.tier, &work.key) else {
        return Step::NONE;
    };
    let state = *flow.state();
    work.old.read_forward(&work.key, flow);
    work.change = work.old.towards_endpoint();
    work.flags = work.old.flags;
    work.hop = work.old.hop;
    work.asks = true;
    let service = match frontend_for(tables, work) {
        Some(frontend) => frontend.service,
        // Of no service is what goes straight to an endpoint.
        None if work.old.is_direct() => 0,
        None => {
            tables.count(Counter::PassNoFrontend);
            return Step::PASS;
        }
    };
    if !is_spent(tables, work.tier, &state, service, &work.event) {
        return Step::REWRITE;
    }
    work.replaces = true;
    if service == 0 {
        Step::DIRECT
    } else {
        Step::OPEN
    }
}
