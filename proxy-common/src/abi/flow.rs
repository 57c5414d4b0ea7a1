//! Flows: the choice a first packet made, kept for all that follow.
//!
//! A flow is kept as separate halves, one per place where its packets are rewritten. Each half
//! holds enough to name the other: see `datapath::flow`. New flows live in the half-open tier and
//! move to the established one when the client has proved that it hears the answers, so that a
//! flood of opening packets can only push out other openings.

use bytemuck::{Pod, Zeroable};

use crate::net::{Address, Ip4, Ip6, Mac, Port, Proto};

/// Which of the two flow maps of a family is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// The client has proved that it hears the answers.
    Established,
    /// Anybody could have sent what was seen so far.
    HalfOpen,
    /// Where one CPU at a time says what it puts in place of a half that is over: keys of their
    /// own, in the map of the half-open flows, and only for the moment that this takes.
    Renewal,
}

/// Where a half applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
#[repr(transparent)]
pub struct Hook(pub u8);

impl Hook {
    /// Packets that come in: tc ingress.
    pub const INGRESS: Self = Self(0);
    /// Packets that go out: tc egress.
    pub const EGRESS: Self = Self(1);
    /// Added to the others in the keys of [`Tier::Renewal`].
    const RENEWAL: u8 = 2;

    /// The hook of keys of a tier.
    #[must_use]
    #[inline(always)]
    pub const fn of(self, tier: Tier) -> Self {
        match tier {
            Tier::Renewal => Self(self.0 | Self::RENEWAL),
            Tier::Established | Tier::HalfOpen => self,
        }
    }
}

/// What a half does to its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct Kind(pub u8);

impl Kind {
    /// Ingress, client to frontend: the destination becomes the endpoint.
    pub const DNAT: Self = Self(1);
    /// Egress, endpoint to client: the source becomes the frontend.
    pub const UNDNAT: Self = Self(2);
    /// Egress, a client on its way to itself: the source becomes the frontend's address.
    pub const SNAT: Self = Self(3);
    /// Ingress, the answer to that: the destination becomes the client.
    pub const UNSNAT: Self = Self(4);
    /// Direct traffic, left alone.
    pub const PASS: Self = Self(5);
}

/// What a flow has been through, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct State(pub u8);

impl State {
    /// Nothing yet.
    pub const NEW: Self = Self(0);
    /// The endpoint has answered.
    pub const REPLIED: Self = Self(1);
    /// The client has sent FIN.
    pub const FIN_CLIENT: Self = Self(2);
    /// The endpoint has sent FIN.
    pub const FIN_ENDPOINT: Self = Self(4);
    /// The client has sent RST, and nothing else since.
    pub const RST_CLIENT: Self = Self(8);
    /// The endpoint has sent RST, and nothing else since.
    pub const RST_ENDPOINT: Self = Self(16);

    /// Both sets of bits.
    #[must_use]
    #[inline(always)]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any of `bits` is set.
    #[inline(always)]
    pub const fn any(self, bits: Self) -> bool {
        self.0 & bits.0 != 0
    }

    /// Whether the connection has come to its end: FIN both ways, or a RST that stands.
    #[inline(always)]
    pub const fn is_closed(self) -> bool {
        self.is_finished() || self.0 & (Self::RST_CLIENT.0 | Self::RST_ENDPOINT.0) != 0
    }

    /// Whether both sides have said FIN.
    #[inline(always)]
    pub const fn is_finished(self) -> bool {
        let fins = Self::FIN_CLIENT.0 | Self::FIN_ENDPOINT.0;
        self.0 & fins == fins
    }

    /// Whether the end has begun.
    #[inline(always)]
    pub const fn is_closing(self) -> bool {
        self.0 & !Self::REPLIED.0 != 0
    }
}

/// Kind, state and flags in one word, so that state bits can be changed by one atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Marks(u32);

impl Marks {
    const HAIRPIN: u32 = 1 << 16;

    /// A half of this kind and state.
    #[inline(always)]
    pub const fn new(kind: Kind, state: State) -> Self {
        Self(kind.0 as u32 | (state.0 as u32) << 8)
    }

    /// The same with the hairpin flag: the flow has four halves, its endpoint is its client.
    #[must_use]
    #[inline(always)]
    pub const fn hairpin(self, on: bool) -> Self {
        if on {
            Self(self.0 | Self::HAIRPIN)
        } else {
            self
        }
    }

    /// What the half does.
    #[inline(always)]
    pub const fn kind(self) -> Kind {
        Kind(self.0 as u8)
    }

    /// What the flow has been through.
    #[inline(always)]
    pub const fn state(self) -> State {
        State((self.0 >> 8) as u8)
    }

