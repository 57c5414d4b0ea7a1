//! Addresses, ports and protocol numbers, kept as the packet has them.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytemuck::{Pod, Zeroable};

use super::checksum::Difference;

/// An IPv4 address in network byte order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
#[repr(transparent)]
pub struct Ip4(u32);

/// An IPv6 address in network byte order, as four words: BPF compares and hashes words several
/// times faster than bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
#[repr(transparent)]
pub struct Ip6([u32; 4]);

/// What the data path needs of an address, whatever its family.
pub trait Address: Pod + Eq + core::hash::Hash + fmt::Debug {
    /// The address folded into one word, for [`crate::abi::bits`].
    fn fold(self) -> u32;
    /// The address with only those bits that `mask` has.
    #[must_use]
    fn masked(self, mask: Self) -> Self;
    /// The one address that stands for this one where many are the same host's: 127.0.0.1 for all
    /// of the loopback network, 127.0.0.0/8.
    #[must_use]
    fn unique(self) -> Self;
    /// What another address in its place changes a one's complement sum by.
    fn difference(self, to: Self) -> Difference;
    /// Its bytes as words; of an IPv4 address, all but the first are zero.
    fn words(self) -> [u32; 4];
}

impl Address for Ip4 {
    #[inline(always)]
    fn fold(self) -> u32 {
        self.0
    }

    #[inline(always)]
    fn masked(self, mask: Self) -> Self {
        Self(self.0 & mask.0)
    }

    #[inline(always)]
    fn unique(self) -> Self {
        if u32::from_be(self.0) >> 24 == 127 {
            Self(0x7f00_0001_u32.to_be())
        } else {
            self
        }
    }

    #[inline(always)]
    fn difference(self, to: Self) -> Difference {
        Difference::NONE.replace(self.0, to.0)
    }

    #[inline(always)]
    fn words(self) -> [u32; 4] {
        [self.0, 0, 0, 0]
    }
}

impl Address for Ip6 {
    #[inline(always)]
    fn fold(self) -> u32 {
        let [a, b, c, d] = self.0;
        // Rotations keep prefixes that repeat in several words from cancelling out.
        a ^ b.rotate_left(7) ^ c.rotate_left(13) ^ d
    }

    #[inline(always)]
    fn masked(self, mask: Self) -> Self {
        let (own, mask) = (self.0, mask.0);
        Self([
            own[0] & mask[0],
            own[1] & mask[1],
            own[2] & mask[2],
            own[3] & mask[3],
        ])
    }

    #[inline(always)]
    fn unique(self) -> Self {
        self
    }

    #[inline(always)]
    fn difference(self, to: Self) -> Difference {
        let (from, to) = (self.0, to.0);
        Difference::NONE
            .replace(from[0], to[0])
            .replace(from[1], to[1])
            .replace(from[2], to[2])
            .replace(from[3], to[3])
    }

    #[inline(always)]
    fn words(self) -> [u32; 4] {
        self.0
    }
}

impl From<Ipv4Addr> for Ip4 {
    fn from(addr: Ipv4Addr) -> Self {
        Self(u32::from_ne_bytes(addr.octets()))
    }
}

impl From<Ip4> for Ipv4Addr {
    fn from(addr: Ip4) -> Self {
        Self::from(addr.0.to_ne_bytes())
    }
}

impl From<Ipv6Addr> for Ip6 {
    fn from(addr: Ipv6Addr) -> Self {
        Self(bytemuck::cast(addr.octets()))
    }
}

impl From<Ip6> for Ipv6Addr {
    fn from(addr: Ip6) -> Self {
        let octets: [u8; 16] = bytemuck::cast(addr.0);
        Self::from(octets)
    }
}

impl From<Ip4> for IpAddr {
    fn from(addr: Ip4) -> Self {
        Self::V4(addr.into())
    }
}

impl From<Ip6> for IpAddr {
    fn from(addr: Ip6) -> Self {
        Self::V6(addr.into())
    }
}

impl fmt::Debug for Ip4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv4Addr::from(*self).fmt(f)
    }
}

impl fmt::Debug for Ip6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(*self).fmt(f)
    }
}

/// A transport port as it stands in the header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
#[repr(transparent)]
pub struct Port(u16); // network order

impl Port {
    /// The port with this number.
    #[inline(always)]
    pub const fn new(host: u16) -> Self {
        Self(host.to_be())
    }

    /// The port's number.
    #[inline(always)]
    pub const fn host(self) -> u16 {
        u16::from_be(self.0)
    }

    /// The two bytes as the header has them, in a native word.
    #[inline(always)]
    pub const fn wire(self) -> u16 {
        self.0
    }

    /// The port of which [`Self::wire`] is this.
    #[inline(always)]
    pub const fn from_wire(wire: u16) -> Self {
        Self(wire)
    }

    /// What another port in its place changes a one's complement sum by.
    #[inline(always)]
    pub const fn difference(self, to: Self) -> Difference {
        Difference::NONE.replace(self.0 as u32, to.0 as u32)
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.host().fmt(f)
    }
}

/// An IP protocol number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct Proto(pub u8);

impl Proto {
    /// Every protocol, in the key of a frontend that is a whole address.
    pub const ANY: Self = Self(0);
    /// ICMP for IPv4.
    pub const ICMP: Self = Self(1);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// ICMP for IPv6.
    pub const ICMPV6: Self = Self(58);
    /// SCTP.
    pub const SCTP: Self = Self(132);

    /// Whether it has connections, which begin and end with packets of their own, as all that are
    /// translated have but UDP.
    #[inline(always)]
    pub const fn connects(self) -> bool {
        self.0 != Self::UDP.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_keep_their_bytes() {
        let v4 = Ipv4Addr::new(10, 96, 0, 1);
        assert_eq!([10, 96, 0, 1], *bytemuck::bytes_of(&Ip4::from(v4)));
        assert_eq!(v4, Ipv4Addr::from(Ip4::from(v4)));
        let v6: Ipv6Addr = "fd00:10:96::a".parse().unwrap();
        assert_eq!(v6.octets(), *bytemuck::bytes_of(&Ip6::from(v6)));
        assert_eq!(v6, Ipv6Addr::from(Ip6::from(v6)));
    }

    #[test]
    fn ports_are_kept_in_network_order() {
        assert_eq!([0x1f, 0x90], *bytemuck::bytes_of(&Port::new(8080)));
        assert_eq!(8080, Port::new(8080).host());
    }
}
