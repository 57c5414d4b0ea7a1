//! The devices of the node, sorted by what is to be done with them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::bridge::Bridge;
use super::class::{Class, Framing, Reason, Verdict, classify};
use super::links::Links;

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
    /// Sorts what the kernel reports, on a node with these addresses.
    pub fn sort(links: &Links, node: &BTreeSet<IpAddr>) -> Self {
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
