//! ICMP (RFC 792) and `ICMPv6` (RFC 4443): messages that report an error and quote the packet that
//! it is about.

/// Length of the header, in bytes; the quoted packet follows.
pub const LEN: usize = 8;
/// Offset of the checksum in the header, in bytes.
pub const CHECK: usize = 2;

/// Whether a message of this ICMP type reports an error: destination unreachable, source quench,
/// time exceeded, parameter problem.
///
/// A redirect quotes a packet, too, but names a gateway on its receiver's own link: to anybody else
/// it means nothing.
#[inline(always)]
pub const fn is_error(kind: u8) -> bool {
    matches!(kind, 3 | 4 | 11 | 12)
}

/// Whether a message of this `ICMPv6` type reports an error: destination unreachable, packet too
/// big, time exceeded, parameter problem.
#[inline(always)]
pub const fn is_error6(kind: u8) -> bool {
    matches!(kind, 1..=4)
}
