//! The devices, addresses and default routes of this network namespace, as the kernel reports them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::RouteMessage;

use super::routes::DefaultRoutes;

/// The device that kube-proxy's ipvs mode hangs the addresses of Services on.
const IPVS_DEVICE: &str = "kube-ipvs0";

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
    /// Whether what it is paired with, or built on, is in another network namespace.
    pub is_paired_elsewhere: bool,
    /// Whether it is switched on.
    pub is_up: bool,
    /// Rises when the device appears: one that went to another namespace and came back has its
    /// old index but none of its old links.
    pub incarnation: u64,
}

/// Devices, addresses and default routes.
#[derive(Debug, Default)]
pub struct Links {
    by_index: BTreeMap<u32, Link>,
    addresses: HashMap<u32, HashSet<IpAddr>>,
    networks: HashMap<u32, HashSet<IpNet>>,
    routes: DefaultRoutes,
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

    /// The addresses of this node, loopback left out. Those of kube-proxy's ipvs mode are not the
    /// node's: it hangs every cluster IP on a device of its own, which may have been left behind.
    pub fn own_addresses(&self) -> BTreeSet<IpAddr> {
        let is_own = |index: &u32| self.get(*index).is_none_or(|link| link.name != IPVS_DEVICE);
        let devices = self.addresses.iter().filter(|(index, _)| is_own(index));
        let addresses = devices.flat_map(|(_, addresses)| addresses.iter().copied());
        addresses.filter(|addr| !addr.is_loopback()).collect()
    }

    /// Whether a default route leads out of a device.
    pub fn has_default_route(&self, index: u32) -> bool {
        self.routes.lead_out_of(index)
    }

    /// The devices of this namespace that are built on a device.
    pub fn stacked_on(&self, index: u32) -> impl Iterator<Item = &Link> {
        self.iter()
            .filter(move |link| link.lower == Some(index) && !link.is_paired_elsewhere)
    }

    /// A device is there, or has changed.
    pub fn link_set(&mut self, message: &LinkMessage) {
        let Some(mut link) = link(message) else {
            return;
        };
        link.incarnation = if let Some(known) = self.by_index.get(&link.index) {
            match (known.is_up, link.is_up) {
                (true, false) => self.routes.device_down(link.index),
                (false, true) => self.routes.device_up(link.index),
                _ => {}
            }
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
        self.routes.device_gone(index);
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
        let index = message.header.index;
        if let (Some(known), Some(network)) = (self.networks.get_mut(&index), network(message)) {
            known.remove(&network);
        }
        let (Some(known), Some(addr)) = (self.addresses.get_mut(&index), address(message)) else {
            return;
        };
        known.remove(&addr);
        if addr.is_ipv4() && !known.iter().any(IpAddr::is_ipv4) {
            self.routes.no_ipv4(index);
        }
        if !self.addresses.values().any(|known| known.contains(&addr)) {
            self.routes.source_gone(addr);
        }
    }

    /// A route is there; `replaces` says that it takes the place of those like it.
    pub fn route_set(&mut self, message: &RouteMessage, replaces: bool) {
        self.routes.set(message, replaces);
    }

    /// A route is gone.
    pub fn route_gone(&mut self, message: &RouteMessage) {
        self.routes.gone(message);
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
        is_up: message.header.flags.contains(LinkFlags::Up),
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

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::LinkHeader;
    use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteType};

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

    fn ipv4(device: u32, last: u8) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.index = device;
        let addr = std::net::Ipv4Addr::new(192, 0, 2, last);
        message.attributes = vec![AddressAttribute::Local(addr.into())];
        message
    }

    /// A default route out of a device, with a source address if `last` gives its last byte.
    fn route_message(device: u32, last: Option<u8>) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.kind = RouteType::Unicast;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.attributes = vec![RouteAttribute::Oif(device)];
        if let Some(last) = last {
            let source = RouteAddress::Inet(std::net::Ipv4Addr::new(192, 0, 2, last));
            message.attributes.push(RouteAttribute::PrefSource(source));
        }
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
    fn default_routes_end_with_what_they_need() {
        let mut links = Links::default();
        let mut up = link_message(1, "a", AddressFamily::Unspec);
        up.header.flags = LinkFlags::Up;
        let down = link_message(1, "a", AddressFamily::Unspec);
        links.link_set(&up);
        links.route_set(&route_message(1, None), false);
        assert!(links.has_default_route(1));
        links.link_set(&down);
        assert!(!links.has_default_route(1));

        links.link_set(&up);
        links.address_set(&ipv4(1, 1));
        links.address_set(&ipv4(1, 2));
        links.route_set(&route_message(1, None), false);
        links.address_gone(&ipv4(1, 1));
        assert!(links.has_default_route(1));
        links.address_gone(&ipv4(1, 2));
        assert!(!links.has_default_route(1));

        links.address_set(&ipv4(1, 1));
        links.address_set(&ipv4(1, 2));
        links.address_set(&ipv4(2, 1));
        links.route_set(&route_message(1, Some(1)), false);
        links.address_gone(&ipv4(1, 1));
        assert!(links.has_default_route(1), "another device has the address");
        links.address_gone(&ipv4(2, 1));
        assert!(!links.has_default_route(1));
        links.route_set(&route_message(1, None), false);
        links.link_gone(&up);
        assert!(!links.has_default_route(1));
    }

    #[test]
    fn addresses_of_services_on_the_ipvs_device_are_not_the_nodes() {
        let mut links = Links::default();
        links.link_set(&link_message(1, "lo", AddressFamily::Unspec));
        links.link_set(&link_message(2, "eth0", AddressFamily::Unspec));
        links.link_set(&link_message(3, "kube-ipvs0", AddressFamily::Unspec));
        let mut loopback = ipv4(1, 0);
        let local = std::net::Ipv4Addr::LOCALHOST;
        loopback.attributes = vec![AddressAttribute::Local(local.into())];
        for address in [loopback, ipv4(1, 1), ipv4(2, 2), ipv4(3, 3)] {
            links.address_set(&address);
        }
        let own = |last: &[u8]| -> BTreeSet<IpAddr> {
            last.iter().map(|last| [192, 0, 2, *last].into()).collect()
        };
        assert_eq!(own(&[1, 2]), links.own_addresses());
        links.address_gone(&ipv4(2, 2));
        links.address_set(&ipv4(1, 3));
        assert_eq!(own(&[1, 3]), links.own_addresses());
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
