//! Source ranges: who may use a load balancer's address.

use bytemuck::{Pod, Zeroable};

use crate::net::{Ip4, Ip6};

macro_rules! source {
    ($(#[$doc:meta])* $name:ident $size:literal, $addr:ty, $bits:literal) => {
        $(#[$doc])*
        ///
        /// The trie matches `service` and then the address, from the first byte on; its prefix
        /// length is 32 bits more than the range's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
        #[repr(C)]
        pub struct $name {
            /// Number of the service port.
            pub service: u32,
            /// An address of the range.
            pub addr: $addr,
        }

        const _: () = assert!(size_of::<$name>() == $size);

        impl $name {
            /// Prefix length that matches one address of one service port.
            pub const WHOLE: u32 = $bits;
        }
    };
}

source!(
    /// Data of the keys of the trie of IPv4 ranges.
    Source4 8, Ip4, 64
);
source!(
    /// Data of the keys of the trie of IPv6 ranges.
    Source6 20, Ip6, 160
);

/// Bits that the service number takes of a prefix.
pub const SERVICE_BITS: u32 = 32;
