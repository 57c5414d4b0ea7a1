//! A flow as a whole, and the halves that stand for it in the maps.
//!
//! ```text
//!            key                              becomes                hook
//! DNAT       client:cport  → vip:vport        client:sport → ep:eport     ingress
//! UNDNAT     ep:eport      → client:sport     vip:vport → client:cport    egress
//! SNAT       client:sport  → ep:eport         vip:sport → ep:eport        egress
//! UNSNAT     ep:eport      → vip:sport        ep:eport → client:sport     ingress
//! ```
//!
//! `sport` is `cport` unless that was taken at the endpoint. The last two exist only where client
//! and endpoint have the same address. The reverse of what a half makes of its packets, at the
//! other hook, is the key of its partner.
//!
//! A flow that is to be masqueraded has the first two: between the hooks netfilter turns the client
//! into the node, and the answer's addressee back into the client.
//!
//! A client that speaks to an endpoint directly makes a flow of which `vip:vport` is `ep:eport`
//! itself. If its port is free at the endpoint there is only a note under the key of `UNDNAT`, of
//! kind `PASS`. If it is not, the flow has halves like any other. Where such an endpoint is the
//! node itself there may be a note under the key of `DNAT`, too, of kind `OWN`: see `own`.

use super::rewrite::Change;
use super::tables::Past;
use crate::abi::endpoint::Endpoint as _;
use crate::abi::flow::{Flow, FlowKey as _};
use crate::abi::{Family, FlowFlags, FlowState, Hook, Hop, Kind, Marks, Tier, trace_of};
use crate::net::{Port, Proto};
use bytemuck::Zeroable as _;

/// Everything that a flow's halves are made of.
#[derive(Clone, Copy, Debug)]
pub struct Path<F: Family> {
    /// The client's address.
    pub client: F::Addr,
    /// The frontend's address.
    pub vip: F::Addr,
    /// The endpoint's address.
    pub endpoint: F::Addr,
    /// The port the client sends from.
    pub client_port: Port,
    /// The port the endpoint sees the client send from.
    pub sport: Port,
    /// The frontend's port.
    pub vip_port: Port,
    /// The endpoint's port.
    pub endpoint_port: Port,
    /// Transport protocol, in a word of its own so that the struct has no padding.
    pub proto: u32,
    /// Number of the service port.
    pub service: u32,
    /// Index of the endpoint.
    pub slot: u32,
    /// Generation of that element when it was chosen.
    pub generation: u32,
    /// What was decided of it. Every half has these, so that what is rebuilt from one half is what
    /// was decided, whatever became of the Service.
    pub flags: FlowFlags,
    /// The way from a bridge port to the endpoint, as far as it is known.
    pub hop: Hop,
}

/// Where a flow begins to go.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// Number of the service port.
    pub service: u32,
    /// Index of the endpoint.
    pub slot: u32,
    /// What was decided of the flow.
    pub flags: FlowFlags,
}

/// Addresses and ports, the source's first.
type Ends<'a, F> = (
    (&'a <F as Family>::Addr, &'a <F as Family>::Addr),
    (Port, Port),
);

impl<F: Family> Path<F> {
    /// No flow.
    pub fn empty() -> Self {
        Self {
            client: F::Addr::zeroed(),
            vip: F::Addr::zeroed(),
            endpoint: F::Addr::zeroed(),
            client_port: Port::zeroed(),
            sport: Port::zeroed(),
            vip_port: Port::zeroed(),
            endpoint_port: Port::zeroed(),
            proto: 0,
            service: 0,
            slot: 0,
            generation: 0,
            flags: FlowFlags::NONE,
            hop: Hop::UNKNOWN,
        }
    }

    /// Reads the flow off its client's half.
    #[inline(always)]
    pub fn read_forward(&mut self, key: &F::FlowKey, flow: &F::Flow) {
        let state = flow.state();
        self.client = key.src();
        self.vip = key.dst();
        self.endpoint = flow.new_dst();
        self.client_port = key.sport();
        self.sport = state.new_sport;
        self.vip_port = key.dport();
        self.endpoint_port = state.new_dport;
        self.proto = u32::from(key.proto().0);
        self.service = state.service;
        self.slot = state.endpoint;
        self.generation = state.generation;
        self.flags = state.marks.flags();
        self.hop = state.hop;
    }

