//! A new flow: the draw, the claim on the endpoint's side, the entry on the client's.
//!
//! The claim comes first. Two CPUs that open the same flow may claim two endpoints, but only one
//! of them enters the client's half; the other follows it and gives its claim back.

use super::flow::{Path, destination_of};
use super::lifetime::is_over;
use super::tables::{Insert, Past, Tables, find};
use super::verdict::Step;
use super::work::{Part, Work};
use crate::abi::endpoint::Endpoint as _;
use crate::abi::flow::Flow as _;
use crate::abi::{Counter, Family, Frontend, Kind, State, Tier};
use crate::net::Proto;

/// How often another source port is tried when the client's is taken at the endpoint.
const PORT_TRIES: u32 = 4;

/// Opens a flow for a packet and says where it goes.
#[inline(always)]
pub fn open<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let step = tables.part(Part::Choose, work);
    if step != Step::NONE {
        return step;
    }
    let step = tables.part(Part::Claim, work);
    if step != Step::NONE {
        return step;
    }
    tables.part(Part::Enter, work)
}

/// Enters the client's half of a flow whose other side is claimed.
#[inline(always)]
pub fn enter<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let past = beginning(&work.path, work.event.now);
    work.change = work.path.towards_endpoint();
    work.hop = work.path.hop;
    if work.replaces {
        if !tables.replace(Tier::HalfOpen, &work.path, Kind::DNAT, past) {
            release(tables, &work.path);
            return Step::drop(Counter::DropTableFull);
        }
        // Lookups ask the established tier first: the old entry counts until it is gone.
        tables.remove(Tier::Established, &work.path, Kind::DNAT);
        if work.change != work.old.towards_endpoint() {
            // Late packets of the endpoint that was left must not reach the client as the new
            // one's.
            retire(tables, &work.old);
        }
        tables.count(Counter::Repick);
    } else {
        match tables.insert(Tier::HalfOpen, &work.path, Kind::DNAT, past) {
            Insert::Done => tables.count(Counter::NewFlow),
            Insert::Exists => return follow(tables, work),
            Insert::Refused => {
                release(tables, &work.path);
                return Step::drop(Counter::DropTableFull);
            }
        }
    }
    tables.picked(work.path.slot);
    Step::REWRITE
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
fn beginning<F: Family>(path: &Path<F>, now: u32) -> Past {
    let is_udp = path.proto() == Proto::UDP;
    Past {
        state: State::NEW,
        proof: if is_udp { now } else { 0 },
        now,
    }
}

/// Draws the endpoint.
#[inline(always)]
pub fn choose<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let key = work.frontend_key();
    // Between reading the frontend and its set, both may have been replaced: read them once more.
    for _ in 0..2 {
        let Some(frontend) = tables.frontend(&key) else {
            return Step::drop(Counter::DropStale);
        };
        let n = frontend.inside.count();
        if n == 0 {
            return Step::drop(Counter::DropNoEndpoint);
        }
        let index = tables.pick(n);
        if let Some((slot, endpoint)) = drawn(tables, &frontend, index) {
            work.path
                .begin(&work.key, frontend.service, slot, &endpoint);
            return Step::NONE;
        }
    }
    Step::drop(Counter::DropStale)
}

/// The endpoint at `index` of the frontend's set, if the tables agree on it.
#[inline(always)]
pub fn drawn<F: Family, T: Tables<F>>(
    tables: &T,
    frontend: &Frontend,
    index: u32,
) -> Option<(u32, F::Endpoint)> {
    let slot = tables.slot(frontend.inside.base().wrapping_add(index))?;
    if slot.service != frontend.service {
        return None;
    }
    let endpoint = tables.endpoint(slot.endpoint)?;
    (endpoint.service() == frontend.service && endpoint.is_alive())
        .then_some((slot.endpoint, endpoint))
}

/// Claims the endpoint's side of the flow, with another source port if the client's is taken.
#[inline(always)]
pub fn claim<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let mut attempt = 0;
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
    let there = match tables.half(tier, path, kind) {
        None => There::Nothing,
        Some(held) if is_over(path.proto(), tier, held.state(), now) => There::Remains,
        // The endpoint's slot has changed hands and this flow has drawn it again: what is there
        // would have it drawn once more.
        Some(held) if path.is_half(kind, held) && held.state().generation != path.generation => {
            There::Remains
        }
        Some(held) if path.is_half(kind, held) => There::Same,
        Some(_) => There::Other,
    };
    match (tier, there) {
        (Tier::Established, There::Nothing) | (Tier::HalfOpen, There::Same) => Step::NONE,
        // The same flow, of which the client's half was lost: it begins anew, and both halves
        // must go through the tiers together.
        (Tier::Established, There::Remains | There::Same) => {
            tables.remove(Tier::Established, path, kind);
            Step::NONE
        }
        (Tier::HalfOpen, There::Nothing | There::Remains) => {
            if tables.replace(Tier::HalfOpen, path, kind, past) {
                Step::NONE
            } else {
                Step::drop(Counter::DropTableFull)
            }
        }
        (Tier::Established, There::Other) => {
            tables.remove(Tier::HalfOpen, path, kind);
            Step::TAKEN
        }
        (Tier::HalfOpen, There::Other) => Step::TAKEN,
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

/// Gives a claim back.
#[inline(always)]
fn release<F: Family, T: Tables<F>>(tables: &mut T, path: &Path<F>) {
    tables.remove(Tier::HalfOpen, path, Kind::UNDNAT);
    if path.is_hairpin() {
        tables.remove(Tier::HalfOpen, path, Kind::SNAT);
        tables.remove(Tier::HalfOpen, path, Kind::UNSNAT);
    }
}

/// Another CPU entered the client's half first: its choice counts.
#[inline(always)]
fn follow<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let Some((_, theirs)) = find(tables, &work.key) else {
        release(tables, &work.path);
        return Step::drop(Counter::DropTableFull);
    };
    work.change = destination_of(theirs);
    work.hop = theirs.state().hop;
    if work.change != work.path.towards_endpoint() {
        release(tables, &work.path);
    }
    Step::REWRITE
}
