//! Flows of which the table has lost one half, and traffic that is no flow of ours.

use super::choose::drawn;
use super::claim::retire;
use super::direct::note_answer;
use super::egress::is_remains;
use super::flow::source_of;
use super::lifetime::{is_over, may_go};
use super::note::Event;
use super::open::is_current;
use super::origin::origin_of;
use super::report::report;
use super::tables::{Past, Tables, find};
use super::verdict::Step;
use super::work::{Part, Work};
use crate::abi::endpoint::Endpoint as _;
use crate::abi::flow::{Flow as _, FlowKey as _};
use crate::abi::{Counter, Family, FlowFlags, FlowState, Hook, Hop, Kind, Tier, What};
use crate::net::tcp::Flags;

/// Services with more endpoints than this are not searched for a lost client's half.
pub const MAX_PROBES: u32 = 64;

/// Rebuilds the client's half of a TCP connection from the half of whichever endpoint has it.
#[inline(always)]
pub fn repair_forward<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let Some(frontend) = tables.frontend(&work.frontend_key()) else {
        return Step::NONE;
    };
    let set = frontend.set(origin_of(tables, work));
    let n = set.count();
    if n > MAX_PROBES {
        return Step::NONE;
    }
    (work.set, work.service) = (set, frontend.service);
    let mut index = 0;
    while index < n && index < MAX_PROBES {
        work.index = index;
        work.what = What::NOTHING;
        if tables.part(Part::Probe, work) == Step::REWRITE {
            // Told here, where more stack is left.
            if work.what == What::REBUILT {
                report(tables, work, What::REBUILT);
            }
            return Step::REWRITE;
        }
        index += 1;
    }
    Step::NONE
}

/// Rebuilds the client's half from that of endpoint `work.index`, if it has one.
#[inline(always)]
pub fn probe<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let Some((_, endpoint)) = drawn(tables, work.set, work.service, work.index) else {
        return Step::NONE;
    };
    let key = &work.key;
    work.answer.fill(
        (&endpoint.addr(), &key.src()),
        (endpoint.port(), key.sport()),
        key.proto(),
        Hook::EGRESS,
    );
    let Some((tier, flow)) = find(tables, &work.answer) else {
        return Step::NONE;
    };
    let state = *flow.state();
    let is_ours = state.marks.kind() == Kind::UNDNAT
        && flow.new_src() == key.dst()
        && state.new_sport == key.dport()
        && state.new_dport == key.sport();
    let use_of = use_of(tables, tier, &state, &work.event);
    if !is_ours || use_of == Use::Nothing {
        return Step::NONE;
    }
    work.path.read_reverse(&work.answer, flow);
    if use_of == Use::Rebuild {
        tables.insert(tier, &work.path, Kind::DNAT, past(&state, work.event.now));
        tables.count(Counter::Repaired);
        work.what = What::REBUILT;
    }
    work.goes_by_path();
    Step::REWRITE
}

/// What a half is good for whose partner is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Its partner is written again.
    Rebuild,
    /// It is at its end: a late packet still finds its way by it, and nothing is written, so that
    /// it does not come to life again.
    Follow,
    /// Nothing.
    Nothing,
}

#[inline(always)]
fn use_of<F: Family, T: Tables<F>>(tables: &T, tier: Tier, half: &FlowState, event: &Event) -> Use {
    let proto = event.proto;
    if !is_over(proto, tier, half, event.now) {
        // A datagram would leave an endpoint that is gone.
        let is_good = proto.connects() || is_current(tables, half);
        return if is_good { Use::Rebuild } else { Use::Nothing };
    }
    // As long as the table keeps it: without it, the last segments of a connection would reach
    // the peer untranslated, who resets what it was about to close.
    let is_late = proto.connects()
        && half.marks.state().is_closed()
        && !event.flags.any(Flags::SYN)
        && !may_go(proto, tier, half, event.now, false);
    if is_late { Use::Follow } else { Use::Nothing }
}

/// What a half tells of its partner.
#[inline(always)]
const fn past(half: &FlowState, now: u32) -> Past {
    Past {
        state: half.marks.state(),
        proof: half.proof,
        now,
    }
}

