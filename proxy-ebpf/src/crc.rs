//! Arithmetic of SCTP's checksum, as a global function: verified once, and not for every place that
//! rewrites a packet.

use proxy_common::net::sctp;

/// See [`sctp::checksum_change`].
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn crc_change(difference: u32, len: u32) -> u32 {
    sctp::checksum_change(difference, len)
}
