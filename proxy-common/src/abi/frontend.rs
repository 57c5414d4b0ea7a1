//! Frontends: the addresses and ports at which Services are reached.

use bytemuck::{Pod, Zeroable};

use crate::net::{Ip4, Ip6, Port, Proto};

/// Kind of a frontend key: an exact address, as opposed to later wildcards.
const EXACT: u8 = 0;

macro_rules! frontend_key {
    ($(#[$doc:meta])* $name:ident, $addr:ty, $size:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
        #[repr(C)]
        pub struct $name {
            /// Address that clients send to.
            pub addr: $addr,
            /// Port that clients send to.
            pub port: Port,
            /// Transport protocol.
            pub proto: Proto,
            /// 0: `addr` is exact.
            pub kind: u8,
        }

        const _: () = assert!(size_of::<$name>() == $size);

        impl $name {
            /// The key of the frontend at exactly this address.
            #[inline(always)]
            pub const fn exact(addr: $addr, port: Port, proto: Proto) -> Self {
                Self { addr, port, proto, kind: EXACT }
            }
        }
    };
}

frontend_key!(
    /// Key of an IPv4 frontend.
    FrontendKey4, Ip4, 8
);
frontend_key!(
    /// Key of an IPv6 frontend.
    FrontendKey6, Ip6, 20
);

/// A window of the set array: where a frontend's endpoint ids stand.
///
/// Base and count share one aligned word, so that both change in a single store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct EndpointSet(u64);

impl EndpointSet {
    /// The set without endpoints.
    pub const EMPTY: Self = Self(0);

    /// The set of `count` slots from `base` on.
    #[inline(always)]
    pub const fn new(base: u32, count: u32) -> Self {
        Self((count as u64) << 32 | base as u64)
    }

    /// Index of the first slot.
    #[inline(always)]
    pub const fn base(self) -> u32 {
        self.0 as u32
    }

    /// Number of slots.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Properties of a frontend, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct FrontendFlags(pub u32);

impl FrontendFlags {
    /// No property.
    pub const NONE: Self = Self(0);
}

/// Value of the frontend maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Frontend {
    /// Endpoints for clients inside the cluster.
    pub inside: EndpointSet,
    /// Endpoints for clients outside; the same window unless a policy tells them apart.
    pub outside: EndpointSet,
    /// Number of the service port; never 0, never used again for another one.
    pub service: u32,
    /// Properties.
    pub flags: FrontendFlags,
    /// Session affinity timeout in seconds, 0 for none.
    pub affinity_timeout: u32,
    /// Room for what is to come; zero.
    pub reserved: [u32; 5],
}

const _: () = assert!(size_of::<Frontend>() == 48);
