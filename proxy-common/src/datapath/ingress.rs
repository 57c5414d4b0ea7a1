//! Packets that come in: towards a Service, or back from an endpoint to itself.

use super::flow::destination_of;
use super::header::{Transport, Wire};
use super::lifetime;
use super::note::{Event, Sender, is_quiet};
use super::open::open;
use super::packet::Packet;
use super::rewrite::{Place, Side, rewrite};
use super::tables::{Tables, find};
use super::verdict::{Step, Verdict};
use super::work::{Part, Room, Work};
use crate::abi::endpoint::Endpoint as _;
use crate::abi::flow::{Flow as _, FlowKey as _};
use crate::abi::{Counter, Family, FlowState, Hook, Kind, State, Tier, V4, V6};
use crate::net::eth;
use crate::net::tcp::Flags;

/// Handles a packet that came in, its network header at `network` bytes.
#[inline(always)]
pub fn ingress<P, T, R>(packet: &mut P, tables: &mut T, room: &mut R, network: usize) -> Verdict
where
    P: Packet,
    T: Tables<V4> + Tables<V6>,
    R: Room<V4> + Room<V6>,
{
    // The device of that VLAN has a program of its own, and overheard frames are nobody's.
    if packet.has_vlan() || packet.is_for_other_host() {
        return Verdict::Pass;
    }
    match packet.protocol() {
        eth::IPV4 => of_family::<V4, P, T, R>(packet, tables, room, network),
        eth::IPV6 => of_family::<V6, P, T, R>(packet, tables, room, network),
        _ => Verdict::Pass,
    }
}

#[inline(always)]
fn of_family<F: Wire, P: Packet, T: Tables<F>, R: Room<F>>(
    packet: &mut P,
    tables: &mut T,
    room: &mut R,
    offset: usize,
) -> Verdict {
    let Some(network) = F::network(packet, offset) else {
        return Verdict::Pass;
    };
    if !tables.may_be_frontend(network.dst) {
        return Verdict::Pass;
    }
    if network.is_fragment {
        tables.count(Counter::PassFragment);
        return Verdict::Pass;
    }
    let Some(transport) = Transport::read(packet, &network) else {
        tables.count(Counter::PassProtocol);
        return Verdict::Pass;
    };
    let Some(work) = room.work() else {
        return Verdict::Pass;
    };
    work.key.fill(
        (&network.src, &network.dst),
        (transport.sport, transport.dport),
        network.proto,
        Hook::INGRESS,
    );
    work.event = Event::new(Sender::Client, &transport, tables.now());
    let step = decide(tables, work);
    finish(packet, tables, work, &network.place(&transport), step)
}

/// Does with the packet what was decided: its destination may become another one.
#[inline(always)]
fn finish<F: Wire, P: Packet, T: Tables<F>>(
    packet: &mut P,
    tables: &mut T,
    work: &Work<F>,
    place: &Place,
    step: Step,
) -> Verdict {
    if let Some(reason) = step.dropped() {
        return drop(tables, reason);
    }
    if step != Step::REWRITE {
        return Verdict::Pass;
    }
    match rewrite::<F, P>(packet, place, &work.key, Side::Destination, &work.change) {
        Some(()) => Verdict::Rewritten,
        None => drop(tables, Counter::DropRewrite),
    }
}

/// Counts a packet out.
#[inline(always)]
pub(super) fn drop<F: Family, T: Tables<F>>(tables: &mut T, reason: Counter) -> Verdict {
    tables.count(reason);
    Verdict::Drop(reason)
}

#[inline(always)]
fn decide<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let step = known(tables, work);
    if step == Step::OPEN {
        return open(tables, work);
    }
    step
}

/// What the flow table says of a packet.
#[inline(always)]
fn known<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let Some((tier, flow)) = find(tables, &work.key) else {
        return tables.part(Part::Miss, work);
    };
    work.change = destination_of(flow);
    let state = flow.state();
    if state.marks.kind() == Kind::UNSNAT {
        return Step::REWRITE;
    }
    let is_quiet = is_quiet(tier, state, &work.event);
    if may_choose_again(tables, state, &work.event) {
        work.tier = tier;
        let step = tables.part(Part::Renew, work);
        // It is gone in the meantime.
        return if step == Step::NONE {
            tables.part(Part::Miss, work)
        } else {
            step
        };
    }
    if !is_quiet {
        work.tier = tier;
        tables.part(Part::Note, work);
    }
    Step::REWRITE
}

/// Whether the flow that a packet belongs to may have to choose again.
#[inline(always)]
fn may_choose_again<F: Family, T: Tables<F>>(tables: &T, flow: &FlowState, event: &Event) -> bool {
    if event.is_tcp {
        return event.flags.opens();
    }
    // UDP has no opening packet: a datagram leaves an endpoint that is gone, and a flow that was
    // idle for too long, at once.
    !is_current(tables, flow)
        || event.now.saturating_sub(flow.last_seen) > lifetime::udp(flow.marks.state())
}

/// Whether the flow's endpoint is still the one that it chose.
#[inline(always)]
fn is_current<F: Family, T: Tables<F>>(tables: &T, flow: &FlowState) -> bool {
    tables
        .endpoint(flow.endpoint)
        .is_some_and(|endpoint| endpoint.generation() == flow.generation)
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
    let frontend_key = work.frontend_key();
    let Some(frontend) = tables.frontend(&frontend_key) else {
        tables.count(Counter::PassNoFrontend);
        return Step::PASS;
    };
    // A SYN on a live connection is a retransmission, or somebody's forgery: it changes nothing.
    // Only where nothing was answered yet may it leave an endpoint that is gone.
    let is_waiting = work.tier == Tier::HalfOpen && !state.marks.state().any(State::REPLIED);
    let keeps = work.event.is_tcp
        && !lifetime::is_over(work.key.proto(), work.tier, &state, work.event.now)
        && state.service == frontend.service
        && (!is_waiting || is_current(tables, &state));
    if keeps {
        return Step::REWRITE;
    }
    work.replaces = true;
    Step::OPEN
}

/// A packet of no known flow.
#[inline(always)]
pub fn miss<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let event = work.event;
    // A flow on its way between the tiers was in neither place when it was looked for.
    if let Some(flow) = tables.flow(Tier::Established, &work.key) {
        work.change = destination_of(flow);
        return Step::REWRITE;
    }
    let frontend_key = work.frontend_key();
    if tables.frontend(&frontend_key).is_none() {
        tables.count(Counter::PassNoFrontend);
        return Step::PASS;
    }
    if event.is_tcp && !event.flags.opens() {
        if tables.part(Part::RepairForward, work) == Step::REWRITE {
            return Step::REWRITE;
        }
        // What conntrack calls INVALID when it knows no connection: anything but a plain ACK.
        let sync = Flags::SYN.with(Flags::RST).with(Flags::FIN);
        if event.flags.any(sync) || !event.flags.any(Flags::ACK) {
            return Step::drop(Counter::DropInvalid);
        }
        if !tables.is_tcp_loose() {
            return Step::drop(Counter::DropMidFlow);
        }
        tables.count(Counter::Loose);
    }
    work.replaces = false;
    Step::OPEN
}
