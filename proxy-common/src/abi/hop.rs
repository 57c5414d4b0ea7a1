//! How packets get from a bridge port to the endpoint.

use bytemuck::{Pod, Zeroable};

use crate::net::Mac;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hop_is_unknown_elsewhere_or_a_mac_address() {
        let mac = Mac::from([2, 0, 0, 0, 1, 9]);
        assert_eq!(Some(mac), Hop::to(mac).mac());
        assert_eq!(Some(Mac::default()), Hop::to(Mac::default()).mac());
        assert_eq!(None, Hop::UNKNOWN.mac());
        assert_eq!(None, Hop::ELSEWHERE.mac());
        assert_ne!(Hop::UNKNOWN, Hop::ELSEWHERE);
    }
}