    /// Reads the flow off its endpoint's half, which does not know the way there.
    #[inline(always)]
    pub fn read_reverse(&mut self, key: &F::FlowKey, flow: &F::Flow) {
        let state = flow.state();
        self.client = key.dst();
        self.vip = flow.new_src();
        self.endpoint = key.src();
        self.client_port = state.new_dport;
        self.sport = key.dport();
        self.vip_port = state.new_sport;
        self.endpoint_port = key.sport();
        self.proto = u32::from(key.proto().0);
        self.service = state.service;
        self.slot = state.endpoint;
        self.generation = state.generation;
        self.flags = state.marks.flags();
        self.hop = self.first_hop();
    }

    /// Begins the flow of packets with `key` to an endpoint.
    #[inline(always)]
    pub fn begin(&mut self, key: &F::FlowKey, chosen: Chosen, endpoint: &F::Endpoint) {
        self.client = key.src();
        self.vip = key.dst();
        self.endpoint = endpoint.addr();
        self.client_port = key.sport();
        self.sport = key.sport();
        self.vip_port = key.dport();
        self.endpoint_port = endpoint.port();
        self.proto = u32::from(key.proto().0);
        self.service = chosen.service;
        self.slot = chosen.slot;
        self.generation = endpoint.generation();
        self.flags = chosen.flags;
        self.hop = self.first_hop();
    }

    /// The way as far as it is known without asking. A masqueraded packet needs the stack, where
    /// its source becomes the node's: across the bridge, the endpoint would answer to the client.
    #[inline(always)]
    const fn first_hop(&self) -> Hop {
        if self.flags.has(FlowFlags::MASQUERADE) {
            Hop::ELSEWHERE
        } else {
            Hop::UNKNOWN
        }
    }

    /// The direct flow of packets with `key`, as they come in.
    #[inline(always)]
    pub fn begin_direct(&mut self, key: &F::FlowKey) {
        self.direct((key.src(), key.sport()), (key.dst(), key.dport()));
        self.proto = u32::from(key.proto().0);
    }

    /// The direct flow that packets with `key`, as they go out, answer.
    #[inline(always)]
    pub fn answer_direct(&mut self, key: &F::FlowKey) {
        self.direct((key.dst(), key.dport()), (key.src(), key.sport()));
        self.proto = u32::from(key.proto().0);
    }

    #[inline(always)]
    const fn direct(&mut self, client: (F::Addr, Port), endpoint: (F::Addr, Port)) {
        self.client = client.0;
        self.client_port = client.1;
        self.sport = client.1;
        self.vip = endpoint.0;
        self.vip_port = endpoint.1;
        self.endpoint = endpoint.0;
        self.endpoint_port = endpoint.1;
        self.service = 0;
        self.slot = 0;
        self.generation = 0;
        self.flags = FlowFlags::NONE;
        self.hop = Hop::UNKNOWN;
    }

    /// Whether the client speaks to the endpoint without a Service.
    #[inline(always)]
    pub const fn is_direct(&self) -> bool {
        self.service == 0
    }

    /// Index of the trace of the client's packets.
    #[inline(always)]
    pub fn trace(&self) -> u32 {
        trace_of(
            (self.client, self.vip),
            (self.client_port, self.vip_port),
            self.proto(),
        )
    }

    /// Whether the flow goes back to where it came from.
    #[inline(always)]
    pub const fn is_hairpin(&self) -> bool {
        self.flags.has(FlowFlags::HAIRPIN)
    }

    /// Transport protocol.
    #[inline(always)]
    pub const fn proto(&self) -> Proto {
        Proto(self.proto as u8)
    }

    /// What becomes of the client's packets.
    #[inline(always)]
    pub const fn towards_endpoint(&self) -> Change<F::Addr> {
        Change {
            addr: self.endpoint,
            sport: self.sport,
            dport: self.endpoint_port,
        }
    }

    /// What becomes of the endpoint's packets.
    #[inline(always)]
    pub const fn towards_client(&self) -> Change<F::Addr> {
        Change {
            addr: self.vip,
            sport: self.vip_port,
            dport: self.client_port,
        }
    }

