//! The Ethernet header (IEEE 802.3).

/// Length of an Ethernet header without tags, in bytes.
pub const LEN: usize = 14;

/// `EtherType` of IPv4, host order.
pub const IPV4: u16 = 0x0800;
/// `EtherType` of IPv6, host order.
pub const IPV6: u16 = 0x86dd;
