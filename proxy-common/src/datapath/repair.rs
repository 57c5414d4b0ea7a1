//! Flows of which the table has lost one half, and traffic that is no flow of ours.

use super::flow::Path;
use super::lifetime;
use super::open::drawn;
use super::rewrite::Change;
use super::tables::{Tables, find, state_of};
use crate::abi::endpoint::Endpoint;
use crate::abi::flow::{Flow, FlowKey, Marks};
use crate::abi::{Counter, Family, FlowState, Hook, Kind, State, Tier};

/// Services with more endpoints than this are not searched for a lost client's half.
pub const MAX_PROBES: u32 = 64;

/// Rebuilds the client's half of a TCP connection from the half of whichever endpoint has it;
/// whether there was one.
#[inline(never)]
pub fn repair_forward<F: Family, T: Tables<F>>(
    tables: &mut T,
    key: &F::FlowKey,
    now: u32,
    change: &mut Change<F::Addr>,
) -> bool {
    let frontend_key = F::frontend_key(key.dst(), key.dport(), key.proto());
    let Some(frontend) = tables.frontend(&frontend_key) else {
        return false;
    };
    let n = frontend.inside.count();
    if n > MAX_PROBES {
        return false;
    }
    for index in 0..MAX_PROBES {
        if index >= n {
            break;
        }
        let Some((_, endpoint)) = drawn(tables, &frontend, index) else {
            continue;
        };
        let reverse = F::FlowKey::new(
            endpoint.addr(),
            key.src(),
            endpoint.port(),
            key.sport(),
            key.proto(),
            Hook::EGRESS,
        );
        let Some((tier, flow)) = find(tables, &reverse) else {
            continue;
        };
        let state = *flow.state();
        let is_ours = state.marks.kind() == Kind::UNDNAT
            && flow.new_src() == key.dst()
            && state.new_sport == key.dport()
            && state.new_dport == key.sport();
        // A late FIN must not revive a dead flow.
        if !is_ours || state.marks.state().is_closing() {
            continue;
        }
        let path = Path::<F>::of_reverse(&reverse, flow);
        let forward = path.half(Kind::DNAT, state.marks.state(), state.proof, now);
        tables.insert(tier, key, &forward);
        tables.count(Counter::Repaired);
        *change = path.towards_endpoint();
        return true;
    }
    false
}

/// Rebuilds the endpoint's half of a flow from the client's, by way of the endpoint's frontends;
/// whether there was one.
///
/// An endpoint's packet that belongs to no flow is direct traffic. It is noted as such, so that
/// only its first packet pays for the search. The note stays in the half-open tier, where it can
/// push out nothing but openings.
#[inline(never)]
pub fn repair_reply<F: Family, T: Tables<F>>(
    tables: &mut T,
    key: &F::FlowKey,
    now: u32,
    change: &mut Change<F::Addr>,
) -> bool {
    let endpoint = F::endpoint_key(key.src(), key.sport(), key.proto());
    for index in 0..crate::abi::endpoint::FRONTENDS_PER_ENDPOINT {
        let Some((vip, vip_port)) = tables.frontend_of(&endpoint, index) else {
            if index == 0 {
                return false;
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
        if !is_ours || state_of(flow).is_closing() {
            continue;
        }
        let path = Path::<F>::of_forward(&forward, flow);
        let reverse = path.half(Kind::UNDNAT, state.marks.state(), state.proof, now);
        tables.insert(tier, key, &reverse);
        tables.count(Counter::Repaired);
        *change = path.towards_client();
        return true;
    }
    let direct = F::Flow::new(
        key.src(),
        key.dst(),
        FlowState {
            new_sport: key.sport(),
            new_dport: key.dport(),
            service: 0,
            endpoint: 0,
            generation: 0,
            last_seen: now,
            proof: 0,
            marks: Marks::new(Kind::PASS, State::NEW),
            reserved: 0,
        },
    );
    tables.insert(Tier::HalfOpen, key, &direct);
    tables.count(Counter::Direct);
    false
}

/// Notes the time on direct traffic, and its end.
#[inline(always)]
pub fn note_direct<F: Family, T: Tables<F>>(
    tables: &mut T,
    tier: Tier,
    key: &F::FlowKey,
    (last_seen, ended): (u32, bool),
    now: u32,
) {
    let set = if ended {
        State::FIN_CLIENT.with(State::FIN_ENDPOINT)
    } else {
        State::NEW
    };
    if ended || lifetime::is_stale(true, last_seen, now) {
        tables.touch(tier, key, set, State::NEW, now);
    }
}
