//! Packets between a client and an endpoint without a Service.
//!
//! They matter for one reason: a client may use one port for an endpoint and for a Service that
//! leads to it. On the wire both would be the same flow. So a direct connection claims its place on
//! the endpoint's side as a Service's does, by a note that changes nothing. Where a Service's flow
//! has the place already, it is the direct flow that gets another source port.
//!
//! A packet in the middle of a connection is looked for only if its trace says that it may be one
//! of those few, and a datagram finds its note.

use super::claim::retire;
use super::header::{Network, Transport, Wire};
use super::lifetime::{self, TCP_ESTABLISHED, UDP_REPLIED, is_over, is_stale};
use super::note::{Event, Sender};
use super::open::settle;
use super::tables::{Insert, Past, Tables, Touch, find};
use super::verdict::Step;
use super::work::{Part, Work};
use crate::abi::flow::{Flow as _, FlowKey as _};
use crate::abi::{Counter, Family, FlowState, Hook, Kind, State, Tier, trace_of};
use crate::net::Proto;
use crate::net::tcp::Flags;

/// Whether a packet that came in for no Service's address is nothing that we need to see.
#[inline(always)]
pub fn is_no_concern<F: Wire, T: Tables<F>>(
    tables: &T,
    network: &Network<F>,
    transport: &Transport,
    work: &mut Work<F>,
) -> bool {
    let proto = network.proto;
    if !tables.may_be_served(network.dst, transport.dport, proto) {
        return true;
    }
    let ports = (transport.sport, transport.dport);
    let trace = tables.trace(trace_of((network.src, network.dst), ports, proto));
    if transport.proto.connects() {
        return !transport.flags.opens() && !is_fresh(trace, tables.now(), TCP_ESTABLISHED);
    }
    let now = tables.now();
    if is_fresh(trace, now, UDP_REPLIED) {
        return false;
    }
    work.key.fill(
        (&network.dst, &network.src),
        (transport.dport, transport.sport),
        proto,
        Hook::EGRESS,
    );
    find(tables, &work.key).is_some_and(|(tier, flow)| {
        let state = flow.state();
        state.marks.kind() == Kind::PASS
            && !is_over(proto, tier, state, now)
            && !is_stale(Proto::UDP, state.last_seen, now)
    })
}

/// Whether a trace was left no longer ago than this, in seconds, or a little longer, since traces
/// are renewed only now and then.
#[inline(always)]
pub const fn is_fresh(trace: u32, now: u32, within: u32) -> bool {
    trace != 0 && now.saturating_sub(trace) <= within + lifetime::REFRESH_TCP
}

/// Opens a direct flow, or finds that it is open.
#[inline(always)]
pub fn open_direct<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let step = tables.part(Part::Direct, work);
    if step != Step::TAKEN {
        return step;
    }
    settle(tables, work)
}

/// Claims the endpoint's side for a direct flow, by a note.
#[inline(always)]
pub fn direct<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    work.path.begin_direct(&work.key);
    work.kind = Kind::PASS;
    let tier = if tables
        .half(Tier::Established, &work.path, Kind::PASS)
        .is_some()
    {
        Tier::Established
    } else {
        Tier::HalfOpen
    };
    let is_known = tables
        .half(tier, &work.path, Kind::PASS)
        .is_some_and(|held| {
            let note = held.state();
            note.marks.kind() == Kind::PASS
                && !is_over(work.path.proto(), tier, note, work.event.now)
                && !note.marks.state().is_closing()
        });
    if !is_known {
        let step = tables.part(Part::ClaimHalf, work);
        if step != Step::NONE {
            return step;
        }
        tables.count(Counter::Direct);
    } else if !work.event.proto.connects() {
        // A datagram keeps its note; a SYN may be anybody's.
        work.tier = tier;
        work.path.fill_key(tier, Kind::PASS, &mut work.key);
        tables.part(Part::NoteDirect, work);
    }
    if work.replaces {
        // It had another port, for as long as its own was taken.
        tables.remove(Tier::Established, &work.path, Kind::DNAT);
        tables.remove(Tier::HalfOpen, &work.path, Kind::DNAT);
        retire(tables, &work.old);
    }
    Step::PASS
}

