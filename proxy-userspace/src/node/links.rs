//! The devices, addresses and default routes of this network namespace, as the kernel reports them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};

/// A network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What its driver calls itself; real hardware says nothing.
    pub kind: Option<String>,
    /// Hardware type, as `ARPHRD_` constants have it.
    pub hardware: u16,
    /// Whether it is the loopback device.
    pub is_loopback: bool,
    /// Index of the device that it is a part of.
    pub master: Option<u32>,
    /// Index of the device that it is paired with, or built on, in that one's namespace.
    pub lower: Option<u32>,
    /// Its MAC address, if it has one of that length.
    pub mac: Option<[u8; 6]>,
    /// Whether the device it is paired with, or built on, is in another network namespace.
    pub is_paired_elsewhere: bool,
    /// Rises when the device appears: one that went to another namespace and came back has its
    /// old index but none of its old links.
    pub incarnation: u64,
}

/// `RT_TABLE_LOCAL`, which says what is delivered here.
const LOCAL_TABLE: u8 = 255;

/// Family, table and metric of a default route.
type RouteKey = (u8, u32, u32);

/// Devices, addresses and default routes.
#[derive(Debug, Default)]
pub struct Links {
    by_index: BTreeMap<u32, Link>,
    addresses: HashMap<u32, HashSet<IpAddr>>,
    networks: HashMap<u32, HashSet<IpNet>>,
    default_routes: HashMap<RouteKey, BTreeSet<u32>>,
    appeared: u64,
}

impl Links {
    /// All devices, by index.
    pub fn iter(&self) -> impl Iterator<Item = &Link> {
        self.by_index.values()
    }

    /// The device of this index.
    pub fn get(&self, index: u32) -> Option<&Link> {
        self.by_index.get(&index)
    }

    /// The addresses of a device.
    pub fn addresses(&self, index: u32) -> impl Iterator<Item = &IpAddr> {
        self.addresses.get(&index).into_iter().flatten()
    }

    /// The addresses of a device that come with a network, with the length of its prefix.
    pub fn networks(&self, index: u32) -> impl Iterator<Item = &IpNet> {
        self.networks.get(&index).into_iter().flatten()
    }

    /// Whether a default route leads out of a device.
    pub fn has_default_route(&self, index: u32) -> bool {
        self.default_routes
            .values()
            .any(|devices| devices.contains(&index))
    }

    /// A device is there, or has changed.
    pub fn link_set(&mut self, message: &LinkMessage) {
        let Some(mut link) = link(message) else {
            return;
        };
        link.incarnation = if let Some(known) = self.by_index.get(&link.index) {
            known.incarnation
        } else {
            self.appeared += 1;
            self.appeared
        };
        self.by_index.insert(link.index, link);
    }

    /// A device is gone, and with it its addresses and routes.
    pub fn link_gone(&mut self, message: &LinkMessage) {
        // A port that leaves its bridge is reported as gone, in the bridge's own terms.
        if message.header.interface_family != AddressFamily::Unspec {
            return;
        }
        let index = message.header.index;
        self.by_index.remove(&index);
        self.addresses.remove(&index);
        self.networks.remove(&index);
        for devices in self.default_routes.values_mut() {
            devices.remove(&index);
        }
    }

    /// A device has an address.
    pub fn address_set(&mut self, message: &AddressMessage) {
        if let Some(addr) = address(message) {
            self.addresses
                .entry(message.header.index)
                .or_default()
                .insert(addr);
        }
        if let Some(network) = network(message) {
            let known = self.networks.entry(message.header.index).or_default();
            known.insert(network);
        }
    }

    /// A device has an address no more.
    pub fn address_gone(&mut self, message: &AddressMessage) {
        let known = self.networks.get_mut(&message.header.index);
        if let (Some(known), Some(network)) = (known, network(message)) {
            known.remove(&network);
        }
        let known = self.addresses.get_mut(&message.header.index);
        if let (Some(known), Some(addr)) = (known, address(message)) {
            known.remove(&addr);
        }
    }

    /// A route is there; `replaces` says that it takes the place of those like it.
    pub fn route_set(&mut self, message: &RouteMessage, replaces: bool) {
        if let Some((key, devices)) = default_route(message) {
            let known = self.default_routes.entry(key).or_default();
            if replaces {
                known.clear();
            }
            known.extend(devices);
        }
    }

    /// A route is gone.
    pub fn route_gone(&mut self, message: &RouteMessage) {
        if let Some((key, devices)) = default_route(message)
            && let Some(known) = self.default_routes.get_mut(&key)
        {
            known.retain(|device| !devices.contains(device));
        }
    }

    /// Takes over which devices were known before everything was read anew.
    pub fn succeed(&mut self, before: &Self) {
        self.appeared = before.appeared;
        for link in self.by_index.values_mut() {
            let known = before.by_index.get(&link.index);
            let same = known.filter(|known| known.name == link.name && known.kind == link.kind);
            link.incarnation = if let Some(known) = same {
                known.incarnation
            } else {
                self.appeared += 1;
                self.appeared
            };
        }
    }
}

