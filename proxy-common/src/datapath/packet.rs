//! What the data path needs of a packet.

use bytemuck::Pod;

use super::extension::{self, Chain};
use crate::net::checksum::Difference;
use crate::net::{Ip4, Ip6, Mac, Port, Proto, sctp};

/// A way that is asked for: that of a packet which comes in by a device.
#[derive(Clone, Copy, Debug)]
pub struct Route<A> {
    /// Index of the device.
    pub device: u32,
    /// Source address.
    pub src: A,
    /// Destination address.
    pub dst: A,
    /// Transport protocol.
    pub proto: Proto,
}

/// The answer to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// The destination itself, by the very device that the packet came in by.
    Neighbour(Mac),
    /// The same, but the kernel does not know its MAC address at present.
    Unresolved,
    /// Another device, or a gateway, or nowhere.
    Elsewhere,
}

/// A packet in a socket buffer, or in plain memory on the host.
///
/// Offsets are in bytes from the first byte of the packet, the MAC header included where the
/// device has one. Checksum methods behave as the kernel's helpers of the same purpose do, so
/// that a packet whose checksum a device will fill in (`CHECKSUM_PARTIAL`) stays right.
pub trait Packet {
    /// `EtherType` of the payload as the stack sees it, host order.
    fn protocol(&self) -> u16;
    /// Whether a VLAN tag was taken off that names another network than the device's own.
    fn has_vlan(&self) -> bool;
    /// Whether the frame is addressed to somebody else and only overheard.
    fn is_for_other_host(&self) -> bool;
    /// Index of the device that the packet is at.
    fn device(&self) -> u32;
    /// Sets bits of the packet's mark; the others stay.
    fn mark(&mut self, bits: u32);
    /// Where the kernel would send a packet like this one next.
    fn next_hop4(&mut self, route: &Route<Ip4>) -> NextHop;
    /// The same for IPv6.
    fn next_hop6(&mut self, route: &Route<Ip6>) -> NextHop;
    /// Makes the first `len` bytes readable, or as many as there are.
    fn ready(&mut self, len: usize);
    /// The `T` at `offset`, if all of it is there.
    fn load<T: Pod>(&self, offset: usize) -> Option<T>;
    /// The same wherever it is, without [`Packet::ready`]: slower, but for any `offset`.
    fn read<T: Pod>(&self, offset: usize) -> Option<T>;
    /// Writes an address or a port; the flow hash of the packet is forgotten.
    fn store<T: Pod>(&mut self, offset: usize, value: T) -> Option<()>;
    /// Writes what no checksum of the network header balances, an IPv6 address: as [`Packet::store`]
    /// does, and what a device said of the sum of all bytes (`CHECKSUM_COMPLETE`) follows.
    ///
    /// From where it lies: a copy would take room on a stack that has none to spare.
    fn store_summed<T: Pod>(&mut self, offset: usize, value: &T) -> Option<()>;
    /// Corrects the checksum at `offset` for data that changed, not for a pseudo header.
    fn fix_checksum(&mut self, offset: usize, difference: Difference) -> Option<()>;
    /// Corrects the IPv4 header checksum at `offset` for a changed address.
    fn fix_header_checksum(&mut self, offset: usize, from: Ip4, to: Ip4) -> Option<()>;
    /// Corrects the transport checksum at `offset` for an IPv4 address that changed in the
    /// pseudo header. With `optional`, a zero checksum means "none" and stays (UDP).
    fn fix_checksum4(&mut self, offset: usize, from: Ip4, to: Ip4, optional: bool) -> Option<()>;
    /// The same for an IPv6 address, which has to be written by [`Packet::store_summed`]: the helper
    /// has the sum of all bytes follow the transport checksum, as if a checksum of the network
    /// header balanced the address itself.
    fn fix_checksum6(&mut self, offset: usize, from: &Ip6, to: &Ip6, optional: bool) -> Option<()>;
    /// Corrects the transport checksum at `offset` for a changed port.
    fn fix_checksum_port(
        &mut self,
        offset: usize,
        from: Port,
        to: Port,
        optional: bool,
    ) -> Option<()>;
    /// Passes over IPv6 extension headers, see [`extension::pass_over`].
    #[inline(always)]
    fn pass_over(&self, from: usize, next: Proto) -> Chain {
        extension::pass_over(|offset| self.load(offset), from, next)
    }
    /// What SCTP's checksum changes by, see [`sctp::checksum_change`].
    #[inline(always)]
    fn crc_change(&self, difference: u32, len: u32) -> u32 {
        sctp::checksum_change(difference, len)
    }
}
