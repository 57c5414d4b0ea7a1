//! Packets that come in: towards a Service, or back from an endpoint to itself.

use super::flow::{Path, destination_of, is_same};
use super::header::{Network, Transport, Wire};
use super::lifetime;
use super::note::{Event, Sender, is_quiet, note};
use super::open::{Opening, open};
use super::packet::Packet;
use super::repair::repair_forward;
use super::rewrite::{Change, Side, rewrite};
use super::tables::{Tables, find};
use super::verdict::{Step, Verdict};
use crate::abi::endpoint::Endpoint as _;
use crate::abi::flow::{Flow as _, FlowKey as _};
use crate::abi::{Counter, Family, FlowState, Hook, Kind, State, Tier, V4, V6};
use crate::net::eth;
use crate::net::tcp::Flags;

/// Handles a packet that came in, its network header at `network` bytes.
#[inline(always)]
pub fn ingress<P, T>(packet: &mut P, tables: &mut T, network: usize) -> Verdict
where
    P: Packet,
    T: Tables<V4> + Tables<V6>,
{
    // The device of that VLAN has a program of its own, and overheard frames are nobody's.
    if packet.has_vlan() || packet.is_for_other_host() {
        return Verdict::Pass;
    }
    match packet.protocol() {
        eth::IPV4 => of_family::<V4, P, T>(packet, tables, network),
        eth::IPV6 => of_family::<V6, P, T>(packet, tables, network),
        _ => Verdict::Pass,
    }
}

#[inline(always)]
fn of_family<F: Wire, P: Packet, T: Tables<F>>(
    packet: &mut P,
    tables: &mut T,
    offset: usize,
) -> Verdict {
    let Some(network) = F::network(packet, offset) else {
        return Verdict::Pass;
    };
    if !tables.may_be_frontend(network.dst) {
        return Verdict::Pass;
    }
    if network.is_fragment {
        tables.count(Counter::PassFragment);
        return Verdict::Pass;
    }
    let Some(transport) = Transport::read(packet, &network) else {
        tables.count(Counter::PassProtocol);
        return Verdict::Pass;
    };
    let mut change = Change {
        addr: network.dst,
        sport: transport.sport,
        dport: transport.dport,
    };
    match decide(tables, &network, &transport, &mut change) {
        Step::Rewrite => match rewrite(packet, &network, &transport, Side::Destination, &change) {
            Some(()) => Verdict::Rewritten,
            None => drop(tables, Counter::DropRewrite),
        },
        Step::Pass => Verdict::Pass,
        Step::Drop(reason) => drop(tables, reason),
    }
}

/// Counts a packet out.
#[inline(always)]
pub(super) fn drop<F: Family, T: Tables<F>>(tables: &mut T, reason: Counter) -> Verdict {
    tables.count(reason);
    Verdict::Drop(reason)
}

#[inline(always)]
fn decide<F: Family, T: Tables<F>>(
    tables: &mut T,
    network: &Network<F>,
    transport: &Transport,
    change: &mut Change<F::Addr>,
) -> Step {
    let key = F::FlowKey::new(
        network.src,
        network.dst,
        transport.sport,
        transport.dport,
        network.proto,
        Hook::INGRESS,
    );
    let event = Event::new(Sender::Client, transport, tables.now());
    let Some((tier, flow)) = find(tables, &key) else {
        return miss(tables, &key, &event, change);
    };
    let state = *flow.state();
    *change = destination_of(flow);
    if state.marks.kind() == Kind::UNSNAT {
        return Step::Rewrite;
    }
    if may_choose_again(tables, &state, &event) {
        return renew(tables, tier, &key, &event, change);
    }
    if !is_quiet(tier, &state, &event) {
        note(tables, tier, &key, &event);
    }
    Step::Rewrite
}

/// Whether the flow that a packet belongs to may have to choose again.
#[inline(always)]
fn may_choose_again<F: Family, T: Tables<F>>(tables: &T, flow: &FlowState, event: &Event) -> bool {
    if event.is_tcp {
        return event.flags.opens();
    }
    // UDP has no opening packet: a datagram leaves an endpoint that is gone, and a flow that was
    // idle for too long, at once.
    !is_current(tables, flow)
        || event.now.saturating_sub(flow.last_seen) > lifetime::udp(flow.marks.state())
}