    /// Whether the endpoint is the client itself.
    #[inline(always)]
    pub const fn is_hairpin(self) -> bool {
        self.0 & Self::HAIRPIN != 0
    }

    /// The word to OR into a half to set `bits`.
    #[inline(always)]
    pub const fn word(bits: State) -> u32 {
        (bits.0 as u32) << 8
    }
}

/// How a flow's packets get from a bridge port to the endpoint: one word, so that it can be changed
/// in place while other CPUs read it. Kept in the client's half, and meant for bridge ports only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Hop(u64);

impl Hop {
    /// Not known: by way of the stack, and the next packet asks again.
    pub const UNKNOWN: Self = Self(0);
    /// By way of the stack, for good.
    pub const ELSEWHERE: Self = Self::tagged(Mac::of_words([0; 3]), 2);

    /// Across the bridge, to this address.
    #[inline(always)]
    pub const fn to(mac: Mac) -> Self {
        Self::tagged(mac, 1)
    }

    /// The MAC address that packets are sent to across the bridge, if they are.
    #[inline(always)]
    pub fn mac(self) -> Option<Mac> {
        let words = [self.0 as u16, (self.0 >> 16) as u16, (self.0 >> 32) as u16];
        (self.0 >> 48 == 1).then_some(Mac::of_words(words))
    }

    #[inline(always)]
    const fn tagged(mac: Mac, tag: u64) -> Self {
        let [a, b, c] = mac.words();
        Self(a as u64 | (b as u64) << 16 | (c as u64) << 32 | tag << 48)
    }
}

/// The part of a flow half that is the same for both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct FlowState {
    /// The source port after rewriting.
    pub new_sport: Port,
    /// The destination port after rewriting.
    pub new_dport: Port,
    /// Service port that made the flow; 0 for a direct one.
    pub service: u32,
    /// Index of the endpoint; 0 for a direct flow.
    pub endpoint: u32,
    /// Generation of that slot when it was chosen; 0 for a direct flow.
    pub generation: u32,
    /// Time of the last packet, seconds, a few seconds coarse.
    pub last_seen: u32,
    /// TCP: the endpoint's initial sequence number, host order, 0 until seen.
    /// UDP: the time of the first packet, seconds.
    pub proof: u32,
    /// Kind, state and flags.
    pub marks: Marks,
    /// Zero.
    pub reserved: u32,
    /// The way to the endpoint; unknown in all halves but the client's.
    pub hop: Hop,
}

const _: () = assert!(size_of::<FlowState>() == 40);

/// What the data path needs of a flow key, whatever the family.
pub trait FlowKey: Pod + Eq + core::hash::Hash + core::fmt::Debug {
    /// The family's address.
    type Addr: Address;
    /// The key of packets from `src` to `dst` at `hook`.
    fn new(
        src: Self::Addr,
        dst: Self::Addr,
        sport: Port,
        dport: Port,
        proto: Proto,
        hook: Hook,
    ) -> Self;
    /// Writes the key of packets from `src` to `dst` in place: built aside and moved, an IPv6 key
    /// costs stack that the kernel programs do not have.
    fn fill(
        &mut self,
        addrs: (&Self::Addr, &Self::Addr),
        ports: (Port, Port),
        proto: Proto,
        hook: Hook,
    );
    /// Source address of the packets.
    fn src(&self) -> Self::Addr;
    /// Destination address of the packets.
    fn dst(&self) -> Self::Addr;
    /// Source port of the packets.
    fn sport(&self) -> Port;
    /// Destination port of the packets.
    fn dport(&self) -> Port;
    /// Transport protocol.
    fn proto(&self) -> Proto;
}

/// What the data path needs of a flow half, whatever the family.
pub trait Flow: Pod + Eq + core::fmt::Debug {
    /// The family's address.
    type Addr: Address;
    /// A half that turns addresses into these.
    fn new(new_src: Self::Addr, new_dst: Self::Addr, state: FlowState) -> Self;
    /// Writes such a half in place, see [`FlowKey::fill`].
    fn fill(&mut self, addrs: (&Self::Addr, &Self::Addr), state: FlowState);
    /// The source address after rewriting.
    fn new_src(&self) -> Self::Addr;
    /// The destination address after rewriting.
    fn new_dst(&self) -> Self::Addr;
    /// The rest.
    fn state(&self) -> &FlowState;
    /// The rest, to change.
    fn state_mut(&mut self) -> &mut FlowState;
}

