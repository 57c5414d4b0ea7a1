//! Fragments: what became of a datagram's first one, kept for the others, which have no ports.

use bytemuck::{Pod, Zeroable};

use super::flow::Hook;
use super::hop::Hop;
use super::marks::FlowFlags;
use crate::net::{Address, Ip4, Ip6, Proto};

/// What the data path needs of the key of a datagram, whatever the family.
pub trait FragmentKey: Pod + Eq + core::hash::Hash + core::fmt::Debug {
    /// The family's address.
    type Addr: Address;
    /// Writes the key of a datagram in place, see [`super::flow::FlowKey::fill`]. `id` is as it
    /// stands in the header, and so is `proto`: in IPv6, in the fragment header.
    fn fill(&mut self, addrs: (&Self::Addr, &Self::Addr), id: u32, proto: Proto, hook: Hook);
    /// Destination address of the packets.
    fn dst(&self) -> Self::Addr;
    /// Where the packets are seen.
    fn hook(&self) -> Hook;
}

/// What became of a datagram's first fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct FragmentState {
    /// What was decided, as the word of a [`crate::datapath::verdict::Step`].
    pub step: u32,
    /// When, in seconds.
    pub seen: u32,
    /// Its way from a bridge port to the endpoint, as far as it was known.
    pub hop: Hop,
}

/// What the data path needs of a datagram's first fragment, whatever the family.
pub trait Fragment: Pod + Eq + core::fmt::Debug {
    /// The family's address.
    type Addr: Address;
    /// Writes it in place.
    fn fill(&mut self, addr: &Self::Addr, flags: FlowFlags, state: FragmentState);
    /// The address that was replaced became this one: the destination at ingress, the source at
    /// egress.
    fn addr(&self) -> Self::Addr;
    /// What was decided of its flow.
    fn flags(&self) -> FlowFlags;
    /// The rest.
    fn state(&self) -> &FragmentState;
}

macro_rules! fragment {
    ($(#[$key_doc:meta])* $key:ident $key_size:literal,
     $(#[$doc:meta])* $name:ident $size:literal, $addr:ty, $pad:literal) => {
        $(#[$key_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
        #[repr(C)]
        pub struct $key {
            /// Source address of the packets.
            pub src: $addr,
            /// Destination address of the packets.
            pub dst: $addr,
            /// Identification, as it stands in the header.
            pub id: u32,
            /// Protocol of the datagram.
            pub proto: Proto,
            /// Where the packets are seen.
            pub hook: Hook,
            /// Zero.
            pub pad: u16,
        }

        const _: () = assert!(size_of::<$key>() == $key_size);

        impl FragmentKey for $key {
            type Addr = $addr;

            #[inline(always)]
            fn fill(
                &mut self,
                (src, dst): (&$addr, &$addr),
                id: u32,
                proto: Proto,
                hook: Hook,
            ) {
                self.src = *src;
                self.dst = *dst;
                self.id = id;
                self.proto = proto;
                self.hook = hook;
                self.pad = 0;
            }

            #[inline(always)]
            fn dst(&self) -> $addr {
                self.dst
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
            /// The address that was replaced became this one.
            pub addr: $addr,
            /// What was decided of its flow.
            pub flags: FlowFlags,
            /// Zero.
            pub pad: [u8; $pad],
            /// The rest.
            pub state: FragmentState,
        }

        const _: () = assert!(size_of::<$name>() == $size);

        impl Fragment for $name {
            type Addr = $addr;

            #[inline(always)]
            fn fill(&mut self, addr: &$addr, flags: FlowFlags, state: FragmentState) {
                self.addr = *addr;
                self.flags = flags;
                self.pad = [0; $pad];
                self.state = state;
            }

            #[inline(always)]
            fn addr(&self) -> $addr {
                self.addr
            }

            #[inline(always)]
            fn flags(&self) -> FlowFlags {
                self.flags
            }

            #[inline(always)]
            fn state(&self) -> &FragmentState {
                &self.state
            }
        }
    };
}

fragment!(
    /// Key of an IPv4 datagram.
    FragmentKey4 16,
    /// What became of an IPv4 datagram's first fragment.
    Fragment4 24, Ip4, 0
);
fragment!(
    /// Key of an IPv6 datagram.
    FragmentKey6 40,
    /// What became of an IPv6 datagram's first fragment.
    Fragment6 40, Ip6, 4
);