/// Whether the flow's endpoint is still the one that it chose.
#[inline(always)]
fn is_current<F: Family, T: Tables<F>>(tables: &T, flow: &FlowState) -> bool {
    tables
        .endpoint(flow.endpoint)
        .is_some_and(|endpoint| endpoint.generation() == flow.generation)
}

/// A known flow that may have to choose again: a TCP connection that is opened once more, or a
/// UDP flow whose endpoint or time is over.
#[inline(never)]
fn renew<F: Family, T: Tables<F>>(
    tables: &mut T,
    tier: Tier,
    key: &F::FlowKey,
    event: &Event,
    change: &mut Change<F::Addr>,
) -> Step {
    let Some(flow) = tables.flow(tier, key) else {
        return miss(tables, key, event, change);
    };
    let state = *flow.state();
    let old = Path::<F>::of_forward(key, flow);
    let frontend_key = F::frontend_key(key.dst(), key.dport(), key.proto());
    let Some(frontend) = tables.frontend(&frontend_key) else {
        tables.count(Counter::PassNoFrontend);
        return Step::Pass;
    };
    // A SYN on a live connection is a retransmission, or somebody's forgery: it changes nothing.
    // Only where nothing was answered yet may it leave an endpoint that is gone.
    let is_waiting = tier == Tier::HalfOpen && !state.marks.state().any(State::REPLIED);
    let keeps = event.is_tcp
        && !lifetime::is_over(key.proto(), tier, &state, event.now)
        && state.service == frontend.service
        && (!is_waiting || is_current(tables, &state));
    *change = old.towards_endpoint();
    if keeps {
        return Step::Rewrite;
    }
    if let Err(reason) = open(tables, key, Opening::Again, event.now, change) {
        return Step::Drop(reason);
    }
    if *change != old.towards_endpoint() {
        // Late packets of the endpoint that was left must not reach the client as the new one's.
        retire(tables, &old);
    }
    Step::Rewrite
}

/// Removes what a flow had on its endpoint's side.
#[inline(never)]
fn retire<F: Family, T: Tables<F>>(tables: &mut T, old: &Path<F>) {
    let key = old.key(Kind::UNDNAT);
    let half = old.half(Kind::UNDNAT, State::NEW, 0, 0);
    for tier in [Tier::Established, Tier::HalfOpen] {
        if tables
            .flow(tier, &key)
            .is_some_and(|held| is_same(held, &half))
        {
            tables.remove(tier, &key);
        }
    }
}

/// A packet of no known flow.
#[inline(never)]
fn miss<F: Family, T: Tables<F>>(
    tables: &mut T,
    key: &F::FlowKey,
    event: &Event,
    change: &mut Change<F::Addr>,
) -> Step {
    let frontend_key = F::frontend_key(key.dst(), key.dport(), key.proto());
    if tables.frontend(&frontend_key).is_none() {
        tables.count(Counter::PassNoFrontend);
        return Step::Pass;
    }
    if event.is_tcp && !event.flags.opens() {
        // A flow on its way between the tiers was in neither place when it was looked for.
        if let Some(flow) = tables.flow(Tier::Established, key) {
            *change = destination_of(flow);
            return Step::Rewrite;
        }
        if repair_forward(tables, key, event.now, change) {
            return Step::Rewrite;
        }
        // What conntrack calls INVALID when it knows no connection: anything but a plain ACK.
        let sync = Flags::SYN.with(Flags::RST).with(Flags::FIN);
        if event.flags.any(sync) || !event.flags.any(Flags::ACK) {
            return Step::Drop(Counter::DropInvalid);
        }
        if !tables.is_tcp_loose() {
            return Step::Drop(Counter::DropMidFlow);
        }
        tables.count(Counter::Loose);
    }
    match open(tables, key, Opening::New, event.now, change) {
        Ok(()) => Step::Rewrite,
        Err(reason) => Step::Drop(reason),
    }
}