/// An endpoint's packet that has no entry, or stands on the remains of another flow: rebuilds the
/// endpoint's half of its flow from the client's, by way of the endpoint's frontends.
///
/// If there is none it is direct traffic, and noted as such; nothing to say then.
#[inline(always)]
pub fn repair_reply<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    // A flow on its way between the tiers was in neither place when it was looked for.
    if let Some((tier, flow)) = find(tables, &work.key) {
        let state = flow.state();
        match state.marks.kind() {
            Kind::PASS => return Step::PASS,
            Kind::UNDNAT if is_remains(tier, state, &work.event) => {
                work.old.read_reverse(&work.key, flow);
                retire(tables, &work.old);
            }
            _ => {
                work.change = source_of(flow);
                return Step::REWRITE;
            }
        }
    }
    if work.key.src() == work.key.dst() {
        let step = repair_way_out(tables, work);
        if step != Step::NONE {
            return step;
        }
    }
    let mut step = Step::NONE;
    work.what = What::NOTHING;
    let key = &work.key;
    let endpoint = F::endpoint_key(key.src(), key.sport(), key.proto());
    for index in 0..crate::abi::endpoint::FRONTENDS_PER_ENDPOINT {
        let Some((vip, vip_port)) = tables.frontend_of(&endpoint, index) else {
            if index == 0 {
                return Step::NONE;
            }
            break;
        };
        let (addrs, ports) = ((&key.dst(), &vip), (key.dport(), vip_port));
        work.answer.fill(addrs, ports, key.proto(), Hook::INGRESS);
        let Some((tier, flow)) = find(tables, &work.answer) else {
            continue;
        };
        let state = *flow.state();
        let is_ours = state.marks.kind() == Kind::DNAT
            && flow.new_dst() == key.src()
            && state.new_dport == key.sport()
            && state.new_sport == key.dport();
        let use_of = use_of(tables, tier, &state, &work.event);
        if !is_ours || use_of == Use::Nothing {
            continue;
        }
        work.path.read_forward(&work.answer, flow);
        if use_of == Use::Rebuild {
            tables.insert(tier, &work.path, Kind::UNDNAT, past(&state, work.event.now));
            tables.count(Counter::Repaired);
            work.what = What::REBUILT;
        }
        work.change = work.path.towards_client();
        step = Step::REWRITE;
        break;
    }
    if step == Step::NONE {
        note_answer(tables, work);
    } else if work.what == What::REBUILT {
        // Beside the loop, of which the verifier looks at every round.
        report(tables, work, What::REBUILT);
    }
    step
}

/// A packet to itself on its way out, to which nothing says that it comes from a Service: the
/// endpoint's half of its flow may.
#[inline(always)]
fn repair_way_out<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let (src, dst) = (work.key.src(), work.key.dst());
    let (sport, dport) = (work.key.sport(), work.key.dport());
    work.answer
        .fill((&dst, &src), (dport, sport), work.key.proto(), Hook::EGRESS);
    repair_from_answer(tables, work, Kind::SNAT)
}

/// A packet that came in for a Service's address, but for no Service: it may be the answer of a
/// client that reached itself.
#[inline(always)]
pub fn repair_hairpin<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let src = work.key.src();
    let (sport, dport) = (work.key.sport(), work.key.dport());
    work.answer
        .fill((&src, &src), (sport, dport), work.key.proto(), Hook::EGRESS);
    let vip = work.key.dst();
    let is_its_vip = find(tables, &work.answer).is_some_and(|(_, flow)| flow.new_src() == vip);
    if !is_its_vip {
        return Step::NONE;
    }
    repair_from_answer(tables, work, Kind::UNSNAT)
}

/// Rebuilds one of a hairpin's two halves more from the endpoint's, at `work.answer`.
#[inline(always)]
fn repair_from_answer<F: Family, T: Tables<F>>(
    tables: &mut T,
    work: &mut Work<F>,
    kind: Kind,
) -> Step {
    let Some((tier, flow)) = find(tables, &work.answer) else {
        return Step::NONE;
    };
    let state = *flow.state();
    let use_of = use_of(tables, tier, &state, &work.event);
    if state.marks.kind() != Kind::UNDNAT
        || !state.marks.flags().has(FlowFlags::HAIRPIN)
        || use_of == Use::Nothing
    {
        return Step::NONE;
    }
    work.path.read_reverse(&work.answer, flow);
    if use_of == Use::Rebuild {
        tables.insert(tier, &work.path, kind, past(&state, work.event.now));
        tables.count(Counter::Repaired);
        report(tables, work, What::REBUILT);
    }
    work.change = work.path.outcome(kind);
    work.flags = work.path.flags;
    // Out by the door it came in by, which is no bridge's way.
    work.hop = Hop::ELSEWHERE;
    Step::REWRITE
}
