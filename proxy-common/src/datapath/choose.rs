//! Where a packet that opens a flow goes: to an endpoint, or nowhere.

use super::flow::Chosen;
use super::origin::origin_of;
use super::tables::{Insert, Tables};
use super::verdict::Step;
use super::work::{Part, Work};
use crate::abi::endpoint::Endpoint as _;
use crate::abi::flow::FlowKey as _;
use crate::abi::{
    Affinity, Counter, Empty, EndpointFlags, EndpointSet, Family, FlowFlags, Frontend,
    FrontendFlags, Origin,
};

/// Chooses the endpoint for a packet that came in.
#[inline(always)]
pub fn choose<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let origin = origin_of(tables, work);
    choose_for(tables, work, origin, true)
}

/// Chooses the endpoint for a packet of this origin: nothing to say if the flow has begun.
///
/// Who may not use the frontend is told before anybody is sent nowhere, as in kube-proxy's nftables
/// mode.
#[inline(always)]
pub fn choose_for<F: Family, T: Tables<F>>(
    tables: &mut T,
    work: &mut Work<F>,
    origin: Origin,
    is_source_known: bool,
) -> Step {
    let key = work.frontend_key();
    // Between reading the frontend and its set, both may have been replaced: read them once more.
    for _ in 0..2 {
        let Some(frontend) = tables.frontend(&key) else {
            return Step::drop(Counter::DropStale);
        };
        if is_source_known && is_kept_out(tables, work, &frontend) {
            return Step::drop(Counter::DropSourceRange);
        }
        let set = frontend.set(origin);
        if set.count() == 0 {
            return nowhere(frontend.flags.empty(origin));
        }
        work.set = set;
        work.service = frontend.service;
        work.affinity_timeout = frontend.affinity_timeout;
        work.listed = frontend.flags.listed(origin);
        let has_affinity = frontend.affinity_timeout != 0;
        if !has_affinity || tables.part(Part::Recall, work) != Step::TAKEN {
            let index = tables.pick(set.count());
            let Some((slot, _)) = drawn(tables, set, frontend.service, index) else {
                continue;
            };
            // Draws and not flows: whoever comes back to the endpoint that it had draws nothing, and
            // a draw that another CPU's is preferred to was as fair as that one.
            tables.count_draw(set.base().wrapping_add(index));
            work.index = slot;
            if has_affinity {
                tables.part(Part::Remember, work);
            }
        }
        let Some(endpoint) = tables.endpoint(work.index) else {
            continue;
        };
        let chosen = Chosen {
            service: frontend.service,
            slot: work.index,
            flags: decided(tables, work, &frontend, origin, &endpoint),
        };
        work.path.begin(&work.key, chosen, &endpoint);
        return Step::NONE;
    }
    Step::drop(Counter::DropStale)
}

/// Whether source ranges keep a packet from a frontend.
#[inline(always)]
pub(super) fn is_kept_out<F: Family, T: Tables<F>>(
    tables: &T,
    work: &Work<F>,
    frontend: &Frontend,
) -> bool {
    frontend.flags.has(FrontendFlags::FILTERED)
        && !tables.is_in_ranges(frontend.service, work.key.src())
}

/// What becomes of a packet where there is no endpoint for it.
#[inline(always)]
pub(super) const fn nowhere(empty: Empty) -> Step {
    match empty {
        Empty::Drop => Step::drop(Counter::DropNoEndpoint),
        Empty::Reject => Step::REJECT,
        Empty::Pass => Step::PASS,
    }
}

/// What the flow is to be. A hairpin wins: its source becomes another one anyway, and by a
/// masquerade in a bridge the answer would not find its way.
#[inline(always)]
fn decided<F: Family, T: Tables<F>>(
    tables: &T,
    work: &Work<F>,
    frontend: &Frontend,
    origin: Origin,
    endpoint: &F::Endpoint,
) -> FlowFlags {
    if work.key.src() == endpoint.addr()
        && (tables.is_hairpin_anywhere() || endpoint.flags().has(EndpointFlags::LOCAL))
    {
        FlowFlags::HAIRPIN
    } else if frontend.flags.has(FrontendFlags::masquerade(origin)) {
        FlowFlags::MASQUERADE
    } else {
        FlowFlags::NONE
    }
}

/// The endpoint at `index` of a service port's set, if the tables agree on it.
#[inline(always)]
pub(super) fn drawn<F: Family, T: Tables<F>>(
    tables: &T,
    set: EndpointSet,
    service: u32,
    index: u32,
) -> Option<(u32, F::Endpoint)> {
    let slot = tables.slot(set.base().wrapping_add(index))?;
    if slot.service != service {
        return None;
    }
    let endpoint = tables.endpoint(slot.endpoint)?;
    (endpoint.service() == service && endpoint.is_alive()).then_some((slot.endpoint, endpoint))
}

/// Finds the endpoint that the client had last, and remembers it for longer: taken if there is one,
/// at `work.index` then.
#[inline(always)]
pub fn recall<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let key = F::affinity_key(work.service, work.key.src());
    let Some(affinity) = tables.affinity(&key) else {
        return Step::NONE;
    };
    if !is_valid(tables, work, &affinity) {
        // So that whoever comes next finds what is remembered anew, and not this.
        tables.forget(&key);
        return Step::NONE;
    }
    work.index = affinity.endpoint;
    if affinity.last_used != work.event.now {
        tables.keep(&key, work.event.now);
    }
    Step::TAKEN
}

/// Remembers the endpoint at `work.index` for the client. If another CPU has just done so for a
/// packet of the same client, it is that one's endpoint that counts.
#[inline(always)]
pub fn remember<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let Some(endpoint) = tables.endpoint(work.index) else {
        return Step::NONE;
    };
    let affinity = Affinity {
        endpoint: work.index,
        generation: endpoint.generation(),
        last_used: work.event.now,
        pad: 0,
    };
    let key = F::affinity_key(work.service, work.key.src());
    if tables.remember(&key, &affinity) == Insert::Exists
        && let Some(theirs) = tables.affinity(&key)
        && is_valid(tables, work, &theirs)
    {
        work.index = theirs.endpoint;
    }
    Step::NONE
}

/// Whether the client may still have the endpoint that is remembered for it.
#[inline(always)]
fn is_valid<F: Family, T: Tables<F>>(tables: &T, work: &Work<F>, affinity: &Affinity) -> bool {
    work.event.now.saturating_sub(affinity.last_used) <= work.affinity_timeout
        && tables.endpoint(affinity.endpoint).is_some_and(|endpoint| {
            endpoint.generation() == affinity.generation
                && endpoint.service() == work.service
                && endpoint
                    .flags()
                    .has(EndpointFlags(EndpointFlags::ALIVE.0 | work.listed.0))
        })
}
