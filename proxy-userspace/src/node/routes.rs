//! Default routes, kept true by what the kernel says and by what it does without saying.
//!
//! It removes IPv4 routes silently with the device that is switched off, with the last address of
//! a device, and with the address that they prefer as source (`fib_sync_down_dev`,
//! `fib_sync_down_addr`). A route over several devices goes when none of them is left; until then
//! those that are off are only not used.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};

/// The default routes of all tables.
#[derive(Debug, Default)]
pub(super) struct DefaultRoutes(HashMap<Key, Route>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    /// `AF_INET` or `AF_INET6`.
    family: u8,
    table: u32,
    metric: u32,
}

#[derive(Debug, Default)]
struct Route {
    /// The devices that it leads out of, and whether it can.
    devices: BTreeMap<u32, bool>,
    /// Preferred source address.
    source: Option<IpAddr>,
}

impl DefaultRoutes {
    /// Whether any leads out of a device.
    pub(super) fn lead_out_of(&self, device: u32) -> bool {
        self.0
            .values()
            .any(|route| route.devices.contains_key(&device))
    }

    /// A route is there; `replaces` says that it takes the place of those like it.
    pub(super) fn set(&mut self, message: &RouteMessage, replaces: bool) {
        if let Some((key, new)) = read(message) {
            let known = self.0.entry(key).or_default();
            if replaces {
                known.devices.clear();
            }
            known.devices.extend(new.devices);
            known.source = new.source;
        }
    }

    /// A route is gone.
    pub(super) fn gone(&mut self, message: &RouteMessage) {
        if let Some((key, old)) = read(message)
            && let Some(known) = self.0.get_mut(&key)
        {
            known
                .devices
                .retain(|device, _| !old.devices.contains_key(device));
        }
    }

    /// A device is switched off.
    pub(super) fn device_down(&mut self, device: u32) {
        self.unusable(device, |_| true);
    }

    /// A device is switched on.
    pub(super) fn device_up(&mut self, device: u32) {
        for route in self.0.values_mut() {
            if let Some(usable) = route.devices.get_mut(&device) {
                *usable = true;
            }
        }
    }

    /// A device has lost its last IPv4 address.
    pub(super) fn no_ipv4(&mut self, device: u32) {
        self.unusable(device, |key| key.family == u8::from(AddressFamily::Inet));
    }

    /// No device has this address any more.
    pub(super) fn source_gone(&mut self, addr: IpAddr) {
        self.0.retain(|_, route| route.source != Some(addr));
    }

    /// A device is gone.
    pub(super) fn device_gone(&mut self, device: u32) {
        for route in self.0.values_mut() {
            route.devices.remove(&device);
        }
    }

    fn unusable(&mut self, device: u32, concerns: impl Fn(&Key) -> bool) {
        self.0.retain(|key, route| {
            if let Some(usable) = route.devices.get_mut(&device)
                && concerns(key)
            {
                *usable = false;
            }
            route.devices.values().any(|usable| *usable)
        });
    }
}

/// `RT_TABLE_LOCAL`, which says what is delivered here.
const LOCAL_TABLE: u8 = 255;

