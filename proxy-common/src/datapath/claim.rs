//! Claims on the endpoint's side of a flow: who may speak to the endpoint from which port.
//!
//! A claim is a half like any other, written where none is. What is over may be taken over, and
//! that too is decided by an insertion: see [`take_over`].

use super::flow::Path;
use super::lifetime::is_over;
use super::tables::{Insert, Past, Tables};
use super::verdict::Step;
use super::work::{Part, Work};
use crate::abi::flow::Flow as _;
use crate::abi::{Counter, Family, Kind, State, Tier};
use crate::net::Proto;

/// How often another source port is tried when the client's is taken at the endpoint.
const PORT_TRIES: u32 = 4;

/// Claims the endpoint's side of the flow, with another source port if the client's is taken.
#[inline(always)]
pub fn claim<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    // That a direct flow's port is taken is known already.
    let mut attempt = u32::from(work.path.is_direct());
    // Plain counting: the verifier cannot follow the flag of an inclusive range.
    while attempt <= PORT_TRIES {
        if attempt > 0 {
            work.path.sport = tables.pick_port();
        }
        let step = claim_halves(tables, work);
        if step != Step::TAKEN {
            if attempt > 0 && step == Step::NONE {
                tables.count(Counter::PortRewritten);
            }
            return step;
        }
        attempt += 1;
    }
    Step::drop(Counter::DropNoPort)
}

/// Claims the endpoint's half, and the two more of a hairpin; all of them or none.
///
/// Written out, since the verifier loses its way in loops over so few.
#[inline(always)]
fn claim_halves<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    work.kind = Kind::UNDNAT;
    let step = tables.part(Part::ClaimHalf, work);
    if step != Step::NONE || !work.path.is_hairpin() {
        return step;
    }
    work.kind = Kind::SNAT;
    let step = tables.part(Part::ClaimHalf, work);
    if step != Step::NONE {
        tables.remove(Tier::HalfOpen, &work.path, Kind::UNDNAT);
        return step;
    }
    work.kind = Kind::UNSNAT;
    let step = tables.part(Part::ClaimHalf, work);
    if step != Step::NONE {
        tables.remove(Tier::HalfOpen, &work.path, Kind::UNDNAT);
        tables.remove(Tier::HalfOpen, &work.path, Kind::SNAT);
    }
    step
}

/// Claims the half of `work.kind`: nothing to say if it is held, or taken, or dropped.
#[inline(always)]
pub fn claim_half<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let (path, kind, now) = (&work.path, work.kind, work.event.now);
    let past = beginning(path, now);
    let tier = match tables.insert(Tier::HalfOpen, path, kind, past) {
        Insert::Refused => return Step::drop(Counter::DropTableFull),
        // Asked after the insertion: a flow that is being promoted is in the established tier
        // before it leaves the half-open one, so it is seen in one of the two.
        Insert::Done => Tier::Established,
        Insert::Exists => Tier::HalfOpen,
    };
    match (tier, there(tables, tier, path, kind, now)) {
        (Tier::HalfOpen, There::Nothing | There::Remains) => {
            take_over_claim(tables, path, kind, past)
        }
        // Another CPU holds it for this flow, but may just be finding that it must not.
        (Tier::HalfOpen, There::Same) => {
            if there(tables, Tier::Established, path, kind, now) == There::Other {
                Step::TAKEN
            } else {
                Step::NONE
            }
        }
        (Tier::HalfOpen, There::Other) => Step::TAKEN,
        (_, There::Nothing) => Step::NONE,
        (_, There::Same) if kind == Kind::PASS => {
            tables.remove(Tier::HalfOpen, path, kind);
            Step::NONE
        }
        // The same flow, of which the client's half was lost: it begins anew, and both halves
        // must go through the tiers together.
        (_, There::Remains | There::Same) => {
            tables.remove(Tier::Established, path, kind);
            Step::NONE
        }
        (_, There::Other) => {
            tables.remove(Tier::HalfOpen, path, kind);
            Step::TAKEN
        }
    }
}

#[inline(always)]
fn take_over_claim<F: Family, T: Tables<F>>(
    tables: &mut T,
    path: &Path<F>,
    kind: Kind,
    past: Past,
) -> Step {
    let entered = take_over(tables, path, kind, past, |_, tier, held| {
        is_what(path, kind, tier, held, past.now) == There::Remains
    });
    match entered {
        Insert::Done => Step::NONE,
        Insert::Refused => Step::drop(Counter::DropTableFull),
        Insert::Exists => {
            let winner = match tables.half(Tier::Renewal, path, kind) {
                None => tables.half(Tier::HalfOpen, path, kind),
                announced => announced,
            };
            if winner.is_some_and(|winner| path.is_half(kind, winner)) {
                Step::NONE
            } else {
                Step::TAKEN
            }
        }
    }
}

