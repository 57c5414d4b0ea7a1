//! Small tables over hashes that spare packets of no Service nearly all of our work.
//!
//! Two bitmaps say whether it is worth looking an address up at all. One holds the addresses of
//! frontends, the other those of endpoints, and beside each of these its address, port and
//! protocol together: a pod that is an endpoint is also somebody's client, from other ports. A
//! clear bit is certain, a set bit is a hint.
//!
//! The traces say when a flow was last noted that is rare and must not be missed. They wear off by
//! themselves: who asks says how old a trace may be.

use crate::net::{Address, Port, Proto};

/// Words of 64 bits in each bitmap: 2^20 bits, 128 KiB.
pub const WORDS: u32 = 1 << 14;

/// Number of traces, of 32 bits each: 512 KiB.
pub const TRACES: u32 = 1 << 17;

/// Multiplicative hashing: the upper bits of the product depend on all bits of the factor.
const FACTOR: u32 = 0x9e37_79b1;

/// Word and mask of an address.
#[inline(always)]
pub fn bit_of<A: Address>(addr: A) -> (u32, u64) {
    bit(addr.fold().wrapping_mul(FACTOR))
}

/// Word and mask of an endpoint's address, port and protocol.
#[inline(always)]
pub fn socket_bit_of<A: Address>(addr: A, port: Port, proto: Proto) -> (u32, u64) {
    let word = u32::from(port.wire()) << 8 | u32::from(proto.0);
    bit(mix(mix(0, addr.fold()), word).wrapping_mul(FACTOR))
}

/// Index of the trace of packets with these addresses and ports, source first.
#[inline(always)]
pub fn trace_of<A: Address>(addrs: (A, A), ports: (Port, Port), proto: Proto) -> u32 {
    let word = u32::from(ports.0.wire()) << 16 | u32::from(ports.1.wire());
    let hash = mix(
        mix(mix(u32::from(proto.0), addrs.0.fold()), addrs.1.fold()),
        word,
    );
    hash.wrapping_mul(FACTOR) >> 15
}

#[inline(always)]
const fn bit(hash: u32) -> (u32, u64) {
    let hash = hash >> 12;
    (hash >> 6, 1 << (hash & 63))
}

#[inline(always)]
const fn mix(hash: u32, word: u32) -> u32 {
    (hash ^ word).wrapping_mul(FACTOR).rotate_left(15)
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
    fn endpoints_and_flows_spread() {
        let mut sockets = HashSet::new();
        let mut traces = HashSet::new();
        for n in 0..100u32 {
            let addr = Ip4::from(Ipv4Addr::from(0x0af4_0200 + n));
            for port in 8000..8050 {
                let (word, mask) = socket_bit_of(addr, Port::new(port), Proto::TCP);
                assert!(word < WORDS);
                sockets.insert((word, mask));
                let client = Ip4::from(Ipv4Addr::from(0x0af4_0100 + n));
                let trace = trace_of((client, addr), (Port::new(port), Port::new(80)), Proto::UDP);
                assert!(trace < TRACES);
                traces.insert(trace);
            }
        }
        // Of 5,000 in 2^20 and in 2^17, chance has some 12 and some 94 meet.
        assert!(sockets.len() > 4_950, "{}", sockets.len());
        assert!(traces.len() > 4_850, "{}", traces.len());
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