/// Notes that an endpoint's packet which belongs to no flow is direct traffic, so that only the
/// first one pays for the search.
#[inline(always)]
pub fn note_answer<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) {
    let event = work.event;
    work.path.answer_direct(&work.key);
    let past = Past {
        state: said(&event),
        proof: if event.proto.connects() { 0 } else { event.now },
        now: event.now,
    };
    tables.insert(Tier::HalfOpen, &work.path, Kind::PASS, past);
    tables.count(Counter::Direct);
}

/// What a packet says of its direct flow; only the endpoint's do.
#[inline(always)]
pub(super) const fn said(event: &Event) -> State {
    if matches!(event.sender, Sender::Client) {
        return State::NEW;
    }
    if event.flags.any(Flags::RST) {
        return State::RST_ENDPOINT;
    }
    if event.flags.any(Flags::SYN) {
        return State::NEW;
    }
    if event.flags.any(Flags::FIN) {
        return State::REPLIED.with(State::FIN_ENDPOINT);
    }
    State::REPLIED
}

/// The state bits that a packet sets and clears in its note.
#[inline(always)]
pub(super) const fn bits(state: State, event: &Event) -> (State, State) {
    let said = said(event);
    // An answer to an opening begins another connection; one that is repeated finds nothing.
    let clear = if event.flags.any(Flags::SYN) {
        state
    } else {
        State::NEW
    };
    (State(said.0 & !state.0), clear)
}

/// Whether an endpoint's packet leaves its note as it is.
#[inline(always)]
pub const fn is_quiet(note: &FlowState, event: &Event) -> bool {
    let (set, clear) = bits(note.marks.state(), event);
    set.0 | clear.0 == 0 && !is_stale(event.proto, note.last_seen, event.now)
}

/// Writes what a packet changes in the note of its direct flow.
///
/// The note of a flow that goes on after some seconds moves to the established tier, where a flood
/// of openings cannot push it out. Short ones, which are most, never pay for the move.
#[inline(always)]
pub fn note_direct<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let (tier, event) = (work.tier, &work.event);
    let Some(note) = tables.flow(tier, &work.key) else {
        return Step::PASS;
    };
    let note = note.state();
    let before = note.marks.state();
    let (set, clear) = bits(before, event);
    let state = State((before.0 | set.0) & !clear.0);
    let goes_on = is_stale(event.proto, note.last_seen, event.now)
        && if event.proto.connects() {
            said(event) == State::REPLIED
        } else {
            state.any(State::REPLIED) && event.now.saturating_sub(note.proof) > lifetime::UDP_PROVED
        };
    let past = Past {
        state,
        proof: note.proof,
        now: event.now,
    };
    work.path.answer_direct(&work.key);
    if tier == Tier::HalfOpen && goes_on {
        let moved = tables.insert(Tier::Established, &work.path, Kind::PASS, past);
        if moved != Insert::Refused {
            tables.remove(Tier::HalfOpen, &work.path, Kind::PASS);
            work.tier = Tier::Established;
        }
    } else {
        let touch = Touch {
            set,
            clear,
            proof: 0,
            now: past.now,
        };
        tables.touch(tier, &work.path, Kind::PASS, touch);
    }
    Step::PASS
}

/// Leaves a trace of a flow that must be looked for, where that is not done for every packet.
///
/// Those are direct flows with another port, and UDP flows through Services that go on: most are
/// over after one question, and searching all endpoints for a flow's other half is not worth it
/// for each of those.
#[inline(always)]
pub fn leave_trace<F: Family, T: Tables<F>>(tables: &mut T, work: &Work<F>, is_established: bool) {
    if work.path.is_direct() || (is_established && work.path.proto() == Proto::UDP) {
        tables.leave_trace(work.path.trace(), work.event.now);
    }
}