/// What stands where a claim is laid.
#[derive(Clone, Copy, PartialEq, Eq)]
enum There {
    /// Nothing, or not any more.
    Nothing,
    /// A flow that is over.
    Remains,
    /// This very flow: another CPU was faster, or the client's half was lost.
    Same,
    /// Another flow.
    Other,
}

#[inline(always)]
fn there<F: Family, T: Tables<F>>(
    tables: &T,
    tier: Tier,
    path: &Path<F>,
    kind: Kind,
    now: u32,
) -> There {
    match tables.half(tier, path, kind) {
        None => There::Nothing,
        Some(held) => is_what(path, kind, tier, held, now),
    }
}

#[inline(always)]
fn is_what<F: Family>(path: &Path<F>, kind: Kind, tier: Tier, held: &F::Flow, now: u32) -> There {
    let state = held.state();
    if is_over(path.proto(), tier, state, now) {
        return There::Remains;
    }
    if !path.is_half(kind, held) {
        return There::Other;
    }
    // The endpoint's slot has changed hands and this flow has drawn it again: what is there would
    // have it drawn once more. And a direct connection that has begun to end is opened again.
    let is_old = state.generation != path.generation
        || kind == Kind::PASS && state.marks.state().is_closing();
    if is_old { There::Remains } else { There::Same }
}

/// Gives a claim back.
#[inline(always)]
pub(super) fn release<F: Family, T: Tables<F>>(tables: &mut T, path: &Path<F>) {
    tables.remove(Tier::HalfOpen, path, Kind::UNDNAT);
    if path.is_hairpin() {
        tables.remove(Tier::HalfOpen, path, Kind::SNAT);
        tables.remove(Tier::HalfOpen, path, Kind::UNSNAT);
    }
}

/// Puts a half in the place of one that is over, as one whole element.
///
/// Whoever says first what it will put there, under a key of its own, is the one to do it; another
/// CPU that comes to the same conclusion sees that and follows. Who comes when all is done sees a
/// half that is not spent any more.
#[inline(always)]
pub(super) fn take_over<F: Family, T: Tables<F>>(
    tables: &mut T,
    path: &Path<F>,
    kind: Kind,
    past: Past,
    is_spent: impl Fn(&T, Tier, &F::Flow) -> bool,
) -> Insert {
    match tables.insert(Tier::Renewal, path, kind, past) {
        Insert::Done => {}
        lost => return lost,
    }
    let is_spent = match tables.half(Tier::Established, path, kind) {
        Some(held) => is_spent(tables, Tier::Established, held),
        None => match tables.half(Tier::HalfOpen, path, kind) {
            Some(held) => is_spent(tables, Tier::HalfOpen, held),
            None => true,
        },
    };
    let result = if !is_spent {
        Insert::Exists
    } else if tables.replace(Tier::HalfOpen, path, kind, past) {
        // Lookups ask the established tier first: the old entry counts until it is gone.
        tables.remove(Tier::Established, path, kind);
        Insert::Done
    } else {
        Insert::Refused
    };
    tables.remove(Tier::Renewal, path, kind);
    result
}

/// Removes what a flow had on its endpoint's side.
#[inline(always)]
pub(super) fn retire<F: Family, T: Tables<F>>(tables: &mut T, old: &Path<F>) {
    retire_half(tables, old, Kind::UNDNAT);
    if old.is_hairpin() {
        retire_half(tables, old, Kind::SNAT);
        retire_half(tables, old, Kind::UNSNAT);
    }
}

#[inline(always)]
fn retire_half<F: Family, T: Tables<F>>(tables: &mut T, old: &Path<F>, kind: Kind) {
    retire_in(tables, Tier::Established, old, kind);
    retire_in(tables, Tier::HalfOpen, old, kind);
}

#[inline(always)]
fn retire_in<F: Family, T: Tables<F>>(tables: &mut T, tier: Tier, old: &Path<F>, kind: Kind) {
    let held = tables.half(tier, old, kind);
    if held.is_some_and(|held| old.is_half(kind, held)) {
        tables.remove(tier, old, kind);
    }
}

/// A flow at its first packet.
#[inline(always)]
pub(super) fn beginning<F: Family>(path: &Path<F>, now: u32) -> Past {
    let is_udp = path.proto() == Proto::UDP;
    Past {
        state: State::NEW,
        proof: if is_udp { now } else { 0 },
        now,
    }
}