macro_rules! flow {
    ($(#[$key_doc:meta])* $key:ident $key_size:literal,
     $(#[$doc:meta])* $name:ident $size:literal, $addr:ty) => {
        $(#[$key_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
        #[repr(C)]
        pub struct $key {
            /// Source address of the packets.
            pub src: $addr,
            /// Destination address of the packets.
            pub dst: $addr,
            /// Source port of the packets.
            pub sport: Port,
            /// Destination port of the packets.
            pub dport: Port,
            /// Transport protocol.
            pub proto: Proto,
            /// Where the packets are seen.
            pub hook: Hook,
            /// Room for a conntrack zone; zero.
            pub zone: u16,
        }

        const _: () = assert!(size_of::<$key>() == $key_size);

        impl FlowKey for $key {
            type Addr = $addr;

            #[inline(always)]
            fn new(
                src: $addr,
                dst: $addr,
                sport: Port,
                dport: Port,
                proto: Proto,
                hook: Hook,
            ) -> Self {
                Self { src, dst, sport, dport, proto, hook, zone: 0 }
            }

            #[inline(always)]
            fn fill(
                &mut self,
                (src, dst): (&$addr, &$addr),
                (sport, dport): (Port, Port),
                proto: Proto,
                hook: Hook,
            ) {
                self.src = *src;
                self.dst = *dst;
                self.sport = sport;
                self.dport = dport;
                self.proto = proto;
                self.hook = hook;
                self.zone = 0;
            }

            #[inline(always)]
            fn src(&self) -> $addr {
                self.src
            }

            #[inline(always)]
            fn dst(&self) -> $addr {
                self.dst
            }

            #[inline(always)]
            fn sport(&self) -> Port {
                self.sport
            }

            #[inline(always)]
            fn dport(&self) -> Port {
                self.dport
            }

            #[inline(always)]
            fn proto(&self) -> Proto {
                self.proto
            }
        }

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
        #[repr(C)]
        pub struct $name {
            /// The source address after rewriting; DNAT leaves it as it is.
            pub new_src: $addr,
            /// The destination address after rewriting.
            pub new_dst: $addr,
            /// The rest.
            pub state: FlowState,
        }

        const _: () = assert!(size_of::<$name>() == $size);

        impl Flow for $name {
            type Addr = $addr;

            #[inline(always)]
            fn new(new_src: $addr, new_dst: $addr, state: FlowState) -> Self {
                Self { new_src, new_dst, state }
            }

            #[inline(always)]
            fn fill(&mut self, (new_src, new_dst): (&$addr, &$addr), state: FlowState) {
                self.new_src = *new_src;
                self.new_dst = *new_dst;
                self.state = state;
            }

            #[inline(always)]
            fn new_src(&self) -> $addr {
                self.new_src
            }

            #[inline(always)]
            fn new_dst(&self) -> $addr {
                self.new_dst
            }

            #[inline(always)]
            fn state(&self) -> &FlowState {
                &self.state
            }

            #[inline(always)]
            fn state_mut(&mut self) -> &mut FlowState {
                &mut self.state
            }
        }
    };
}

flow!(
    /// Key of the IPv4 flow maps.
    FlowKey4 16,
    /// Value of the IPv4 flow maps.
    Flow4 48, Ip4
);
flow!(
    /// Key of the IPv6 flow maps.
    FlowKey6 40,
    /// Value of the IPv6 flow maps.
    Flow6 72, Ip6
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_keep_kind_state_and_flags_apart() {
        let marks = Marks::new(Kind::DNAT, State::REPLIED).hairpin(true);
        assert_eq!(Kind::DNAT, marks.kind());
        assert_eq!(State::REPLIED, marks.state());
        assert!(marks.is_hairpin());
        let more = Marks(marks.0 | Marks::word(State::FIN_CLIENT));
        assert_eq!(State::REPLIED.with(State::FIN_CLIENT), more.state());
        assert_eq!(Kind::DNAT, more.kind());
    }

    #[test]
    fn a_hop_is_unknown_elsewhere_or_a_mac_address() {
        let mac = Mac::from([2, 0, 0, 0, 1, 9]);
        assert_eq!(Some(mac), Hop::to(mac).mac());
        assert_eq!(Some(Mac::default()), Hop::to(Mac::default()).mac());
        assert_eq!(None, Hop::UNKNOWN.mac());
        assert_eq!(None, Hop::ELSEWHERE.mac());
        assert_ne!(Hop::UNKNOWN, Hop::ELSEWHERE);
    }

    #[test]
    fn one_fin_is_closing_and_two_are_closed() {
        assert!(State::FIN_CLIENT.is_closing());
        assert!(!State::FIN_CLIENT.is_closed());
        assert!(State::FIN_CLIENT.with(State::FIN_ENDPOINT).is_closed());
        assert!(State::RST_ENDPOINT.is_closed());
        assert!(!State::REPLIED.is_closing());
    }
}
