//! Tells whoever listens what happens to flows and packets.
//!
//! Only where something rare happens: a flow begins or ends, a half of it was lost, a packet is
//! dropped. Packets of known flows do not even ask whether anybody listens. What is told stands in
//! a ring buffer; of what is too much, only the number.

use super::flow::Path;
use super::tables::Tables;
use super::verdict::Step;
use super::work::{Part, Work};
use crate::abi::event::{Event, What};
use crate::abi::flow::FlowKey as _;
use crate::abi::{Family, FlowFlags, Hook};
use crate::net::{Address as _, Port};

/// Tells what has become of the flow that is worked on, if somebody listens.
#[inline(always)]
pub(super) fn report<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>, what: What) {
    if is_wanted(tables, what) {
        work.what = what;
        tables.part(Part::Report, work);
    }
}

#[inline(always)]
fn is_wanted<F: Family, T: Tables<F>>(tables: &T, what: What) -> bool {
    // In this order: mostly nobody listens.
    tables
        .watch()
        .is_some_and(|watch| watch.until != 0 && watch.wants(what, tables.now()))
}

/// Tells of the flow that is worked on.
#[inline(always)]
pub fn tell<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    if !is_allowed(tables) {
        return Step::NONE;
    }
    let time = tables.nanos();
    let is_told = tables.tell(|event| {
        fill_flow(event, &work.path);
        event.hook = work.key.hook();
        event.time = time;
        event.what = work.what;
        event.device = work.device;
    });
    if !is_told {
        count_full(tables);
    }
    Step::NONE
}

/// Counts that the packet of `work.key` goes nowhere, for the reason in `work.what`, and tells it if
/// somebody listens.
///
/// A part of its own, because there are many places to which a packet may come that cannot go on, and
/// the verifier would go through all of this from each of them.
#[inline(always)]
pub fn count_out<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    if let Some(counter) = work.what.counter() {
        tables.count(counter);
    }
    if !is_wanted(tables, work.what) || !is_allowed(tables) {
        return Step::NONE;
    }
    let frontend = if work.key.hook() == Hook::INGRESS {
        tables.frontend(&work.frontend_key())
    } else {
        None
    };
    let service = frontend.map_or(0, |frontend| frontend.service);
    let time = tables.nanos();
    let is_told = tables.tell(|event| {
        fill_packet::<F>(event, &work.key);
        event.service = service;
        event.time = time;
        event.what = work.what;
        event.device = work.device;
    });
    if !is_told {
        count_full(tables);
    }
    Step::NONE
}

/// Tells of a flow that the sweeper has removed.
#[inline(always)]
pub(super) fn tell_swept<F: Family, T: Tables<F>>(tables: &mut T, path: &Path<F>, what: What) {
    if !is_wanted(tables, what) || !is_allowed(tables) {
        return;
    }
    let time = tables.nanos();
    let is_told = tables.tell(|event| {
        fill_flow(event, path);
        event.hook = Hook::INGRESS;
        event.time = time;
        event.what = what;
        event.device = 0;
    });
    if !is_told {
        count_full(tables);
    }
}

/// Whether this CPU has not told too much in this second.
#[inline(always)]
fn is_allowed<F: Family, T: Tables<F>>(tables: &mut T) -> bool {
    let per_second = tables.watch().map_or(0, |watch| watch.per_second);
    let now = tables.now();
    tables
        .meter()
        .is_some_and(|meter| meter.take(now, per_second))
}

#[inline(always)]
fn count_full<F: Family, T: Tables<F>>(tables: &mut T) {
    if let Some(meter) = tables.meter() {
        meter.full += 1;
    }
}

#[inline(always)]
fn fill_flow<F: Family>(event: &mut Event, path: &Path<F>) {
    event.client = path.client.words();
    event.frontend = path.vip.words();
    event.endpoint = path.endpoint.words();
    event.client_port = path.client_port;
    event.frontend_port = path.vip_port;
    event.endpoint_port = path.endpoint_port;
    event.source_port = path.sport;
    event.service = path.service;
    event.slot = path.slot;
    event.flags = path.flags;
    event.proto = path.proto();
    event.is_v6 = F::IS_V6.into();
    event.pad = 0;
}

/// Of a packet that goes nowhere, what it says itself.
///
/// Chosen by masks and not by branches: there the compiler clears the address that is not known by a
/// call, for which the stack of the oldest kernels has no room.
#[inline(always)]
fn fill_packet<F: Family>(event: &mut Event, key: &F::FlowKey) {
    let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (key.src().words(), key.dst().words());
    let inwards = u32::from(key.hook() == Hook::INGRESS).wrapping_neg();
    let either = |on: u32, off: u32| on & inwards | off & !inwards;
    event.client = [
        either(s0, d0),
        either(s1, d1),
        either(s2, d2),
        either(s3, d3),
    ];
    event.frontend = [d0 & inwards, d1 & inwards, d2 & inwards, d3 & inwards];
    event.endpoint = [s0 & !inwards, s1 & !inwards, s2 & !inwards, s3 & !inwards];
    let (sport, dport) = (key.sport().wire().into(), key.dport().wire().into());
    let port = |wire: u32| Port::from_wire(wire as u16);
    event.client_port = port(either(sport, dport));
    event.source_port = event.client_port;
    event.frontend_port = port(dport & inwards);
    event.endpoint_port = port(sport & !inwards);
    event.slot = 0;
    event.flags = FlowFlags::NONE;
    event.proto = key.proto();
    event.hook = key.hook();
    event.is_v6 = F::IS_V6.into();
    event.pad = 0;
}