    /// What becomes of the packets of one half.
    #[inline(always)]
    pub const fn outcome(&self, kind: Kind) -> Change<F::Addr> {
        let ((src, dst), (sport, dport)) = self.result(kind);
        let addr = match kind {
            Kind::DNAT | Kind::UNSNAT => *dst,
            _ => *src,
        };
        Change { addr, sport, dport }
    }

    /// Writes the key of one half in a tier.
    #[inline(always)]
    pub fn fill_key(&self, tier: Tier, kind: Kind, key: &mut F::FlowKey) {
        let (addrs, ports, hook) = match kind {
            Kind::DNAT | Kind::OWN => (
                (&self.client, &self.vip),
                (self.client_port, self.vip_port),
                Hook::INGRESS,
            ),
            Kind::SNAT => (
                (&self.client, &self.endpoint),
                (self.sport, self.endpoint_port),
                Hook::EGRESS,
            ),
            Kind::UNSNAT => (
                (&self.endpoint, &self.vip),
                (self.endpoint_port, self.sport),
                Hook::INGRESS,
            ),
            // UNDNAT, and PASS in its place.
            _ => (
                (&self.endpoint, &self.client),
                (self.endpoint_port, self.sport),
                Hook::EGRESS,
            ),
        };
        key.fill(addrs, ports, self.proto(), hook.of(tier));
    }

    /// The key of one half in a tier.
    pub fn key(&self, tier: Tier, kind: Kind) -> F::FlowKey {
        let mut key = F::FlowKey::zeroed();
        self.fill_key(tier, kind, &mut key);
        key
    }

    /// What one half turns its packets into: addresses and ports, source first.
    #[inline(always)]
    const fn result(&self, kind: Kind) -> Ends<'_, F> {
        match kind {
            // To OWN, both are the same.
            Kind::DNAT | Kind::OWN => (
                (&self.client, &self.endpoint),
                (self.sport, self.endpoint_port),
            ),
            Kind::SNAT => (
                (&self.vip, &self.endpoint),
                (self.sport, self.endpoint_port),
            ),
            Kind::UNSNAT => (
                (&self.endpoint, &self.client),
                (self.endpoint_port, self.sport),
            ),
            // UNDNAT, and PASS, which changes nothing.
            _ => ((&self.vip, &self.client), (self.vip_port, self.client_port)),
        }
    }

    /// Whether `held`, found at the key of one half, is that half.
    #[inline(always)]
    pub fn is_half(&self, kind: Kind, held: &F::Flow) -> bool {
        let ((src, dst), (sport, dport)) = self.result(kind);
        let state = held.state();
        state.marks.kind() == kind
            && state.new_sport == sport
            && state.new_dport == dport
            && held.new_src() == *src
            && held.new_dst() == *dst
    }

    /// Writes one half.
    #[inline(always)]
    pub fn fill_half(&self, kind: Kind, past: Past, half: &mut F::Flow) {
        let (addrs, (sport, dport)) = self.result(kind);
        let state = FlowState {
            new_sport: sport,
            new_dport: dport,
            service: self.service,
            endpoint: self.slot,
            generation: self.generation,
            last_seen: past.now,
            proof: past.proof,
            marks: Marks::new(kind, past.state).with(self.flags),
            reserved: 0,
            hop: if kind == Kind::DNAT {
                self.hop
            } else {
                Hop::UNKNOWN
            },
        };
        half.fill(addrs, state);
    }

    /// One half.
    pub fn half(&self, kind: Kind, past: Past) -> F::Flow {
        let mut half = F::Flow::zeroed();
        self.fill_half(kind, past, &mut half);
        half
    }
}

/// What a client's half, or the answer to a hairpin, makes of its packets.
#[inline(always)]
pub fn destination_of<L: Flow>(flow: &L) -> Change<L::Addr> {
    Change {
        addr: flow.new_dst(),
        sport: flow.state().new_sport,
        dport: flow.state().new_dport,
    }
}

/// What an endpoint's half, or the way out of a hairpin, makes of its packets.
#[inline(always)]
pub fn source_of<L: Flow>(flow: &L) -> Change<L::Addr> {
    Change {
        addr: flow.new_src(),
        sport: flow.state().new_sport,
        dport: flow.state().new_dport,
    }
}

#[cfg(test)]
mod tests;
