//! Flows: the choice a first packet made, kept for all that follow.
//!
//! A flow is kept as separate halves, one per place where its packets are rewritten. Each half
//! holds enough to name the other: see `datapath::flow`. New flows live in the half-open tier and
//! move to the established one when the client has proved that it hears the answers, so that a
//! flood of opening packets can only push out other openings.

use bytemuck::{Pod, Zeroable};

use super::hop::Hop;
use super::marks::Marks;
use crate::net::{Address, Ip4, Ip6, Port, Proto};

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
    /// Ingress, traffic of the node itself from the port of a frontend at one of its own addresses,
    /// left alone.
    pub const OWN: Self = Self(6);
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
    /// Both addresses where they lie, the source first.
    fn addrs(&self) -> (&Self::Addr, &Self::Addr);
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
    /// Where the packets are seen.
    fn hook(&self) -> Hook;
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
            fn addrs(&self) -> (&$addr, &$addr) {
                (&self.src, &self.dst)
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

            #[inline(always)]
            fn hook(&self) -> Hook {
                self.hook
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
