//! Devices that programs are attached to: what a bridge port's packets are held against.

use bytemuck::{Pod, Zeroable};

use crate::net::{Address, Ip4, Ip6, Mac};

/// How many networks of each family are known of one device.
pub const NETWORKS: usize = 4;

/// Value of the map of devices, whose key is the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Device {
    /// Where the device's packets come from.
    pub class: DeviceClass,
    /// MAC address of the bridge, if the device is a port of one.
    pub bridge_mac: Mac,
    /// 1: packets that come in by it are from inside, where the device decides.
    pub inside: u16,
    /// IPv4 networks that are on link on the bridge; unused places are zero.
    pub networks4: [Network4; NETWORKS],
    /// IPv6 networks that are on link on the bridge; unused places are zero.
    pub networks6: [Network6; NETWORKS],
}

const _: () = assert!(size_of::<Device>() == 204);

/// Where a device's packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct DeviceClass(pub u32);

impl DeviceClass {
    /// A pod, routed.
    pub const POD: Self = Self(1);
    /// A pod on a bridge.
    pub const POD_PORT: Self = Self(2);
    /// Other machines.
    pub const UPLINK: Self = Self(3);
    /// Other machines, by way of a bridge.
    pub const UPLINK_PORT: Self = Self(4);
}

/// What the data path needs of a network, whatever its family.
pub trait Network: Pod {
    /// The family's address.
    type Addr: Address;
    /// Index of the device that the network is on link at: the bridge, or a VLAN device on it.
    fn device(&self) -> u32;
    /// Whether an address lies in it; none does in an unused place.
    fn contains(&self, addr: Self::Addr) -> bool;
}

macro_rules! network {
    ($(#[$doc:meta])* $name:ident $size:literal, $addr:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
        #[repr(C)]
        pub struct $name {
            /// Index of the device that it is on link at; 0 where there is no network.
            pub device: u32,
            /// The address, its host part zero.
            pub addr: $addr,
            /// The netmask.
            pub mask: $addr,
        }

        const _: () = assert!(size_of::<$name>() == $size);

        impl Network for $name {
            type Addr = $addr;

            #[inline(always)]
            fn device(&self) -> u32 {
                self.device
            }

            #[inline(always)]
            fn contains(&self, addr: $addr) -> bool {
                self.device != 0 && addr.masked(self.mask) == self.addr
            }
        }
    };
}

network!(
    /// An IPv4 network that is on link.
    Network4 12, Ip4
);
network!(
    /// An IPv6 network that is on link.
    Network6 36, Ip6
);

impl Network4 {
    /// The network that `addr` is in, on link at `device`.
    pub fn new(device: u32, addr: core::net::Ipv4Addr, prefix_len: u8) -> Self {
        let bits = u32::MAX
            .checked_shl(32 - u32::from(prefix_len.min(32)))
            .unwrap_or(0);
        let mask = Ip4::from(core::net::Ipv4Addr::from(bits));
        Self {
            device,
            addr: Ip4::from(addr).masked(mask),
            mask,
        }
    }
}

impl Network6 {
    /// The network that `addr` is in, on link at `device`.
    pub fn new(device: u32, addr: core::net::Ipv6Addr, prefix_len: u8) -> Self {
        let bits = u128::MAX
            .checked_shl(128 - u32::from(prefix_len.min(128)))
            .unwrap_or(0);
        let mask = Ip6::from(core::net::Ipv6Addr::from(bits));
        Self {
            device,
            addr: Ip6::from(addr).masked(mask),
            mask,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn a_network_contains_what_shares_its_prefix() {
        let gateway = Ipv4Addr::new(10, 244, 1, 1);
        for (prefix_len, near, far) in [
            (24, [10, 244, 1, 254], [10, 244, 2, 1]),
            (23, [10, 244, 0, 9], [10, 244, 2, 1]),
            (32, [10, 244, 1, 1], [10, 244, 1, 2]),
        ] {
            let network = Network4::new(7, gateway, prefix_len);
            assert!(network.contains(Ipv4Addr::from(near).into()));
            assert!(!network.contains(Ipv4Addr::from(far).into()));
        }
        let everything = Network4::new(7, gateway, 0);
        assert!(everything.contains(Ipv4Addr::new(1, 2, 3, 4).into()));
    }

    #[test]
    fn the_same_goes_for_the_other_family() {
        let gateway: Ipv6Addr = "fd00:10:244:1::1".parse().unwrap();
        let near: Ipv6Addr = "fd00:10:244:1:ffff::9".parse().unwrap();
        let far: Ipv6Addr = "fd00:10:244:2::1".parse().unwrap();
        for (prefix_len, has_far) in [(64, false), (48, true), (0, true)] {
            let network = Network6::new(7, gateway, prefix_len);
            assert!(network.contains(near.into()));
            assert_eq!(has_far, network.contains(far.into()));
        }
        assert!(!Network6::new(7, gateway, 128).contains(near.into()));
    }

    #[test]
    fn nothing_is_in_an_unused_place() {
        assert!(!Network4::zeroed().contains(Ipv4Addr::UNSPECIFIED.into()));
        assert!(!Network6::zeroed().contains(Ipv6Addr::UNSPECIFIED.into()));
    }
}
