//! What the programs are told of the devices that they are attached to.

use aya::Ebpf;
use aya::maps::{HashMap, MapData, MapError};
use bytemuck::Zeroable as _;
use ipnet::IpNet;
use proxy_common::abi::device::NETWORKS;
use proxy_common::abi::{self, DeviceClass, Network4, Network6};
use tracing::warn;

use super::load::LoadError;
use super::plain::Plain;
use crate::node::{Class, Device};

/// The map of devices. It is not pinned: each controller fills one of its own, before its programs
/// are attached to a device.
#[derive(Debug)]
pub(super) struct Devices(HashMap<MapData, u32, Plain<abi::Device>>);

impl Devices {
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self, LoadError> {
        const NAME: &str = "DEVICES";
        let map = ebpf
            .take_map(NAME)
            .ok_or_else(|| LoadError::NoMap(NAME.to_owned()))?;
        let map = HashMap::try_from(map).map_err(|source| LoadError::Map {
            map: NAME.to_owned(),
            source,
        })?;
        Ok(Self(map))
    }

    /// Says what a device is, anew where it was said before.
    pub(super) fn set(&mut self, device: &Device) -> Result<(), MapError> {
        self.write(device.index, record(device))
    }

    /// Says what the device of an index is.
    pub(super) fn write(&mut self, index: u32, record: abi::Device) -> Result<(), MapError> {
        self.0.insert(index, Plain(record), 0)
    }

    /// A device is not attached to any more.
    pub(super) fn remove(&mut self, index: u32) {
        // It may never have been there.
        self.0.remove(&index).ok();
    }
}

fn record(device: &Device) -> abi::Device {
    let mut record = abi::Device {
        class: class(device.class),
        inside: device.is_inside.into(),
        ..abi::Device::zeroed()
    };
    let Some(bridge) = &device.bridge else {
        return record;
    };
    record.bridge_mac = bridge.mac.into();
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for on_link in &bridge.networks {
        match on_link.address {
            IpNet::V4(own) => v4.push(Network4::new(on_link.device, own.addr(), own.prefix_len())),
            IpNet::V6(own) => v6.push(Network6::new(on_link.device, own.addr(), own.prefix_len())),
        }
    }
    // A node may have several addresses in one.
    v4.dedup();
    v6.dedup();
    if v4.len().max(v6.len()) > NETWORKS {
        warn!(
            device = %device.name,
            "only {NETWORKS} networks of each family count on its bridge, others go by the stack"
        );
    }
    for (place, network) in record.networks4.iter_mut().zip(v4) {
        *place = network;
    }
    for (place, network) in record.networks6.iter_mut().zip(v6) {
        *place = network;
    }
    record
}

const fn class(class: Class) -> DeviceClass {
    match class {
        Class::Pod => DeviceClass::POD,
        Class::PodPort => DeviceClass::POD_PORT,
        Class::Uplink => DeviceClass::UPLINK,
        Class::UplinkPort => DeviceClass::UPLINK_PORT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Bridge, Framing, OnLink};

    fn port(networks: &[&str]) -> Device {
        let networks = networks.iter().map(|text| OnLink {
            device: 3,
            address: text.parse().unwrap(),
        });
        Device {
            index: 7,
            name: "veth7".to_owned(),
            kind: Some("veth".to_owned()),
            framing: Framing::Ethernet,
            class: Class::PodPort,
            incarnation: 1,
            bridge: Some(Bridge {
                mac: [2, 0, 0, 0, 2, 1],
                networks: networks.collect(),
            }),
            is_inside: false,
        }
    }

    #[test]
    fn a_port_is_told_its_bridge() {
        let record = record(&port(&[
            "10.244.1.1/24",
            "10.244.1.2/24",
            "fd00:10:244:1::1/64",
        ]));
        assert_eq!(DeviceClass::POD_PORT, record.class);
        assert_eq!("02:00:00:00:02:01", record.bridge_mac.to_string());
        let v4 = Network4::new(3, [10, 244, 1, 0].into(), 24);
        assert_eq!([v4, Network4::zeroed()], record.networks4[..2]);
        let v6 = Network6::new(3, "fd00:10:244:1::".parse().unwrap(), 64);
        assert_eq!([v6, Network6::zeroed()], record.networks6[..2]);
    }

    #[test]
    fn a_device_is_told_whether_it_is_inside() {
        for is_inside in [true, false] {
            let device = Device {
                is_inside,
                bridge: None,
                ..port(&[])
            };
            assert_eq!(u16::from(is_inside), record(&device).inside);
        }
    }

    #[test]
    fn networks_beyond_those_that_fit_are_left_out() {
        let texts: Vec<_> = (0..6).map(|n| format!("10.244.{n}.1/24")).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let record = record(&port(&texts));
        assert!(record.networks4.iter().all(|network| network.device == 3));
        assert!(record.networks6.iter().all(|network| network.device == 0));
    }
}
