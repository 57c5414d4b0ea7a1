//! The TCP header (RFC 9293).

use bytemuck::{Pod, Zeroable};

use super::Port;

/// A TCP header without its options; multi-byte fields in network order.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct TcpHeader {
    /// Source port.
    pub sport: Port,
    /// Destination port.
    pub dport: Port,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Data offset (high nibble of the first byte) and reserved bits.
    pub offset: u8,
    /// Control bits.
    pub flags: Flags,
    /// Window.
    pub window: u16,
    /// Checksum.
    pub check: u16,
    /// Urgent pointer.
    pub urgent: u16,
}

const _: () = assert!(size_of::<TcpHeader>() == 20);

/// Offset of the checksum in the header, in bytes.
pub const CHECK: usize = 16;

/// The control bits of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Flags(pub u8);

impl Flags {
    /// No bit set.
    pub const NONE: Self = Self(0);
    /// The sender has nothing more to send.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// The acknowledgment number is meant.
    pub const ACK: Self = Self(0x10);

    /// Whether any of `bits` is set.
    #[inline(always)]
    pub const fn any(self, bits: Self) -> bool {
        self.0 & bits.0 != 0
    }

    /// These bits and those.
    #[must_use]
    pub const fn with(self, bits: Self) -> Self {
        Self(self.0 | bits.0)
    }

    /// Whether this segment opens a connection: SYN, and neither ACK nor RST nor FIN.
    #[inline(always)]
    pub const fn opens(self) -> bool {
        self.0 & (0x02 | 0x10 | 0x04 | 0x01) == 0x02
    }
}
