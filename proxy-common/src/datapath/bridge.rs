//! Packets that come in by a port of a bridge.
//!
//! What a pod sends to a Service is addressed to the bridge, so it goes up to the stack, which
//! routes it back to the endpoint's port. But the answer of an endpoint on the same bridge is
//! addressed to the client and never leaves the bridge. Where bridged packets do not pass
//! netfilter, conntrack sees one direction only and calls what follows INVALID. So the request is
//! addressed to the endpoint: then neither direction passes the stack.

use super::header::Wire;
use super::packet::{NextHop, Packet, Route};
use super::tables::Tables;
use super::work::Work;
use crate::abi::device::Network;
use crate::abi::flow::FlowKey as _;
use crate::abi::{Device, Family, Hop, Tier};
use crate::net::{Mac, eth};

/// What a program stands at; each is compiled for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// A device that is no bridge port.
    Device,
    /// A bridge port that leads to a pod.
    PodPort,
    /// A bridge port that leads to other machines.
    UplinkPort,
}

impl Seat {
    /// Whether it is a bridge port.
    #[inline(always)]
    pub const fn is_port(self) -> bool {
        !matches!(self, Self::Device)
    }
}

/// Whether a frame that came in by this port is none of the node's business: other machines' frames
/// for one another pass an uplink port as well. A pod's own are for the bridge, or for a pod beside
/// it.
#[inline(always)]
pub(super) fn is_passing_by<F: Family, P: Packet, T: Tables<F>>(
    seat: Seat,
    packet: &P,
    tables: &T,
) -> bool {
    // The port's own address is as good as the bridge's.
    if seat != Seat::UplinkPort || !packet.is_for_other_host() {
        return false;
    }
    let bridge = tables.device(packet.device()).map(|at| at.bridge_mac);
    bridge.is_none() || packet.load::<Mac>(eth::DST) != bridge
}

/// Sends a packet whose destination was rewritten across the bridge, if its endpoint is on it;
/// `None` if the kernel refused.
#[inline(always)]
pub(super) fn steer<F: Wire, P: Packet, T: Tables<F>>(
    packet: &mut P,
    tables: &mut T,
    work: &mut Work<F>,
) -> Option<()> {
    if work.hop == Hop::UNKNOWN || (work.asks && work.hop != Hop::ELSEWHERE) {
        ask(packet, tables, work);
    }
    match work.hop.mac() {
        Some(mac) => packet.store(eth::DST, mac),
        None => Some(()),
    }
}

/// Asks the kernel for the way to the endpoint, and has the flow remember the answer.
#[inline(always)]
fn ask<F: Wire, P: Packet, T: Tables<F>>(packet: &mut P, tables: &mut T, work: &mut Work<F>) {
    let Some(device) = tables.device(packet.device()) else {
        return;
    };
    let hop = match network_of_both::<F>(device, work.key.src(), work.change.addr) {
        None => Hop::ELSEWHERE,
        Some(network) => {
            let route = Route {
                device: network,
                src: work.key.src(),
                dst: work.change.addr,
                proto: work.key.proto(),
            };
            match F::next_hop(packet, &route) {
                NextHop::Neighbour(mac) => Hop::to(mac),
                NextHop::Elsewhere => Hop::ELSEWHERE,
                // The stack resolves it. An address that was known is more likely to be forgotten
                // than wrong.
                NextHop::Unresolved => work.hop,
            }
        }
    };
    if hop == work.hop {
        return;
    }
    work.hop = hop;
    // It is in one of the two, and the established tier is what lookups ask first.
    if !tables.set_hop(Tier::Established, &work.key, hop) {
        tables.set_hop(Tier::HalfOpen, &work.key, hop);
    }
}

/// The device at which both addresses are on link, so that they reach each other without the stack.
///
/// A route across the bridge to the endpoint is not enough: the answer must take the same way, and
/// it does only if the endpoint has the client in its own network.
#[inline(always)]
fn network_of_both<F: Family>(device: &Device, client: F::Addr, endpoint: F::Addr) -> Option<u32> {
    // To itself: nothing that a bridge would send back.
    if client == endpoint {
        return None;
    }
    F::networks(device)
        .iter()
        .find(|network| network.contains(client) && network.contains(endpoint))
        .map(Network::device)
}
