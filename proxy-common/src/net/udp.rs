//! The UDP header (RFC 768).

use bytemuck::{Pod, Zeroable};

use super::Port;

/// A UDP header; fields in network order.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct UdpHeader {
    /// Source port.
    pub sport: Port,
    /// Destination port.
    pub dport: Port,
    /// Length of header and payload, in bytes.
    pub len: u16,
    /// Checksum; zero over IPv4 means none.
    pub check: u16,
}

const _: () = assert!(size_of::<UdpHeader>() == 8);

/// Offset of the checksum in the header, in bytes.
pub const CHECK: usize = 6;
