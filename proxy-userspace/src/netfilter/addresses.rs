//! The `ClusterIP`s of all Services that are declared.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use crate::model::{Change, Object, ObjectKey, ObjectName};

/// Which addresses are `ClusterIP`s, and of how many Services: for a moment, or by a mistake, two
/// can have the same.
#[derive(Debug, Default)]
pub struct ClusterIps {
    by_service: HashMap<ObjectName, Vec<IpAddr>>,
    users: HashMap<IpAddr, usize>,
}

/// What changes come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Addresses that were no `ClusterIP`s before.
    pub added: BTreeSet<IpAddr>,
    /// Addresses that are none any more.
    pub gone: BTreeSet<IpAddr>,
}

impl ClusterIps {
    /// Takes changes in.
    pub fn note(&mut self, changes: &[Change]) -> Delta {
        let mut before = HashMap::new();
        for change in changes {
            let (name, new) = match change {
                Change::Set(Object::Service(service)) => {
                    (&service.name, service.cluster_ips.clone())
                }
                Change::Gone(ObjectKey::Service(name)) => (name, Vec::new()),
                _ => continue,
            };
            for address in &new {
                let users = self.users.entry(*address).or_default();
                before.entry(*address).or_insert(*users > 0);
                *users += 1;
            }
            let old = if new.is_empty() {
                self.by_service.remove(name)
            } else {
                self.by_service.insert(name.clone(), new)
            };
            for address in old.into_iter().flatten() {
                before.entry(address).or_insert(true);
                let users = self.users.entry(address).or_default();
                *users = users.saturating_sub(1);
                if *users == 0 {
                    self.users.remove(&address);
                }
            }
        }
        let mut delta = Delta::default();
        for (address, was_there) in before {
            match (was_there, self.users.contains_key(&address)) {
                (false, true) => delta.added.insert(address),
                (true, false) => delta.gone.insert(address),
                _ => continue,
            };
        }
        delta
    }
}
