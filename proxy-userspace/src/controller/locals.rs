//! The endpoints on this node.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::watch;

use crate::model::{Change, Object, ObjectKey, ObjectName};

/// Follows which addresses the endpoints on this node have, and tells them.
pub(super) struct Locals {
    node: Arc<str>,
    by_slice: HashMap<ObjectName, BTreeSet<IpAddr>>,
    /// How many slices name an address.
    counts: HashMap<IpAddr, usize>,
    addresses: watch::Sender<BTreeSet<IpAddr>>,
}

impl Locals {
    pub(super) fn new(node: Arc<str>, addresses: watch::Sender<BTreeSet<IpAddr>>) -> Self {
        Self {
            node,
            by_slice: HashMap::new(),
            counts: HashMap::new(),
            addresses,
        }
    }

    /// Takes in a change.
    pub(super) fn note(&mut self, change: &Change) {
        let (name, now) = match change {
            Change::Set(Object::Slice(slice)) => {
                let local = slice
                    .endpoints
                    .iter()
                    .filter(|endpoint| endpoint.node.as_ref() == Some(&self.node))
                    .map(|endpoint| endpoint.address)
                    .collect();
                (&slice.name, local)
            }
            Change::Gone(ObjectKey::Slice(name)) => (name, BTreeSet::new()),
            _ => return,
        };
        let before = if now.is_empty() {
            self.by_slice.remove(name)
        } else {
            self.by_slice.insert(name.clone(), now.clone())
        };
        let before = before.unwrap_or_default();
        if before == now {
            return;
        }
        let counts = &mut self.counts;
        self.addresses.send_if_modified(|all| {
            let mut is_new = false;
            for addr in now.difference(&before) {
                *counts.entry(*addr).or_default() += 1;
                is_new |= all.insert(*addr);
            }
            for addr in before.difference(&now) {
                let count = counts.entry(*addr).or_default();
                *count = count.saturating_sub(1);
                if *count == 0 {
                    counts.remove(addr);
                    is_new |= all.remove(addr);
                }
            }
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Endpoint, EndpointSlice, Family};

    fn name(name: &str) -> ObjectName {
        ObjectName::new("default", name)
    }

    fn slice(slice: &str, endpoints: &[(&str, Option<&str>)]) -> Change {
        let endpoints = endpoints.iter().map(|(addr, node)| Endpoint {
            address: addr.parse().unwrap(),
            node: node.map(Into::into),
            ready: true,
            serving: true,
            terminating: false,
            for_zones: Vec::new(),
            for_nodes: Vec::new(),
        });
        Change::Set(Object::Slice(Arc::new(EndpointSlice {
            name: name(slice),
            service: name("web"),
            family: Family::V4,
            ports: Vec::new(),
            endpoints: endpoints.collect(),
        })))
    }

    #[test]
    fn an_address_stays_as_long_as_one_slice_names_it_on_this_node() {
        let (sender, receiver) = watch::channel(BTreeSet::new());
        let mut locals = Locals::new("one".into(), sender);
        let here = Some("one");
        let mut expect = |change: Change, addresses: &[&str]| {
            locals.note(&change);
            let expected: BTreeSet<IpAddr> =
                addresses.iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(expected, *receiver.borrow());
        };
        let all = [
            ("10.0.0.1", here),
            ("10.0.0.2", Some("two")),
            ("10.0.0.3", None),
        ];
        expect(slice("a", &all), &["10.0.0.1"]);
        expect(slice("b", &all[..1]), &["10.0.0.1"]);
        expect(slice("a", &all[1..]), &["10.0.0.1"]);
        expect(slice("b", &[("10.0.0.4", here)]), &["10.0.0.4"]);
        expect(Change::Gone(ObjectKey::Slice(name("a"))), &["10.0.0.4"]);
        expect(Change::Gone(ObjectKey::Slice(name("b"))), &[]);
    }

    #[test]
    fn nobody_is_told_what_has_not_changed() {
        let (sender, mut receiver) = watch::channel(BTreeSet::new());
        let mut locals = Locals::new("one".into(), sender);
        let all = [("10.0.0.1", Some("one"))];
        locals.note(&slice("a", &all));
        assert!(receiver.has_changed().unwrap());
        receiver.mark_unchanged();
        locals.note(&slice("a", &all));
        locals.note(&slice("b", &all));
        assert!(!receiver.has_changed().unwrap());
    }
}
