//! Frontends at the node's own addresses, from which the node speaks to others as well.
//!
//! What netfilter masquerades leaves with one of the node's addresses and a port that may be a
//! node port, and so does what a process sends. The answer comes in for a frontend, but is for
//! none. So whatever leaves from there, and is no answer of a Service, leaves a note for what
//! answers it, of kind `OWN` and under the key of a client's half; and one of kind `PASS` under its
//! own key, so that the search is over with the first packet. What comes in in the middle of a
//! connection that nobody knows may be such an answer, too.

use super::direct::{bits, said};
use super::frontend::frontend_for;
use super::lifetime::{is_over, is_stale};
use super::tables::{Insert, Past, Tables, Touch, find};
use super::verdict::Step;
use super::work::{Part, Work};
use crate::abi::flow::{Flow as _, FlowKey as _};
use crate::abi::{Counter, Family, FrontendFlags, Kind, State, Tier};
use crate::net::tcp::Flags;

/// Has a packet noted that belongs to no flow and leaves, if that may matter. Its own note is, or
/// is to be, in `tier`.
#[inline(always)]
pub(super) fn note_leaving<F: Family, T: Tables<F>>(
    tables: &mut T,
    work: &mut Work<F>,
    tier: Tier,
) {
    if tables.may_be_frontend(work.key.src()) {
        work.tier = tier;
        tables.part(Part::Leaves, work);
    }
}

/// A packet that belongs to no flow and is no answer leaves: notes what will answer it, if it
/// leaves from a frontend at one of the node's addresses. `work.tier` is where its own note is, or
/// is to be.
#[inline(always)]
pub fn leaves<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let (addr, port) = (work.key.src(), work.key.sport());
    let key = F::frontend_key(addr, port, work.key.proto());
    let is_own = tables
        .frontend(&key)
        .is_some_and(|frontend| frontend.flags.has(FrontendFlags::OWN_ADDRESS));
    if !is_own {
        return Step::PASS;
    }
    let now = work.event.now;
    work.path.answer_direct(&work.key);
    work.path.fill_key(Tier::HalfOpen, Kind::OWN, &mut work.key);
    let past = Past {
        state: said(&work.event),
        proof: now.max(1),
        now,
    };
    let found = find(tables, &work.key).map(|(tier, flow)| (tier, *flow.state()));
    match found {
        Some((tier, note)) if note.marks.kind() == Kind::OWN => {
            let (set, clear) = bits(note.marks.state(), &work.event);
            let touch = Touch {
                set,
                clear,
                proof: past.proof,
                now,
            };
            tables.touch(tier, &work.path, Kind::OWN, touch);
            if tier == Tier::HalfOpen && work.tier == Tier::Established {
                let moved = tables.insert(Tier::Established, &work.path, Kind::OWN, past);
                if moved != Insert::Refused {
                    tables.remove(Tier::HalfOpen, &work.path, Kind::OWN);
                }
            }
        }
        Some((tier, half)) if !is_over(work.path.proto(), tier, &half, now) => {
            // A Service's answer, at the second device that it leaves by.
            return Step::PASS;
        }
        Some(_) => {
            tables.replace(Tier::HalfOpen, &work.path, Kind::OWN, past);
            tables.remove(Tier::Established, &work.path, Kind::OWN);
            tables.count(Counter::PassOwn);
        }
        // The same, of which the table has lost the client's half.
        None if tables.part(Part::RepairForward, work) == Step::REWRITE => return Step::PASS,
        None => {
            work.path.begin_direct(&work.key);
            tables.insert(work.tier, &work.path, Kind::OWN, past);
            tables.count(Counter::PassOwn);
        }
    }
    // One that has gone on for some time is there, in the other tier.
    if work.tier == Tier::HalfOpen {
        tables.insert(Tier::HalfOpen, &work.path, Kind::PASS, past);
    }
    Step::PASS
}

/// A packet of no known flow has come in for a frontend at one of the node's addresses: nothing to
/// say if nothing is known to have left that it answers.
#[inline(always)]
pub fn arrives<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    work.path.begin_direct(&work.key);
    if work.event.flags.opens() || !has_left(tables, work) {
        return Step::NONE;
    }
    let proof = work.event.now.max(1);
    note(tables, work, proof);
    Step::PASS
}

/// The same in the middle of a connection that no repair has found.
#[inline(always)]
pub fn goes_on<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    if !work.event.flags.any(Flags::RST) {
        work.path.begin_direct(&work.key);
        note(tables, work, 0);
    }
    Step::PASS
}

/// Notes a packet that has come in, so that only the first one of a connection is searched for.
#[inline(always)]
fn note<F: Family, T: Tables<F>>(tables: &mut T, work: &Work<F>, proof: u32) {
    let past = Past {
        state: if proof == 0 {
            State::NEW
        } else {
            State::REPLIED
        },
        proof,
        now: work.event.now,
    };
    tables.insert(Tier::HalfOpen, &work.path, Kind::OWN, past);
    tables.count(Counter::PassOwn);
}

/// Whether something has left that the packet answers, of which the table has lost the note.
#[inline(always)]
fn has_left<F: Family, T: Tables<F>>(tables: &T, work: &Work<F>) -> bool {
    has_left_in(tables, work, Tier::Established) || has_left_in(tables, work, Tier::HalfOpen)
}

#[inline(always)]
fn has_left_in<F: Family, T: Tables<F>>(tables: &T, work: &Work<F>, tier: Tier) -> bool {
    tables
        .half(tier, &work.path, Kind::PASS)
        .is_some_and(|held| {
            let note = held.state();
            note.marks.kind() == Kind::PASS
                && !is_over(work.path.proto(), tier, note, work.event.now)
        })
}

/// A packet has come in that a note was left for. Nothing to say if that is gone.
#[inline(always)]
pub fn answers<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let (tier, event) = (work.tier, work.event);
    let Some(flow) = tables.flow(tier, &work.key) else {
        return Step::NONE;
    };
    let note = *flow.state();
    work.path.begin_direct(&work.key);
    // Where nothing was seen to leave, an opening packet does not wait for the note to be over.
    let may_open = !event.proto.connects() || event.flags.opens();
    let is_spent =
        is_over(event.proto, tier, &note, event.now) || (event.proto.connects() && note.proof == 0);
    if may_open && is_spent && frontend_for(tables, work).is_some() {
        tables.remove(Tier::Established, &work.path, Kind::PASS);
        tables.remove(Tier::HalfOpen, &work.path, Kind::PASS);
        work.old = work.path;
        work.replaces = true;
        return Step::OPEN;
    }
    let (set, clear) = event.bits(note.marks.state());
    if set.0 | clear.0 != 0 || is_stale(event.proto, note.last_seen, event.now) {
        let touch = Touch {
            set,
            clear,
            proof: 0,
            now: event.now,
        };
        tables.touch(tier, &work.path, Kind::OWN, touch);
    }
    Step::PASS
}
