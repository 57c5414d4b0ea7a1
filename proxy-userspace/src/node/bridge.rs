//! The bridge that a device is a port of, and who is on link there.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::links::{Link, Links};

/// A bridge, as its ports see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// The networks that are on link on it.
    pub networks: BTreeSet<OnLink>,
}

/// A network whose members reach one another on a link, this node among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OnLink {
    /// Index of the device that this node's address is at.
    pub device: u32,
    /// This node's address, with the length of the network's prefix.
    pub address: IpNet,
}

impl Bridge {
    /// The bridge that `link` is a port of, if it is one.
    ///
    /// Ports may be in VLANs of the bridge. The node's addresses there are at VLAN devices on top
    /// of it, and whoever shares a network with one of those is in its VLAN.
    pub fn of(link: &Link, links: &Links) -> Option<Self> {
        let master = links.get(link.master?)?;
        if master.kind.as_deref() != Some("bridge") {
            return None;
        }
        let vlans = links.iter().filter(|upper| {
            upper.kind.as_deref() == Some("vlan")
                && upper.lower == Some(master.index)
                && !upper.is_paired_elsewhere
        });
        let networks = vlans.chain([master]).flat_map(|at| {
            links.networks(at.index).map(|address| OnLink {
                device: at.index,
                address: *address,
            })
        });
        Some(Self {
            mac: master.mac.unwrap_or_default(),
            networks: networks.filter(is_shared).collect(),
        })
    }
}

/// Whether others can be in a network. Link-local addresses are nobody's endpoints.
fn is_shared(on_link: &OnLink) -> bool {
    let address = on_link.address;
    let is_link_local = match address.addr() {
        IpAddr::V4(addr) => addr.is_link_local(),
        IpAddr::V6(addr) => addr.is_unicast_link_local(),
    };
    !is_link_local && address.prefix_len() < address.max_prefix_len()
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::AddressFamily;
    use netlink_packet_route::address::{AddressAttribute, AddressMessage};
    use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};

    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 2, 1];

    fn set(links: &mut Links, index: u32, kind: &str, attributes: Vec<LinkAttribute>) {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let kind = LinkInfo::Kind(InfoKind::Other(kind.into()));
        message.attributes = attributes;
        message.attributes.push(LinkAttribute::LinkInfo(vec![kind]));
        links.link_set(&message);
    }

    fn address(index: u32, text: &str) -> AddressMessage {
        let net: IpNet = text.parse().unwrap();
        let mut message = AddressMessage::default();
        message.header.index = index;
        message.header.family = match net {
            IpNet::V4(_) => AddressFamily::Inet,
            IpNet::V6(_) => AddressFamily::Inet6,
        };
        message.header.prefix_len = net.prefix_len();
        message.attributes = vec![AddressAttribute::Address(net.addr())];
        message
    }

    /// A bridge 1 with two ports, and a VLAN device 4 on it.
    fn bridged() -> Links {
        let mut links = Links::default();
        let mac = LinkAttribute::Address(MAC.to_vec());
        set(&mut links, 1, "bridge", vec![mac]);
        set(&mut links, 2, "veth", vec![LinkAttribute::Controller(1)]);
        set(&mut links, 3, "veth", vec![]);
        set(&mut links, 4, "vlan", vec![LinkAttribute::Link(1)]);
        for (index, text) in [
            (1, "10.244.1.1/24"),
            (1, "fd00:10:244:1::1/64"),
            (1, "fe80::1/64"),
            (1, "192.0.2.1/32"),
            (3, "10.9.0.1/24"),
            (4, "10.244.9.1/24"),
        ] {
            links.address_set(&address(index, text));
        }
        links
    }

    fn networks(links: &Links) -> Vec<(u32, String)> {
        let bridge = Bridge::of(links.get(2).unwrap(), links).unwrap();
        assert_eq!(MAC, bridge.mac);
        let networks = bridge.networks.iter();
        networks
            .map(|on_link| (on_link.device, on_link.address.to_string()))
            .collect()
    }

    #[test]
    fn a_port_knows_the_networks_of_its_bridge_and_of_the_vlans_on_it() {
        let links = bridged();
        let expected = [
            (1, "10.244.1.1/24".to_owned()),
            (1, "fd00:10:244:1::1/64".to_owned()),
            (4, "10.244.9.1/24".to_owned()),
        ];
        assert_eq!(expected, *networks(&links));
        for other in [1, 3, 4] {
            assert_eq!(None, Bridge::of(links.get(other).unwrap(), &links));
        }
    }

    #[test]
    fn a_network_goes_with_the_address_in_it() {
        let mut links = bridged();
        links.address_gone(&address(1, "10.244.1.1/24"));
        assert_eq!(2, networks(&links).len());
        // The other end of a pair of addresses is not on a bridge.
        let mut pair = address(1, "10.8.0.0/16");
        let own = "10.7.0.1".parse().unwrap();
        pair.attributes.push(AddressAttribute::Local(own));
        links.address_set(&pair);
        assert_eq!(2, networks(&links).len());
    }

    #[test]
    fn a_port_of_something_else_has_no_bridge() {
        let mut links = bridged();
        set(&mut links, 1, "bond", vec![]);
        assert_eq!(None, Bridge::of(links.get(2).unwrap(), &links));
    }
}
