//! The IPv6 header (RFC 8200).

use bytemuck::{Pod, Zeroable};

use super::{Ip6, Piece, Proto};

/// The fixed IPv6 header; multi-byte fields in network order.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Ipv6Header {
    /// Version, traffic class and flow label.
    pub version_class_label: u32,
    /// Length of what follows this header, in bytes.
    pub payload_len: u16,
    /// Protocol of the next header.
    pub next: Proto,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ip6,
    /// Destination address.
    pub dst: Ip6,
}

const _: () = assert!(size_of::<Ipv6Header>() == 40);

/// Length of the fixed header, in bytes.
pub const LEN: usize = 40;
/// Offset of the source address in the header, in bytes.
pub const SRC: usize = 8;
/// Offset of the destination address in the header, in bytes.
pub const DST: usize = 24;

/// A fragment header (RFC 8200, 4.5); multi-byte fields in network order.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct FragmentHeader {
    /// Protocol of what the datagram is made of.
    pub next: Proto,
    /// Zero.
    pub reserved: u8,
    /// Offset in bytes, whose low three bits are flags.
    pub offset: u16,
    /// Identification, shared by the fragments of one datagram.
    pub id: u32,
}

const _: () = assert!(size_of::<FragmentHeader>() == 8);

impl FragmentHeader {
    /// Which piece of a datagram follows.
    #[inline(always)]
    pub const fn piece(&self) -> Piece {
        let field = u16::from_be(self.offset);
        Piece::at(field & !7, field & 1 != 0)
    }
}

/// Whether an extension header follows, and the payload only after it (IANA, IPv6 Extension Header
/// Types), or nothing at all.
#[inline(always)]
pub const fn is_extension(next: Proto) -> bool {
    matches!(next.0, 0 | 43 | 44 | 50 | 51 | 59 | 60 | 135 | 139 | 140)
}

impl Ipv6Header {
    /// Whether the version field says IPv6.
    #[inline(always)]
    pub const fn is_v6(&self) -> bool {
        u32::from_be(self.version_class_label) >> 28 == 6
    }
}
