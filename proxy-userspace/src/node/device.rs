//! The devices of the node, sorted by what is to be done with them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::bridge::Bridge;
use super::class::{Class, Framing, Reason, Verdict, classify};
use super::links::{Link, Links};
use crate::config::Detect;

/// A device to attach to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What its driver calls itself; real hardware says nothing.
    pub kind: Option<String>,
    /// What packets of it start with.
    pub framing: Framing,
    /// Where its packets come from.
    pub class: Class,
    /// Tells it from a device that had its index before.
    pub incarnation: u64,
    /// The bridge that it is a port of.
    pub bridge: Option<Bridge>,
    /// Whether its packets are local pods', where the device is what tells those from others.
    pub is_inside: bool,
}

/// A device to leave alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bystander {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What its driver calls itself; real hardware says nothing.
    pub kind: Option<String>,
    /// Why.
    pub reason: Reason,
}

/// All devices of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// To attach to, by index.
    pub wanted: BTreeMap<u32, Device>,
    /// To leave alone, by index.
    pub others: BTreeMap<u32, Bystander>,
}

impl Devices {
    /// Sorts what the kernel reports, on a node with these addresses. `detect` tells local pods
    /// from others.
    pub fn sort(links: &Links, node: &BTreeSet<IpAddr>, detect: &Detect) -> Self {
        let mut devices = Self::default();
        for link in links.iter() {
            let (index, name, kind) = (link.index, link.name.clone(), link.kind.clone());
            match classify(link, links, node) {
                Verdict::Takes(class, framing) => {
                    let device = Device {
                        index,
                        name,
                        kind,
                        framing,
                        class,
                        incarnation: link.incarnation,
                        bridge: Bridge::of(link, links),
                        is_inside: is_inside(link, links, detect),
                    };
                    devices.wanted.insert(index, device);
                }
                Verdict::Skip(reason) => {
                    let other = Bystander {
                        index,
                        name,
                        kind,
                        reason,
                    };
                    devices.others.insert(index, other);
                }
            }
        }
        devices
    }
}

/// Whether packets that come in by `link` are local pods'. Netfilter, where kube-proxy looks, sees
/// those of a bridge's port come in by the bridge.
fn is_inside(link: &Link, links: &Links, detect: &Detect) -> bool {
    let bridge = link.master.and_then(|index| links.get(index));
    let bridge = bridge.filter(|master| master.kind.as_deref() == Some("bridge"));
    let name = &bridge.unwrap_or(link).name;
    match detect {
        Detect::BridgeInterface(bridge) => name == bridge,
        Detect::InterfaceNamePrefix(prefix) => name.starts_with(prefix),
        Detect::ClusterCidr(_) | Detect::NodeCidr => false,
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};

    use super::*;

    fn links() -> Links {
        let mut links = Links::default();
        for (index, name, kind, master) in [
            (1, "cni0", "bridge", 0),
            (2, "veth1", "veth", 1),
            (3, "cali1", "veth", 0),
            (4, "cali2", "veth", 1),
            (5, "cni0x", "bridge", 0),
            (6, "veth2", "veth", 5),
        ] {
            let mut message = LinkMessage::default();
            message.header.index = index;
            let kind = LinkInfo::Kind(InfoKind::Other(kind.into()));
            message.attributes = vec![
                LinkAttribute::IfName(name.into()),
                LinkAttribute::Controller(master),
                LinkAttribute::LinkInfo(vec![kind]),
                LinkAttribute::LinkNetNsId(0),
            ];
            message.header.link_layer_type = netlink_packet_route::link::LinkLayerType::Ether;
            links.link_set(&message);
        }
        links
    }

    fn inside(detect: &Detect) -> Vec<String> {
        let devices = Devices::sort(&links(), &BTreeSet::new(), detect);
        let inside = devices.wanted.values().filter(|device| device.is_inside);
        inside.map(|device| device.name.clone()).collect()
    }

    #[test]
    fn a_port_counts_by_the_name_of_its_bridge() {
        let bridge = Detect::BridgeInterface("cni0".into());
        assert_eq!(["veth1", "cali2"], *inside(&bridge));
        let prefix = |text: &str| Detect::InterfaceNamePrefix(text.into());
        assert_eq!(["cali1"], *inside(&prefix("cali")));
        assert_eq!(["veth1", "cali2", "veth2"], *inside(&prefix("cni")));
        assert!(inside(&prefix("veth")).is_empty());
    }

    #[test]
    fn sources_are_not_told_apart_by_devices() {
        for detect in [Detect::NodeCidr, Detect::ClusterCidr(Vec::new())] {
            assert!(inside(&detect).is_empty());
        }
    }
}
