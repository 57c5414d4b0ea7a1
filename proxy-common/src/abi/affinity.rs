//! Session affinity: which endpoint a client had last.

use bytemuck::{Pod, Zeroable};

use crate::net::{Ip4, Ip6};

macro_rules! key {
    ($(#[$doc:meta])* $name:ident $size:literal, $addr:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
        #[repr(C)]
        pub struct $name {
            /// Number of the service port: all frontends of one share what they remember.
            pub service: u32,
            /// The client's address, before it is masqueraded.
            pub client: $addr,
        }

        const _: () = assert!(size_of::<$name>() == $size);
    };
}

key!(
    /// Key of the map of IPv4 clients.
    AffinityKey4 8, Ip4
);
key!(
    /// Key of the map of IPv6 clients.
    AffinityKey6 20, Ip6
);

/// Value of the maps of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Affinity {
    /// Index of the endpoint.
    pub endpoint: u32,
    /// Generation of that slot when it was chosen.
    pub generation: u32,
    /// When the client last opened a flow, in seconds.
    pub last_used: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<Affinity>() == 16);
