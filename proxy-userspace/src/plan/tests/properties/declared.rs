//! What is declared, and what that should lead to, kept in the simplest way.

use super::super::super::desired::wanted;
use super::*;

#[derive(Default)]
pub(super) struct Declared {
    pub(super) services: BTreeMap<ObjectName, Arc<Service>>,
    pub(super) slices: BTreeMap<ObjectName, Arc<EndpointSlice>>,
}

impl Declared {
    pub(super) fn note(&mut self, change: &Change) {
        match change.clone() {
            Change::Set(Object::Service(service)) => {
                self.services.insert(service.name.clone(), service);
            }
            Change::Gone(ObjectKey::Service(name)) => {
                self.services.remove(&name);
            }
            Change::Set(Object::Slice(slice)) => {
                self.slices.insert(slice.name.clone(), slice);
            }
            Change::Gone(ObjectKey::Slice(name)) => {
                self.slices.remove(&name);
            }
            Change::Set(Object::Node(_) | Object::ServiceCidr(_))
            | Change::Gone(ObjectKey::Node(_) | ObjectKey::ServiceCidr(_))
            | Change::Addresses(_) => {}
        }
    }

    pub(super) fn all(&self) -> Vec<Change> {
        let services = self.services.values().cloned().map(Object::Service);
        let slices = self.slices.values().cloned().map(Object::Slice);
        services.chain(slices).map(Change::Set).collect()
    }

    pub(super) fn wanted(&self) -> Vec<Wanted> {
        let slices = |name: &ObjectName| -> Vec<_> {
            let own = self.slices.values().filter(|slice| slice.service == *name);
            own.cloned().collect()
        };
        let all = self.services.iter();
        all.flat_map(|(name, service)| wanted(service, &slices(name), "one"))
            .collect()
    }

    /// For each frontend what each Service that wants it would have it lead to.
    pub(super) fn reachable(&self) -> HashMap<Socket, Vec<Reachable>> {
        let mut all: HashMap<_, Vec<_>> = HashMap::new();
        for port in self.wanted() {
            let listed = port.endpoints.iter().filter(|endpoint| endpoint.is_listed);
            let listed: Reachable = listed
                .map(|endpoint| (endpoint.addr, endpoint.port))
                .collect();
            for at in port.frontends {
                all.entry(at).or_default().push(listed.clone());
            }
        }
        all
    }
}
