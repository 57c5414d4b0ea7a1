//! A packet in plain memory.

use core::net::IpAddr;
use std::collections::HashMap;
use std::vec::Vec;

use bytemuck::Pod;

use super::read;
use crate::datapath::packet::{NextHop, Packet, Route};
use crate::net::checksum::Difference;
use crate::net::{Address as _, Ip4, Ip6, Port, eth};

/// An Ethernet frame, or a bare IP packet, in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPacket {
    bytes: Vec<u8>,
    protocol: u16,
    vlan: u16,
    is_for_other_host: bool,
    device: u32,
    mark: u32,
    fib: Fib,
}

/// What the kernel's routing and neighbour tables would say, by the device that a packet comes in
/// by and its destination; elsewhere, where nothing is entered.
pub type Fib = HashMap<(u32, IpAddr), NextHop>;

impl MemoryPacket {
    /// A frame with its Ethernet header.
    pub fn frame(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let protocol = read::<u16>(&bytes, 12).map_or(0, u16::from_be);
        Self {
            bytes,
            protocol,
            vlan: 0,
            is_for_other_host: false,
            device: 0,
            mark: 0,
            fib: Fib::new(),
        }
    }

    /// An IP packet as a device without MAC header has it.
    pub fn bare(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let protocol = match bytes.first().map(|first| first >> 4) {
            Some(4) => eth::IPV4,
            Some(6) => eth::IPV6,
            _ => 0,
        };
        Self {
            bytes,
            protocol,
            vlan: 0,
            is_for_other_host: false,
            device: 0,
            mark: 0,
            fib: Fib::new(),
        }
    }

    /// The same frame, as a device sees it that has this MAC address.
    #[must_use]
    pub fn seen_by(mut self, mac: [u8; 6]) -> Self {
        let is_group = self.bytes.first().is_some_and(|first| first & 1 != 0);
        self.is_for_other_host = !is_group && self.bytes.get(..6) != Some(&mac);
        self
    }

    /// The same frame, come in by the device of this index, in a network namespace with these
    /// routes.
    #[must_use]
    pub fn at(mut self, device: u32, fib: &Fib) -> Self {
        self.device = device;
        self.fib.clone_from(fib);
        self
    }

    /// The same frame, with this mark.
    #[must_use]
    pub const fn marked(mut self, mark: u32) -> Self {
        self.mark = mark;
        self
    }

    /// The mark.
    pub const fn mark_of(&self) -> u32 {
        self.mark
    }

    /// The same frame, off which a tag of this VLAN was taken; 0 is a mere priority.
    #[must_use]
    pub const fn tagged(mut self, vlan: u16) -> Self {
        self.vlan = vlan;
        self
    }

    fn next_hop(&self, device: u32, dst: IpAddr) -> NextHop {
        let known = self.fib.get(&(device, dst)).copied();
        known.unwrap_or(NextHop::Elsewhere)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn fix(&mut self, offset: usize, optional: bool, diff: Difference) -> Option<()> {
        let check: u16 = self.load(offset)?;
        if optional && check == 0 {
            return Some(());
        }
        let mut fixed = diff.apply(check);
        if optional && fixed == 0 {
            fixed = 0xffff;
        }
        self.store(offset, fixed)
    }
}

impl Packet for MemoryPacket {
    fn protocol(&self) -> u16 {
        self.protocol
    }

    fn has_vlan(&self) -> bool {
        self.vlan != 0
    }

    fn is_for_other_host(&self) -> bool {
        self.is_for_other_host
    }

    fn device(&self) -> u32 {
        self.device
    }

    fn mark(&mut self, bits: u32) {
        self.mark |= bits;
    }

    fn next_hop4(&mut self, route: &Route<Ip4>) -> NextHop {
        self.next_hop(route.device, route.dst.into())
    }

    fn next_hop6(&mut self, route: &Route<Ip6>) -> NextHop {
        self.next_hop(route.device, route.dst.into())
    }

    fn ready(&mut self, _len: usize) {}

    fn load<T: Pod>(&self, offset: usize) -> Option<T> {
        read(&self.bytes, offset)
    }

    fn read<T: Pod>(&self, offset: usize) -> Option<T> {
        self.load(offset)
    }

    fn store<T: Pod>(&mut self, offset: usize, value: T) -> Option<()> {
        let end = offset.checked_add(size_of::<T>())?;
        let target = self.bytes.get_mut(offset..end)?;
        target.copy_from_slice(bytemuck::bytes_of(&value));
        Some(())
    }

    fn store_summed<T: Pod>(&mut self, offset: usize, value: &T) -> Option<()> {
        self.store(offset, *value)
    }

    fn fix_checksum(&mut self, offset: usize, difference: Difference) -> Option<()> {
        self.fix(offset, false, difference)
    }

    fn fix_header_checksum(&mut self, offset: usize, from: Ip4, to: Ip4) -> Option<()> {
        self.fix(offset, false, from.difference(to))
    }

    fn fix_checksum4(&mut self, offset: usize, from: Ip4, to: Ip4, optional: bool) -> Option<()> {
        self.fix(offset, optional, from.difference(to))
    }

    fn fix_checksum6(&mut self, offset: usize, from: &Ip6, to: &Ip6, optional: bool) -> Option<()> {
        self.fix(offset, optional, from.difference(*to))
    }

    fn fix_checksum_port(
        &mut self,
        offset: usize,
        from: Port,
        to: Port,
        optional: bool,
    ) -> Option<()> {
        self.fix(offset, optional, from.difference(to))
    }
}
