//! What Services that are declared have of addresses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ipnet::IpNet;

use super::destination::Destination;
use super::table::Key;
use super::wanted::guarded;
use crate::config::Mode;
use crate::model::{Change, Object, ObjectKey, ObjectName, Service};

/// The `ClusterIP`s of all Services that are declared, or their ports, as the mode wants them; and
/// of how many Services: for a moment, or by a mistake, two can have the same.
#[derive(Debug)]
pub struct ClusterIps {
    key: Key,
    by_service: HashMap<ObjectName, Vec<Destination>>,
    users: HashMap<Destination, usize>,
}

/// What changes come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// What no Service had before.
    pub added: BTreeSet<Destination>,
    /// What no Service has any more.
    pub gone: BTreeSet<Destination>,
}

impl ClusterIps {
    /// None yet.
    pub fn new(mode: Mode) -> Self {
        Self {
            key: guarded(mode).key,
            by_service: HashMap::new(),
            users: HashMap::new(),
        }
    }

    /// What Services have.
    pub fn held(&self) -> BTreeSet<Destination> {
        self.users.keys().copied().collect()
    }

    /// Takes changes in.
    pub fn note(&mut self, changes: &[Change]) -> Delta {
        let mut before = HashMap::new();
        for change in changes {
            let (name, new) = match change {
                Change::Set(Object::Service(service)) => {
                    (&service.name, destinations(self.key, service))
                }
                Change::Gone(ObjectKey::Service(name)) => (name, Vec::new()),
                _ => continue,
            };
            for destination in &new {
                let users = self.users.entry(*destination).or_default();
                before.entry(*destination).or_insert(*users > 0);
                *users += 1;
            }
            let old = if new.is_empty() {
                self.by_service.remove(name)
            } else {
                self.by_service.insert(name.clone(), new)
            };
            for destination in old.into_iter().flatten() {
                before.entry(destination).or_insert(true);
                let users = self.users.entry(destination).or_default();
                *users = users.saturating_sub(1);
                if *users == 0 {
                    self.users.remove(&destination);
                }
            }
        }
        let mut delta = Delta::default();
        for (destination, was_there) in before {
            match (was_there, self.users.contains_key(&destination)) {
                (false, true) => delta.added.insert(destination),
                (true, false) => delta.gone.insert(destination),
                _ => continue,
            };
        }
        delta
    }
}

fn destinations(key: Key, service: &Service) -> Vec<Destination> {
    let addresses = service.cluster_ips.iter().copied();
    match key {
        Key::Address => addresses.map(Destination::address).collect(),
        Key::Port => addresses
            .flat_map(|address| {
                let ports = service.ports.iter();
                ports.map(move |port| Destination::port(address, port.protocol.into(), port.port))
            })
            .collect(),
    }
}

/// The ranges that cluster IPs are taken from.
#[derive(Debug, Default)]
pub struct ServiceCidrs(BTreeMap<Arc<str>, Vec<IpNet>>);

impl ServiceCidrs {
    /// Takes changes in; all ranges, if they are others now.
    pub fn note(&mut self, changes: &[Change]) -> Option<BTreeSet<IpNet>> {
        let before = self.all();
        for change in changes {
            match change {
                Change::Set(Object::ServiceCidr(own)) => {
                    self.0.insert(Arc::clone(&own.name), own.cidrs.clone());
                }
                Change::Gone(ObjectKey::ServiceCidr(name)) => {
                    self.0.remove(name);
                }
                _ => {}
            }
        }
        let now = self.all();
        (now != before).then_some(now)
    }

    /// All ranges.
    pub fn all(&self) -> BTreeSet<IpNet> {
        self.0.values().flatten().copied().collect()
    }
}
