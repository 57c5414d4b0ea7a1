//! Flows of which the table has lost one half, and traffic that is no flow of ours.

use super::lifetime::{self, is_over};
use super::open::{drawn, retire};
use super::tables::{Past, Tables, Touch, find};
use super::verdict::Step;
use super::work::{Part, Work};
use crate::abi::endpoint::Endpoint as _;
use crate::abi::flow::{Flow as _, FlowKey as _, Marks};
use crate::abi::{Counter, Family, FlowState, Hook, Hop, Kind, State, Tier};
use crate::net::tcp::Flags;

/// Services with more endpoints than this are not searched for a lost client's half.
pub const MAX_PROBES: u32 = 64;

/// Rebuilds the client's half of a TCP connection from the half of whichever endpoint has it.
#[inline(always)]
pub fn repair_forward<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let Some(frontend) = tables.frontend(&work.frontend_key()) else {
        return Step::NONE;
    };
    let n = frontend.inside.count();
    if n > MAX_PROBES {
        return Step::NONE;
    }
    work.frontend = frontend;
    let mut index = 0;
    while index < n && index < MAX_PROBES {
        work.index = index;
        if tables.part(Part::Probe, work) == Step::REWRITE {
            return Step::REWRITE;
        }
        index += 1;
    }
    Step::NONE
}

/// Rebuilds the client's half from that of endpoint `work.index`, if it has one.
#[inline(always)]
pub fn probe<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let Some((_, endpoint)) = drawn(tables, &work.frontend, work.index) else {
        return Step::NONE;
    };
    let key = &work.key;
    let reverse = F::FlowKey::new(
        endpoint.addr(),
        key.src(),
        endpoint.port(),
        key.sport(),
        key.proto(),
        Hook::EGRESS,
    );
    let Some((tier, flow)) = find(tables, &reverse) else {
        return Step::NONE;
    };
    let state = *flow.state();
    let is_ours = state.marks.kind() == Kind::UNDNAT
        && flow.new_src() == key.dst()
        && state.new_sport == key.dport()
        && state.new_dport == key.sport();
    // A late FIN must not revive a dead flow.
    if !is_ours || state.marks.state().is_closing() {
        return Step::NONE;
    }
    work.path.read_reverse(&reverse, flow);
    tables.insert(tier, &work.path, Kind::DNAT, past(&state, work.event.now));
    tables.count(Counter::Repaired);
    work.change = work.path.towards_endpoint();
    work.hop = work.path.hop;
    Step::REWRITE
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

/// The note that packets with this key are direct traffic.
#[inline(always)]
pub fn direct<F: Family>(key: &F::FlowKey, now: u32) -> F::Flow {
    let state = FlowState {
        new_sport: key.sport(),
        new_dport: key.dport(),
        service: 0,
        endpoint: 0,
        generation: 0,
        last_seen: now,
        proof: 0,
        marks: Marks::new(Kind::PASS, State::NEW),
        reserved: 0,
        hop: Hop::UNKNOWN,
    };
    F::Flow::new(key.src(), key.dst(), state)
}

/// Rebuilds the endpoint's half of a flow from the client's, by way of the endpoint's frontends;
/// whether there was one.
///
/// An endpoint's packet that belongs to no flow is direct traffic. It is noted as such, so that
/// only its first packet pays for the search. The note stays in the half-open tier, where it can
/// push out nothing but openings.
#[inline(always)]
pub fn repair_reply<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    // What is found here is over, or was found a moment too late and is retired by a client that
    // enters it again.
    if let Some((_, flow)) = find(tables, &work.key)
        && flow.state().marks.kind() == Kind::UNDNAT
    {
        work.old.read_reverse(&work.key, flow);
        retire(tables, &work.old);
    }
    let key = &work.key;
    let endpoint = F::endpoint_key(key.src(), key.sport(), key.proto());
    for index in 0..crate::abi::endpoint::FRONTENDS_PER_ENDPOINT {
        let Some((vip, vip_port)) = tables.frontend_of(&endpoint, index) else {
            if index == 0 {
                return Step::PASS;
            }
            break;
        };
        let forward = F::FlowKey::new(
            key.dst(),
            vip,
            key.dport(),
            vip_port,
            key.proto(),
            Hook::INGRESS,
        );
        let Some((tier, flow)) = find(tables, &forward) else {
            continue;
        };
        let state = *flow.state();
        let is_ours = state.marks.kind() == Kind::DNAT
            && flow.new_dst() == key.src()
            && state.new_dport == key.sport()
            && state.new_sport == key.dport();
        if !is_ours
            || state.marks.state().is_closing()
            || is_over(key.proto(), tier, &state, work.event.now)
        {
            continue;
        }
        work.path.read_forward(&forward, flow);
        tables.insert(tier, &work.path, Kind::UNDNAT, past(&state, work.event.now));
        tables.count(Counter::Repaired);
        work.change = work.path.towards_client();
        return Step::REWRITE;
    }
    tables.insert_direct(key, work.event.now);
    tables.count(Counter::Direct);
    Step::PASS
}

/// Notes the time on direct traffic, and its end.
#[inline(always)]
pub fn note_direct<F: Family, T: Tables<F>>(
    tables: &mut T,
    tier: Tier,
    work: &Work<F>,
    last_seen: u32,
) {
    let event = work.event;
    let ended = event.flags.any(Flags::FIN.with(Flags::RST));
    // Another connection from the same port.
    let begins = event.flags.any(Flags::SYN);
    if !ended && !begins && !lifetime::is_stale(event.is_tcp, last_seen, event.now) {
        return;
    }
    let end = State::FIN_CLIENT.with(State::FIN_ENDPOINT);
    let touch = Touch {
        set: if ended { end } else { State::NEW },
        clear: if begins { end } else { State::NEW },
        proof: 0,
        now: event.now,
    };
    tables.touch_direct(tier, &work.key, touch);
}
