//! Frontends: the addresses and ports at which Services are reached.

use bytemuck::{Pod, Zeroable};

use super::endpoint::EndpointFlags;
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
            /// The key of the frontend at exactly this address; with port and protocol 0, of the
            /// one that says what becomes of packets to ports where there is none.
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

/// Where a packet to a Service comes from, as far as that decides on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A pod, as the detector of local traffic says.
    Inside,
    /// Anybody else.
    Outside,
    /// The node itself. Its packets are seen at its sockets, and lead to the endpoints for those
    /// from inside.
    Host,
}

/// What becomes of a packet where the set for its origin is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Empty {
    /// It is dropped: endpoints are elsewhere.
    Drop = 0,
    /// It is refused: there is no endpoint at all.
    Reject = 1,
    /// It is left alone.
    Pass = 2,
}

/// Properties of a frontend, as bits.
///
/// | bits | meaning |
/// | --- | --- |
/// | 0, 1, 2 | packets from inside, from outside, of the node are masqueraded |
/// | 3 | source ranges restrict it |
/// | 4, 5 | the set for inside, for outside is one of local endpoints only |
/// | 6 | its address is one of the node's own |
/// | 8–9, 10–11, 12–13 | [`Empty`] of inside, of outside, of the node |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct FrontendFlags(pub u32);

impl FrontendFlags {
    /// No property; what has no endpoint drops.
    pub const NONE: Self = Self(0);
    /// Only sources in the service port's ranges may use it.
    pub const FILTERED: Self = Self(1 << 3);
    /// Its address is one of the node's own, so that what comes in for it may be an answer to
    /// the node itself.
    pub const OWN_ADDRESS: Self = Self(1 << 6);

    /// Both sets of properties.
    #[must_use]
    #[inline(always)]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These properties if `on`.
    #[must_use]
    pub const fn only_if(self, on: bool) -> Self {
        if on { self } else { Self::NONE }
    }

    /// Whether all of `bits` are set.
    #[inline(always)]
    pub const fn has(self, bits: Self) -> bool {
        self.0 & bits.0 == bits.0
    }

    /// Packets of this origin are masqueraded.
    #[inline(always)]
    pub const fn masquerade(origin: Origin) -> Self {
        Self(match origin {
            Origin::Inside => 1,
            Origin::Outside => 2,
            Origin::Host => 4,
        })
    }

    /// The set for this origin holds local endpoints only, by policy.
    #[inline(always)]
    pub const fn local(origin: Origin) -> Self {
        Self(match origin {
            Origin::Inside | Origin::Host => 1 << 4,
            Origin::Outside => 1 << 5,
        })
    }

    /// The property of endpoints that packets of this origin may be given to.
    #[inline(always)]
    pub const fn listed(self, origin: Origin) -> EndpointFlags {
        if self.has(Self::local(origin)) {
            EndpointFlags::IN_LOCAL_SET
        } else {
            EndpointFlags::IN_CLUSTER_SET
        }
    }

    /// What becomes of packets of this origin where there is no endpoint for them.
    pub const fn if_empty(origin: Origin, empty: Empty) -> Self {
        Self((empty as u32) << Self::shift(origin))
    }

    /// What becomes of packets of this origin where there is no endpoint for them.
    #[inline(always)]
    pub const fn empty(self, origin: Origin) -> Empty {
        match (self.0 >> Self::shift(origin)) & 3 {
            1 => Empty::Reject,
            2 => Empty::Pass,
            _ => Empty::Drop,
        }
    }

    #[inline(always)]
    const fn shift(origin: Origin) -> u32 {
        match origin {
            Origin::Inside => 8,
            Origin::Outside => 10,
            Origin::Host => 12,
        }
    }
}

/// Value of the frontend maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Frontend {
    /// Endpoints for packets from inside, and for the node's own.
    pub inside: EndpointSet,
    /// Endpoints for packets from outside; the same window unless a policy tells them apart.
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

impl Frontend {
    /// Whether packets of this origin are treated as if there were no frontend.
    #[inline(always)]
    pub const fn passes(&self, origin: Origin) -> bool {
        self.set(origin).count() == 0 && matches!(self.flags.empty(origin), Empty::Pass)
    }

    /// The endpoints for packets of this origin.
    #[inline(always)]
    pub const fn set(&self, origin: Origin) -> EndpointSet {
        match origin {
            Origin::Inside | Origin::Host => self.inside,
            Origin::Outside => self.outside,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_do_not_share_properties() {
        let all = [Origin::Inside, Origin::Outside, Origin::Host];
        for origin in all {
            for empty in [Empty::Drop, Empty::Reject, Empty::Pass] {
                let flags = FrontendFlags::if_empty(origin, empty)
                    .with(FrontendFlags::masquerade(origin))
                    .with(FrontendFlags::FILTERED);
                assert_eq!(empty, flags.empty(origin));
                for other in all.into_iter().filter(|other| *other != origin) {
                    assert_eq!(Empty::Drop, flags.empty(other));
                    assert!(!flags.has(FrontendFlags::masquerade(other)));
                }
                assert!(!flags.has(FrontendFlags::OWN_ADDRESS));
            }
        }
    }
}
