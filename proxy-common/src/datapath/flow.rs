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

use super::rewrite::Change;
use crate::abi::flow::{Flow, FlowKey, Marks};
use crate::abi::{Family, FlowState, Hook, Kind, State};
use crate::net::{Port, Proto};

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
}

impl<F: Family> Path<F> {
    /// Reads the flow off its client's half.
    #[inline(always)]
    pub fn of_forward(key: &F::FlowKey, flow: &F::Flow) -> Self {
        let state = flow.state();
        Self {
            client: key.src(),
            vip: key.dst(),
            endpoint: flow.new_dst(),
            client_port: key.sport(),
            sport: state.new_sport,
            vip_port: key.dport(),
            endpoint_port: state.new_dport,
            proto: u32::from(key.proto().0),
            service: state.service,
            slot: state.endpoint,
            generation: state.generation,
        }
    }

    /// Reads the flow off its endpoint's half.
    #[inline(always)]
    pub fn of_reverse(key: &F::FlowKey, flow: &F::Flow) -> Self {
        let state = flow.state();
        Self {
            client: key.dst(),
            vip: flow.new_src(),
            endpoint: key.src(),
            client_port: state.new_dport,
            sport: key.dport(),
            vip_port: state.new_sport,
            endpoint_port: key.sport(),
            proto: u32::from(key.proto().0),
            service: state.service,
            slot: state.endpoint,
            generation: state.generation,
        }
    }

    /// Whether the flow goes back to where it came from.
    #[inline(always)]
    pub fn is_hairpin(&self) -> bool {
        self.client == self.endpoint
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

    /// The key of one half.
    #[inline(always)]
    pub fn key(&self, kind: Kind) -> F::FlowKey {
        let proto = self.proto();
        match kind {
            Kind::DNAT => F::FlowKey::new(
                self.client,
                self.vip,
                self.client_port,
                self.vip_port,
                proto,
                Hook::INGRESS,
            ),
            Kind::SNAT => F::FlowKey::new(
                self.client,
                self.endpoint,
                self.sport,
                self.endpoint_port,
                proto,
                Hook::EGRESS,
            ),
            Kind::UNSNAT => F::FlowKey::new(
                self.endpoint,
                self.vip,
                self.endpoint_port,
                self.sport,
                proto,
                Hook::INGRESS,
            ),
            // UNDNAT; there is no other kind with a path.
            _ => F::FlowKey::new(
                self.endpoint,
                self.client,
                self.endpoint_port,
                self.sport,
                proto,
                Hook::EGRESS,
            ),
        }
    }

    /// One half.
    #[inline(always)]
    pub fn half(&self, kind: Kind, state: State, proof: u32, now: u32) -> F::Flow {
        let (new_src, new_dst, new_sport, new_dport) = match kind {
            Kind::DNAT => (self.client, self.endpoint, self.sport, self.endpoint_port),
            Kind::SNAT => (self.vip, self.endpoint, self.sport, self.endpoint_port),
            Kind::UNSNAT => (self.endpoint, self.client, self.endpoint_port, self.sport),
            _ => (self.vip, self.client, self.vip_port, self.client_port),
        };
        let state = FlowState {
            new_sport,
            new_dport,
            service: self.service,
            endpoint: self.slot,
            generation: self.generation,
            last_seen: now,
            proof,
            marks: Marks::new(kind, state).hairpin(self.is_hairpin()),
            reserved: 0,
        };
        F::Flow::new(new_src, new_dst, state)
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

/// Whether two halves do the same to their packets.
#[inline(always)]
pub fn is_same<L: Flow>(one: &L, other: &L) -> bool {
    let (a, b) = (one.state(), other.state());
    a.marks.kind() == b.marks.kind()
        && a.new_sport == b.new_sport
        && a.new_dport == b.new_dport
        && one.new_src() == other.new_src()
        && one.new_dst() == other.new_dst()
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;
    use crate::abi::V4;

    fn path(endpoint: [u8; 4]) -> Path<V4> {
        Path {
            client: Ipv4Addr::new(10, 244, 1, 2).into(),
            vip: Ipv4Addr::new(10, 96, 0, 10).into(),
            endpoint: Ipv4Addr::from(endpoint).into(),
            client_port: Port::new(40_000),
            sport: Port::new(61_001),
            vip_port: Port::new(80),
            endpoint_port: Port::new(8080),
            proto: 6,
            service: 7,
            slot: 9,
            generation: 3,
        }
    }

    /// The key of the packet that answers what `kind` makes of its packets.
    fn answer(path: &Path<V4>, kind: Kind) -> (Ipv4Addr, u16, Ipv4Addr, u16) {
        let half = path.half(kind, State::NEW, 0, 0);
        (
            half.new_dst.into(),
            half.state.new_dport.host(),
            half.new_src.into(),
            half.state.new_sport.host(),
        )
    }

    fn key(path: &Path<V4>, kind: Kind) -> (Ipv4Addr, u16, Ipv4Addr, u16) {
        let key = path.key(kind);
        (
            key.src.into(),
            key.sport.host(),
            key.dst.into(),
            key.dport.host(),
        )
    }

    #[test]
    fn the_answer_to_one_half_is_the_key_of_its_partner() {
        let path = path([10, 244, 1, 2]);
        for (kind, partner) in [
            (Kind::DNAT, Kind::UNDNAT),
            (Kind::UNDNAT, Kind::DNAT),
            (Kind::SNAT, Kind::UNSNAT),
            (Kind::UNSNAT, Kind::SNAT),
        ] {
            assert_eq!(answer(&path, kind), key(&path, partner), "{kind:?}");
            assert_ne!(path.key(kind).hook, path.key(partner).hook);
        }
    }

    #[test]
    fn a_flow_can_be_read_off_either_half() {
        let path = path([10, 244, 2, 2]);
        for kind in [Kind::DNAT, Kind::UNDNAT] {
            let (key, half) = (path.key(kind), path.half(kind, State::NEW, 0, 0));
            let back = if kind == Kind::DNAT {
                Path::<V4>::of_forward(&key, &half)
            } else {
                Path::<V4>::of_reverse(&key, &half)
            };
            for kind in [Kind::DNAT, Kind::UNDNAT, Kind::SNAT, Kind::UNSNAT] {
                assert_eq!(path.key(kind), back.key(kind));
                assert_eq!(
                    path.half(kind, State::NEW, 1, 2),
                    back.half(kind, State::NEW, 1, 2)
                );
            }
        }
    }

    #[test]
    fn only_a_flow_to_oneself_is_hairpin() {
        assert!(path([10, 244, 1, 2]).is_hairpin());
        assert!(!path([10, 244, 2, 2]).is_hairpin());
    }
}
