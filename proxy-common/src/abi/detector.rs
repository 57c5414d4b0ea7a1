//! Who is inside: what tells packets of local pods from others.

use bytemuck::{Pod, Zeroable};

use crate::net::{Address as _, Ip4, Ip6};

/// Element 0 of the map of the detector; all zero where there is none, and then everybody is
/// outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Detector {
    /// 1: the device that a packet came in by decides, see [`crate::abi::Device::inside`].
    pub by_device: u32,
    /// 1: IPv4 sources in `addr4`/`mask4` are inside.
    pub has4: u32,
    /// 1: IPv6 sources in `addr6`/`mask6` are inside.
    pub has6: u32,
    /// The IPv4 range, its host part zero.
    pub addr4: Ip4,
    /// Its netmask.
    pub mask4: Ip4,
    /// The IPv6 range, its host part zero.
    pub addr6: Ip6,
    /// Its netmask.
    pub mask6: Ip6,
}

const _: () = assert!(size_of::<Detector>() == 52);

impl Detector {
    /// Whether an IPv4 source is in the range.
    #[inline(always)]
    pub fn contains4(&self, addr: Ip4) -> bool {
        self.has4 != 0 && addr.masked(self.mask4) == self.addr4
    }

    /// Whether an IPv6 source is in the range.
    #[inline(always)]
    pub fn contains6(&self, addr: Ip6) -> bool {
        self.has6 != 0 && addr.masked(self.mask6) == self.addr6
    }
}
