//! The IPv4 header (RFC 791).

use bytemuck::{Pod, Zeroable};

use super::{Ip4, Piece, Proto};

/// An IPv4 header without its options; multi-byte fields in network order.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Ipv4Header {
    /// Version (high nibble) and header length in 32-bit words.
    pub version_ihl: u8,
    /// DSCP and ECN.
    pub tos: u8,
    /// Length of header and payload, in bytes.
    pub total_len: u16,
    /// Identification, shared by the fragments of one datagram.
    pub id: u16,
    /// Flags and fragment offset in units of 8 bytes.
    pub fragment: u16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub proto: Proto,
    /// Header checksum.
    pub check: u16,
    /// Source address.
    pub src: Ip4,
    /// Destination address.
    pub dst: Ip4,
}

const _: () = assert!(size_of::<Ipv4Header>() == 20);

/// The bit that says that more fragments follow.
const MORE: u16 = 1 << 13;

/// Offset of the identification in the header, in bytes.
pub const ID: usize = 4;
/// Offset of the checksum in the header, in bytes.
pub const CHECK: usize = 10;
/// Offset of the source address in the header, in bytes.
pub const SRC: usize = 12;
/// Offset of the destination address in the header, in bytes.
pub const DST: usize = 16;

impl Ipv4Header {
    /// Length of the header with its options in bytes; `None` if this is no IPv4 header.
    #[inline(always)]
    pub const fn header_len(&self) -> Option<usize> {
        let len = (self.version_ihl & 0x0f) as usize * 4;
        if self.version_ihl >> 4 == 4 && len >= 20 {
            Some(len)
        } else {
            None
        }
    }

    /// Which piece of a datagram this is.
    #[inline(always)]
    pub const fn piece(&self) -> Piece {
        let field = u16::from_be(self.fragment);
        Piece::at(field & 0x1fff, field & MORE != 0)
    }
}