fn link(message: &LinkMessage) -> Option<Link> {
    if message.header.interface_family != AddressFamily::Unspec {
        return None;
    }
    let mut link = Link {
        index: message.header.index,
        hardware: message.header.link_layer_type.into(),
        is_loopback: message.header.flags.contains(LinkFlags::Loopback),
        ..Link::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Controller(master) => {
                link.master = Some(*master).filter(|index| *index != 0);
            }
            LinkAttribute::Link(lower) => link.lower = Some(*lower).filter(|index| *index != 0),
            LinkAttribute::Address(bytes) => link.mac = bytes.as_slice().try_into().ok(),
            LinkAttribute::LinkNetNsId(_) => link.is_paired_elsewhere = true,
            LinkAttribute::LinkInfo(infos) => {
                link.kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Some(link)
}

/// The device's own address; `IFA_ADDRESS` is the other end's where there is one.
fn address(message: &AddressMessage) -> Option<IpAddr> {
    let own = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            AddressAttribute::Local(addr) => Some(*addr),
            _ => None,
        });
    own.or_else(|| {
        message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                AddressAttribute::Address(addr) => Some(*addr),
                _ => None,
            })
    })
}

/// The device's own address with its network; of a pair of addresses the network is the other end's.
fn network(message: &AddressMessage) -> Option<IpNet> {
    let own = address(message)?;
    let is_pair = message
        .attributes
        .iter()
        .any(|attribute| matches!(attribute, AddressAttribute::Address(addr) if *addr != own));
    if is_pair {
        return None;
    }
    IpNet::new(own, message.header.prefix_len).ok()
}

/// Table and metric of a default route, and the devices it leads out of.
fn default_route(message: &RouteMessage) -> Option<(RouteKey, Vec<u32>)> {
    let header = &message.header;
    let is_default = header.destination_prefix_length == 0
        && header.kind == RouteType::Unicast
        && header.table != LOCAL_TABLE;
    if !is_default {
        return None;
    }
    let (mut table, mut metric) = (u32::from(header.table), 0);
    let mut devices = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Priority(number) => metric = *number,
            RouteAttribute::Oif(device) => devices.push(*device),
            RouteAttribute::MultiPath(hops) => {
                devices.extend(hops.iter().map(|hop| hop.interface_index));
            }
            _ => {}
        }
    }
    Some(((header.address_family.into(), table, metric), devices))
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::LinkHeader;
    use netlink_packet_route::route::RouteHeader;

    use super::*;

    fn link_message(index: u32, name: &str, family: AddressFamily) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header = LinkHeader {
            interface_family: family,
            index,
            ..LinkHeader::default()
        };
        message.attributes = vec![LinkAttribute::IfName(name.into())];
        message
    }

    fn route_message(metric: u32, device: u32) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.kind = RouteType::Unicast;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.attributes = vec![
            RouteAttribute::Oif(device),
            RouteAttribute::Priority(metric),
        ];
        message
    }

    #[test]
    fn a_device_that_comes_back_is_another_one() {
        let mut links = Links::default();
        let message = link_message(7, "a", AddressFamily::Unspec);
        links.link_set(&message);
        links.link_set(&link_message(7, "renamed", AddressFamily::Unspec));
        let before = links.get(7).unwrap().clone();
        assert_eq!("renamed", before.name);
        links.link_gone(&message);
        links.link_set(&message);
        assert_ne!(before.incarnation, links.get(7).unwrap().incarnation);
    }

    #[test]
    fn a_port_that_leaves_its_bridge_is_not_gone() {
        let mut links = Links::default();
        links.link_set(&link_message(7, "a", AddressFamily::Unspec));
        links.link_gone(&link_message(7, "a", AddressFamily::Bridge));
        assert!(links.get(7).is_some());
    }

    #[test]
    fn default_routes_are_followed() {
        let mut links = Links::default();
        links.link_set(&link_message(1, "a", AddressFamily::Unspec));
        links.route_set(&route_message(0, 1), false);
        links.route_set(&route_message(100, 2), false);
        assert!(links.has_default_route(1) && links.has_default_route(2));
        links.route_set(&route_message(0, 3), true);
        assert!(!links.has_default_route(1) && links.has_default_route(3));
        links.route_gone(&route_message(100, 2));
        assert!(!links.has_default_route(2));
        links.link_gone(&link_message(3, "c", AddressFamily::Unspec));
        assert!(!links.has_default_route(3));
        let mut blackhole = route_message(0, 4);
        blackhole.header.kind = RouteType::BlackHole;
        links.route_set(&blackhole, false);
        assert!(!links.has_default_route(4));
    }

    #[test]
    fn what_is_read_anew_keeps_the_devices_it_knew() {
        let mut before = Links::default();
        before.link_set(&link_message(1, "a", AddressFamily::Unspec));
        before.link_set(&link_message(2, "b", AddressFamily::Unspec));
        let mut after = Links::default();
        after.link_set(&link_message(2, "b", AddressFamily::Unspec));
        after.link_set(&link_message(1, "other", AddressFamily::Unspec));
        after.succeed(&before);
        let incarnations = [1, 2].map(|index| after.get(index).unwrap().incarnation);
        assert_eq!([3, 2], incarnations);
    }
}
