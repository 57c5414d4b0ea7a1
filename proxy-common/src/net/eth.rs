//! The Ethernet header (IEEE 802.3).

use core::fmt;

use bytemuck::{Pod, Zeroable};

/// Length of an Ethernet header without tags, in bytes.
pub const LEN: usize = 14;

/// Offset of the destination address, in bytes.
pub const DST: usize = 0;

/// `EtherType` of IPv4, host order.
pub const IPV4: u16 = 0x0800;
/// `EtherType` of IPv6, host order.
pub const IPV6: u16 = 0x86dd;

/// A MAC address, its bytes as they stand in the header.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
#[repr(transparent)]
pub struct Mac([u16; 3]);

impl Mac {
    /// The address of these bytes, in the order of the header.
    pub const fn new(bytes: [u8; 6]) -> Self {
        Self([
            u16::from_ne_bytes([bytes[0], bytes[1]]),
            u16::from_ne_bytes([bytes[2], bytes[3]]),
            u16::from_ne_bytes([bytes[4], bytes[5]]),
        ])
    }

    /// The address as three words of two bytes each.
    #[inline(always)]
    pub const fn words(self) -> [u16; 3] {
        self.0
    }

    /// The address of these words.
    #[inline(always)]
    pub const fn of_words(words: [u16; 3]) -> Self {
        Self(words)
    }
}

impl From<[u8; 6]> for Mac {
    #[inline(always)]
    fn from(bytes: [u8; 6]) -> Self {
        bytemuck::cast(bytes)
    }
}

impl From<Mac> for [u8; 6] {
    fn from(mac: Mac) -> Self {
        bytemuck::cast(mac)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in <[u8; 6]>::from(*self).into_iter().enumerate() {
            let colon = if place == 0 { "" } else { ":" };
            write!(f, "{colon}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_bytes() {
        let bytes = [2, 0, 0, 0xab, 0, 9];
        let mac = Mac::from(bytes);
        assert_eq!(bytes, *bytemuck::bytes_of(&mac));
        assert_eq!(mac, Mac::of_words(mac.words()));
        assert_eq!("02:00:00:ab:00:09", std::format!("{mac}"));
    }
}
