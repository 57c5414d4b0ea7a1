//! Packets that go out: back to a Service's client, or from a client to itself.

use super::flow::source_of;
use super::header::{Network, Transport, Wire};
use super::ingress::drop;
use super::note::{Event, Sender, is_quiet, note};
use super::packet::Packet;
use super::repair::{note_direct, repair_reply};
use super::rewrite::{Change, Side, rewrite};
use super::tables::{Tables, find};
use super::verdict::Verdict;
use crate::abi::flow::{Flow as _, FlowKey as _};
use crate::abi::{Counter, Family, Hook, Kind, V4, V6};
use crate::net::eth;
use crate::net::tcp::Flags;

/// Handles a packet that is about to leave, its network header at `network` bytes.
#[inline(always)]
pub fn egress<P, T>(packet: &mut P, tables: &mut T, network: usize) -> Verdict
where
    P: Packet,
    T: Tables<V4> + Tables<V6>,
{
    if packet.has_vlan() {
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
    if !tables.may_be_endpoint(network.src) {
        return Verdict::Pass;
    }
    if network.is_fragment {
        tables.count(Counter::PassFragment);
        return Verdict::Pass;
    }
    // Unlike at ingress, other protocols of an endpoint's address are nothing remarkable.
    let Some(transport) = Transport::read(packet, &network) else {
        return Verdict::Pass;
    };
    let mut change = Change {
        addr: network.src,
        sport: transport.sport,
        dport: transport.dport,
    };
    if !decide(tables, &network, &transport, &mut change) {
        return Verdict::Pass;
    }
    match rewrite(packet, &network, &transport, Side::Source, &change) {
        Some(()) => Verdict::Rewritten,
        None => drop(tables, Counter::DropRewrite),
    }
}

/// Whether the packet is rewritten.
#[inline(always)]
fn decide<F: Family, T: Tables<F>>(
    tables: &mut T,
    network: &Network<F>,
    transport: &Transport,
    change: &mut Change<F::Addr>,
) -> bool {
    let key = F::FlowKey::new(
        network.src,
        network.dst,
        transport.sport,
        transport.dport,
        network.proto,
        Hook::EGRESS,
    );
    let event = Event::new(Sender::Endpoint, transport, tables.now());
    let Some((tier, flow)) = find(tables, &key) else {
        return repair_reply(tables, &key, event.now, change);
    };
    let state = *flow.state();
    match state.marks.kind() {
        Kind::UNDNAT => {
            *change = source_of(flow);
            if !is_quiet(tier, &state, &event) {
                note(tables, tier, &key, &event);
            }
            true
        }
        Kind::SNAT => {
            *change = source_of(flow);
            true
        }
        _ => {
            let ended = event.flags.any(Flags::FIN.with(Flags::RST));
            note_direct(tables, tier, &key, (state.last_seen, ended), event.now);
            false
        }
    }
}
