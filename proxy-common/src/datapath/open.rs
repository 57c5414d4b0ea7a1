//! A new flow: the draw, the claim on the endpoint's side, the entry on the client's.
//!
//! The claim comes first. Two CPUs that open the same flow may claim two endpoints, but only one
//! of them enters the client's half; the other follows it and gives its claim back.

use super::claim::{beginning, release, retire, take_over};
use super::direct::leave_trace;
use super::lifetime::is_over;
use super::note::Event;
use super::report::report;
use super::tables::{Insert, Tables};
use super::verdict::Step;
use super::work::{Part, Work};
use crate::abi::endpoint::Endpoint as _;
use crate::abi::flow::Flow as _;
use crate::abi::{Counter, Family, FlowState, Kind, State, Tier, What};

/// Opens a flow for a packet and says where it goes.
#[inline(always)]
pub fn open<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let step = tables.part(Part::Choose, work);
    if step != Step::NONE {
        return step;
    }
    settle(tables, work)
}

/// Claims the endpoint's side of a flow that is chosen, then enters the client's.
#[inline(always)]
pub(super) fn settle<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let step = tables.part(Part::Claim, work);
    if step != Step::NONE {
        return step;
    }
    tables.part(Part::Enter, work)
}

/// Enters the client's half of a flow whose other side is claimed.
#[inline(always)]
pub fn enter<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let event = work.event;
    let past = beginning(&work.path, event.now);
    work.goes_by_path();
    // Before the entry: who finds the trace finds what it leads to.
    leave_trace(tables, work, false);
    let (path, service) = (&work.path, work.path.service);
    let entered = if work.replaces {
        take_over(tables, path, Kind::DNAT, past, |tables, tier, held| {
            is_spent(tables, tier, held.state(), service, &event)
        })
    } else {
        tables.insert(Tier::HalfOpen, path, Kind::DNAT, past)
    };
    match entered {
        Insert::Done => {}
        Insert::Exists => return follow(tables, work),
        Insert::Refused => {
            release(tables, &work.path);
            return Step::drop(Counter::DropTableFull);
        }
    }
    if work.replaces && work.change != work.old.towards_endpoint() {
        // Late packets of the endpoint that was left must not reach the client as the new one's.
        retire(tables, &work.old);
    }
    // A direct flow has drawn nothing.
    if !work.path.is_direct() {
        // Where there was but a note, nothing was drawn before.
        let (counter, what) = if work.replaces && !work.old.is_direct() {
            (Counter::Repick, What::REPICKED)
        } else {
            (Counter::NewFlow, What::OPENED)
        };
        tables.count(counter);
        tables.picked(work.path.slot);
        report(tables, work, what);
    }
    Step::REWRITE
}

/// Whether a flow is over, or may be left by a packet that could begin another one.
#[inline(always)]
pub fn is_spent<F: Family, T: Tables<F>>(
    tables: &T,
    tier: Tier,
    flow: &FlowState,
    service: u32,
    event: &Event,
) -> bool {
    if flow.service != service || is_over(event.proto, tier, flow, event.now) {
        return true;
    }
    if !event.proto.connects() {
        return !is_current(tables, flow);
    }
    // A SYN on a live connection is a retransmission, or somebody's forgery: it changes nothing.
    // Only where nothing was answered yet may it leave an endpoint that is gone, or is leaving.
    let is_waiting = tier == Tier::HalfOpen && !flow.marks.state().any(State::REPLIED);
    is_waiting && !takes_flows(tables, flow)
}

/// Whether the flow's endpoint is still the one that it chose.
#[inline(always)]
pub fn is_current<F: Family, T: Tables<F>>(tables: &T, flow: &FlowState) -> bool {
    flow.service == 0
        || tables
            .endpoint(flow.endpoint)
            .is_some_and(|endpoint| endpoint.generation() == flow.generation)
}

/// Whether the flow's endpoint would still get new flows.
#[inline(always)]
fn takes_flows<F: Family, T: Tables<F>>(tables: &T, flow: &FlowState) -> bool {
    flow.service == 0
        || tables
            .endpoint(flow.endpoint)
            .is_some_and(|endpoint| endpoint.generation() == flow.generation && endpoint.is_alive())
}

/// Another CPU entered the client's half first: its choice counts.
#[inline(always)]
fn follow<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let path = &work.path;
    // In this order it passes from one to the next.
    let theirs = match tables.half(Tier::Renewal, path, Kind::DNAT) {
        None => match tables.half(Tier::HalfOpen, path, Kind::DNAT) {
            None => tables.half(Tier::Established, path, Kind::DNAT),
            entered => entered,
        },
        announced => announced,
    };
    let Some(theirs) = theirs else {
        release(tables, &work.path);
        return Step::drop(Counter::DropTableFull);
    };
    work.goes_by(theirs);
    if work.change != work.path.towards_endpoint() {
        release(tables, &work.path);
    }
    Step::REWRITE
}