/// The default route that a message is about, if it is one.
fn read(message: &RouteMessage) -> Option<(Key, Route)> {
    let header = &message.header;
    let is_default = header.destination_prefix_length == 0
        && header.kind == RouteType::Unicast
        && header.table != LOCAL_TABLE;
    if !is_default {
        return None;
    }
    let mut key = Key {
        family: header.address_family.into(),
        table: header.table.into(),
        metric: 0,
    };
    let mut route = Route::default();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(number) => key.table = *number,
            RouteAttribute::Priority(number) => key.metric = *number,
            RouteAttribute::PrefSource(RouteAddress::Inet(addr)) => {
                route.source = Some((*addr).into());
            }
            RouteAttribute::Oif(device) => {
                route.devices.insert(*device, true);
            }
            RouteAttribute::MultiPath(hops) => {
                route
                    .devices
                    .extend(hops.iter().map(|hop| (hop.interface_index, true)));
            }
            _ => {}
        }
    }
    Some((key, route))
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::route::{RouteHeader, RouteNextHop};

    use super::*;

    /// A default route of this metric out of these devices.
    fn route(family: AddressFamily, metric: u32, devices: &[u32]) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        message.header.kind = RouteType::Unicast;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.attributes = vec![RouteAttribute::Priority(metric)];
        message.attributes.push(match devices {
            [device] => RouteAttribute::Oif(*device),
            several => {
                RouteAttribute::MultiPath(several.iter().map(|device| hop(*device)).collect())
            }
        });
        message
    }

    fn hop(device: u32) -> RouteNextHop {
        let mut hop = RouteNextHop::default();
        hop.interface_index = device;
        hop
    }

    fn ipv4(metric: u32, devices: &[u32]) -> RouteMessage {
        route(AddressFamily::Inet, metric, devices)
    }

    fn of(messages: &[RouteMessage]) -> DefaultRoutes {
        let mut routes = DefaultRoutes::default();
        for message in messages {
            routes.set(message, false);
        }
        routes
    }

    fn devices(routes: &DefaultRoutes) -> Vec<u32> {
        (1..=9)
            .filter(|device| routes.lead_out_of(*device))
            .collect()
    }

    #[test]
    fn what_the_kernel_says_is_followed() {
        let mut routes = of(&[ipv4(0, &[1]), ipv4(100, &[2])]);
        assert_eq!([1, 2], *devices(&routes));
        routes.set(&ipv4(0, &[3]), true);
        assert_eq!([2, 3], *devices(&routes));
        routes.gone(&ipv4(100, &[2]));
        assert_eq!([3], *devices(&routes));
        routes.device_gone(3);
        assert!(devices(&routes).is_empty());
    }

    #[test]
    fn only_routes_that_lead_on_count() {
        let mut blackhole = ipv4(0, &[4]);
        blackhole.header.kind = RouteType::BlackHole;
        let mut to_here = ipv4(0, &[5]);
        to_here.header.table = LOCAL_TABLE;
        let mut half = ipv4(0, &[6]);
        half.header.destination_prefix_length = 1;
        assert!(devices(&of(&[blackhole, to_here, half])).is_empty());
    }

    #[test]
    fn a_device_that_is_switched_off_takes_its_routes_along() {
        let mut routes = of(&[ipv4(0, &[1]), ipv4(100, &[2])]);
        routes.device_down(1);
        assert_eq!([2], *devices(&routes));
        // It is not back with the device.
        routes.device_up(1);
        assert_eq!([2], *devices(&routes));
    }

    #[test]
    fn a_route_over_several_devices_lives_as_long_as_one_of_them() {
        let mut routes = of(&[ipv4(0, &[1, 2])]);
        routes.device_down(1);
        assert_eq!([1, 2], *devices(&routes));
        routes.device_up(1);
        routes.device_down(2);
        assert_eq!([1, 2], *devices(&routes));
        routes.device_down(1);
        assert!(devices(&routes).is_empty());
    }

    #[test]
    fn routes_go_with_the_addresses_they_need() {
        let mut sourced = ipv4(0, &[1]);
        let source = std::net::Ipv4Addr::new(192, 0, 2, 1);
        sourced
            .attributes
            .push(RouteAttribute::PrefSource(RouteAddress::Inet(source)));
        let mut routes = of(&[sourced, ipv4(1, &[2]), route(AddressFamily::Inet6, 0, &[2])]);
        routes.source_gone(source.into());
        assert_eq!([2], *devices(&routes));
        // The one of IPv6 stays.
        routes.no_ipv4(2);
        assert_eq!([2], *devices(&routes));
        routes.device_down(2);
        assert!(devices(&routes).is_empty());
    }
}
