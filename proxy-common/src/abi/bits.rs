//! Two bitmaps over hashed addresses: is it worth looking this address up at all?
//!
//! One holds the addresses of frontends (asked with the destination at ingress), the other those
//! of endpoints (asked with the source at egress). A clear bit is certain, a set bit is a hint. It
//! spares packets of no Service nearly all of our work.

use crate::net::Address;

/// Words of 64 bits in each bitmap: 2^20 bits, 128 KiB.
pub const WORDS: u32 = 1 << 14;

/// Word and mask of an address.
#[inline(always)]
pub fn bit_of<A: Address>(addr: A) -> (u32, u64) {
    // Multiplicative hashing: the upper bits of the product depend on all bits of the address.
    let hash = addr.fold().wrapping_mul(0x9e37_79b1) >> 12;
    (hash >> 6, 1 << (hash & 63))
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};
    use std::collections::HashSet;

    use super::*;
    use crate::net::{Ip4, Ip6};

    #[test]
    fn every_bit_lies_inside_the_map() {
        for n in 0..100_000u32 {
            let (word, mask) = bit_of(Ip4::from(Ipv4Addr::from(n.wrapping_mul(0x0101_6b05))));
            assert!(word < WORDS);
            assert_eq!(1, mask.count_ones());
        }
    }

    #[test]
    fn neighbouring_addresses_rarely_share_a_bit() {
        let v4: HashSet<_> = (0..10_000u32)
            .map(|n| bit_of(Ip4::from(Ipv4Addr::from(0x0a60_0000 + n))))
            .collect();
        let v6: HashSet<_> = (0..10_000u128)
            .map(|n| bit_of(Ip6::from(Ipv6Addr::from(0xfd00_0010_0096 << 80 | n))))
            .collect();
        assert!(v4.len() > 9_800, "{}", v4.len());
        assert!(v6.len() > 9_800, "{}", v6.len());
    }
}
