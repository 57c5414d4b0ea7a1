//! The SCTP header and its checksum (RFC 9260).

use bytemuck::{Pod, Zeroable};

use super::Port;
use super::tcp::Flags;

/// The common header, and what of the first chunk matters; multi-byte fields in network order but
/// for the checksum, whose first byte is its lowest.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct SctpHeader {
    /// Source port.
    pub sport: Port,
    /// Destination port.
    pub dport: Port,
    /// What the receiver has asked to be addressed by; zero with INIT.
    pub tag: u32,
    /// `CRC32c` of the packet with this field zero; zero as long as a device is to fill it in.
    pub check: u32,
    /// Type of the first chunk.
    pub chunk: Chunk,
    /// Flags of that chunk.
    pub chunk_flags: u8,
    /// Length of that chunk, in bytes.
    pub chunk_len: u16,
}

const _: () = assert!(size_of::<SctpHeader>() == 16);

/// Offset of the checksum in the header, in bytes.
pub const CHECK: usize = 8;

/// Type of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Chunk(pub u8);

impl Chunk {
    /// Opens an association.
    pub const INIT: Self = Self(1);
    /// The answer to that; the tag to address its sender by comes first in it.
    pub const INIT_ACK: Self = Self(2);
    /// Ends an association at once.
    pub const ABORT: Self = Self(6);
    /// Its sender has nothing more to send.
    pub const SHUTDOWN: Self = Self(7);
    /// Nor has the other side.
    pub const SHUTDOWN_ACK: Self = Self(8);
    /// Both know.
    pub const SHUTDOWN_COMPLETE: Self = Self(14);

    /// The control bits of the segment that says the same in a TCP connection.
    #[inline(always)]
    pub const fn as_tcp(self) -> Flags {
        match self {
            Self::INIT => Flags::SYN,
            Self::INIT_ACK => Flags::SYN.with(Flags::ACK),
            Self::ABORT => Flags::RST,
            Self::SHUTDOWN | Self::SHUTDOWN_ACK | Self::SHUTDOWN_COMPLETE => {
                Flags::FIN.with(Flags::ACK)
            }
            _ => Flags::ACK,
        }
    }
}

/// The polynomial of `CRC32c`, lowest coefficient in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// x^(8 * 2^k) modulo the polynomial.
#[expect(
    clippy::indexing_slicing,
    reason = "computed by the compiler, which would not get past a wrong index"
)]
const POWERS: [u32; 16] = {
    let mut powers = [1 << 23; 16];
    let mut k = 1;
    while k < 16 {
        powers[k] = product(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
};

/// Product modulo the polynomial, without branches, of which the kernel's verifier would follow
/// both sides.
#[inline(always)]
const fn product(a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    let mut bit = 0;
    while bit < 32 {
        sum ^= b & 0_u32.wrapping_sub((a >> (31 - bit)) & 1);
        b = (b >> 1) ^ (POLYNOMIAL & 0_u32.wrapping_sub(b & 1));
        bit += 1;
    }
    sum
}

/// What the checksum of a packet of `len` bytes, up to 65,535, changes by if its first four bytes
/// change by `difference`, both as little-endian numbers.
///
/// A CRC is linear: that of two messages' difference is the difference of theirs, and each byte
/// that follows multiplies it by x^8.
#[inline(always)]
pub fn checksum_change(difference: u32, len: u32) -> u32 {
    let mut change = difference;
    let mut k = 0;
    while let Some(power) = POWERS.get(k) {
        let is_set = 0_u32.wrapping_sub((len >> k) & 1);
        // Times one where the bit is clear.
        let factor = (power & is_set) | (1 << 31 & !is_set);
        change = product(change, factor);
        k += 1;
    }
    change
}

/// The checksum of a packet whose checksum is zero, bit by bit (RFC 9260, appendix A).
#[cfg(any(test, feature = "host"))]
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let is_odd = crc & 1 == 1;
            crc = crc >> 1 ^ if is_odd { POLYNOMIAL } else { 0 };
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn the_reference_knows_the_check_value_of_the_algorithm() {
        assert_eq!(0xe306_9283, crc32c(b"123456789"));
    }

    #[test]
    fn a_change_of_ports_changes_the_checksum_as_computed_anew() {
        for len in [12, 13, 16, 20, 64, 100, 255, 256, 1500, 40_000, 65_535] {
            let mut bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 256) as u8).collect();
            let before = (crc32c(&bytes), bytes[..4].to_vec());
            for ports in [
                [0, 0, 0, 1],
                [0x80, 0, 0, 0],
                [1, 2, 3, 4],
                [0x1f, 0x90, 0x75, 0x30],
            ] {
                bytes[..4].copy_from_slice(&ports);
                let words = [&before.1[..], &ports[..]]
                    .map(|word| u32::from_le_bytes(word.try_into().unwrap()));
                let change = checksum_change(words[0] ^ words[1], len);
                assert_eq!(crc32c(&bytes), before.0 ^ change, "{len} {ports:?}");
            }
        }
        assert_eq!(0, checksum_change(0, 1500));
    }

    #[test]
    fn only_an_init_opens() {
        assert!(Chunk::INIT.as_tcp().opens());
        for chunk in (0..=255).map(Chunk).filter(|chunk| *chunk != Chunk::INIT) {
            assert!(!chunk.as_tcp().opens(), "{chunk:?}");
        }
    }
}
