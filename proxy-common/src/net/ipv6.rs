//! The IPv6 header (RFC 8200).

use bytemuck::{Pod, Zeroable};

use super::{Ip6, Proto};

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

/// What all extension headers begin with, and the offset of a fragment, in network order.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Extension {
    /// Protocol of the next header.
    pub next: Proto,
    /// Length of this one, in a unit of its own.
    pub len: u8,
    /// In the header of a fragment its offset, in units of 8 bytes, and three bits of flags.
    pub fragment: u16,
}

impl Extension {
    /// Length in bytes of such a header of type `own`; `None` if what follows cannot be read, or is
    /// a later piece of a datagram (RFC 8200, section 4; RFC 4302, section 2.2).
    #[inline(always)]
    pub const fn len(&self, own: Proto) -> Option<usize> {
        match own.0 {
            0 | 43 | 60 => Some((self.len as usize + 1) * 8),
            44 if u16::from_be(self.fragment) & 0xfff8 == 0 => Some(8),
            51 => Some((self.len as usize + 2) * 4),
            _ => None,
        }
    }
}
