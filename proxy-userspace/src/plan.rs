//! The plan: from what is declared to what the tables should hold, without any I/O.
//!
//! [`Plan`] keeps what it asked for so far. It takes changes of the model and answers with the
//! operations that lead from one to the other, in an order in which the tables are right after
//! every single one:
//!
//! 1. source ranges that are new, records of new endpoints and of those that come into a set, the
//!    way back from them, bits of the address bitmaps,
//! 2. the changed sets, each written beside the old one,
//! 3. the frontends, each switched to its new sets in one step,
//! 4. the records of endpoints that have left a set; of those that serve no more with the
//!    generation raised: a UDP flow that remembers an older one draws again,
//! 5. the end of source ranges.
//!
//! Slots and regions that became free rest for [`GRACE`], counted from when the operations were
//! carried out ([`Plan::applied`]). Only Services that changed are looked at.

mod account;
mod bits;
mod claims;
mod detector;
mod diff;
mod drawn;
mod family;
mod frontends;
mod ids;
mod notice;
mod op;
mod policy;
mod ports;
mod reverse;
mod sets;
mod snapshot;
mod sources;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod view;
mod wanted;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use proxy_common::abi::{Detector, capacity};

pub use account::{Account, Claimed, EndpointAccount, PortAccount};
pub use drawn::{DrawnSet, Left, PortSets};
pub use notice::Notice;
pub use op::{Bitmap, Op, Record, Socket};
pub use policy::Standing;
pub use snapshot::{Floors, Snapshot};
pub use view::{Condition, EndpointView, FrontendView, PortView, ServiceView};
pub use wanted::{FrontendKind, List};

use crate::config::Config;
use crate::model::{
    Change, EndpointSlice, Family, IpNet, Node, Object, ObjectKey, ObjectName, Service,
};
use policy::Policy;
use ports::Ports;
use wanted::Wanted;

/// How long what became free is left alone: no packet that is being handled lasts that long.
pub const GRACE: Duration = Duration::from_secs(2);

/// Most endpoints of a service port.
pub const MAX_ENDPOINTS: usize = 65_535;

/// How much the tables hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Frontends of each family.
    pub frontends: u32,
    /// Endpoint slots of each family.
    pub endpoints: u32,
    /// Elements of the set array, which both families share.
    pub set_slots: u32,
    /// Endpoints of each family whose frontends are kept with them.
    pub reverse: u32,
    /// Source ranges of each family.
    pub sources: u32,
}

impl Limits {
    /// Room for so many frontends and endpoints of each family. A changed set is written beside
    /// the old one, which takes twice the slots. The way back is kept for a quarter of very many
    /// endpoints: it is the largest of the tables and one can do without it.
    pub fn new(frontends: u32, endpoints: u32) -> Self {
        Self {
            frontends,
            endpoints,
            set_slots: endpoints.saturating_mul(2),
            reverse: endpoints.min(capacity::FRONTENDS.max(endpoints / 4)),
            sources: capacity::SOURCES,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(capacity::FRONTENDS, capacity::ENDPOINTS)
    }
}

/// What a change comes to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Operations, to be carried out in this order.
    pub ops: Vec<Op>,
    /// What is new to say about a Service.
    pub notices: Vec<(ObjectName, Notice)>,
    /// How many service ports of a former run were given up.
    pub retired: usize,
    /// Sets that nobody begins to draw from once that is done.
    pub left: Vec<Left>,
}

/// How much is planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Services with at least one frontend.
    pub services: usize,
    /// Frontends.
    pub frontends: usize,
    /// Endpoints, counted once for each service port.
    pub endpoints: usize,
}

/// How much of the tables is in use, of IPv4 and IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Frontends.
    pub frontends: [usize; 2],
    /// Endpoints that have a slot.
    pub endpoints: [usize; 2],
}

/// The declared state and the tables planned for it.
#[derive(Debug)]
pub struct Plan {
    policy: Policy,

    entries: HashMap<ObjectName, Entry>,
    slices: HashMap<ObjectName, Arc<EndpointSlice>>,
    ports: Ports,
    /// Services that may be better served once something became free.
    waiting: BTreeSet<ObjectName>,
}

/// What is known under the name of one Service. Slices may come before it and stay after it.
#[derive(Debug, Default)]
struct Entry {
    service: Option<Arc<Service>>,
    slices: Vec<Arc<EndpointSlice>>,
    notices: Vec<Notice>,
}

impl Plan {
    /// An empty plan for the node of this name, with all that can be configured as it is by
    /// default.
    pub fn new(node: &str, limits: Limits) -> Self {
        Self {
            policy: Policy::new(node, Config::default()),
            entries: HashMap::new(),
            slices: HashMap::new(),
            ports: Ports::new(limits),
            waiting: BTreeSet::new(),
        }
    }

    /// The same as it is configured; before the first change.
    #[must_use]
    pub fn with_config(mut self, config: Config) -> Self {
        self.policy = self.policy.with_config(config);
        self.ports.detect(self.policy.detector());
        self
    }

    /// Who is inside.
    pub const fn detector(&self) -> Detector {
        self.policy.detector()
    }

    /// Begins all numbers beyond those of former runs; before the first change.
    pub const fn begin_at(&mut self, floors: Floors) {
        self.ports.begin_at(floors);
    }

    /// Begins with what the tables hold; before the first change. The Services that want the
    /// frontends found there inherit their service ports with all numbers and slots.
    pub fn adopt(&mut self, snapshot: Snapshot) {
        self.ports.adopt(snapshot);
    }

    /// Takes changes after which all that is declared is known: what was adopted and nobody wants
    /// goes with them. Until then it stays, endpoints of Services that are known included.
    pub fn complete(
        &mut self,
        changes: impl IntoIterator<Item = Change>,
        now: Duration,
    ) -> Outcome {
        let mut dirty = self.ports.end_keeping();
        for change in changes {
            self.note(change, &mut dirty);
        }
        let mut outcome = self.replan(dirty, now);
        outcome.retired = self.ports.retire();
        outcome.ops.append(&mut self.ports.drain());
        outcome.left.append(&mut self.ports.take_left());
        outcome
    }

    /// Whether something was adopted that nobody has wanted so far.
    pub fn has_former(&self) -> bool {
        self.ports.has_former()
    }

    /// Numbers of service ports from here on are unused.
    pub const fn next_number(&self) -> u32 {
        self.ports.next_number()
    }

    /// Takes changes; `now` is any clock that does not go back.
    pub fn update(&mut self, changes: impl IntoIterator<Item = Change>, now: Duration) -> Outcome {
        let mut dirty = BTreeSet::new();
        for change in changes {
            self.note(change, &mut dirty);
        }
        self.replan(dirty, now)
    }

    /// Whether something is waiting for room; then [`Self::retry`] is worth trying after
    /// [`GRACE`].
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Looks again at the Services that found no room.
    pub fn retry(&mut self, now: Duration) -> Outcome {
        let dirty = std::mem::take(&mut self.waiting);
        self.replan(dirty, now)
    }

    /// Notes that the tables follow all operations so far.
    pub fn applied(&mut self, now: Duration) {
        self.ports.applied(now);
    }

    /// The operation that is right today about the subject of `op`: what is left to do where that
    /// one failed.
    pub fn current(&self, op: &Op) -> Option<Op> {
        self.ports.current(op)
    }

    /// How much is planned.
    pub fn summary(&self) -> Summary {
        self.ports.summary()
    }

    /// How much of the tables is in use.
    pub fn usage(&self) -> Usage {
        self.ports.usage()
    }

    /// The Services that `is_wanted` picks, with what is planned for them, in order of their names.
    pub fn view(&self, is_wanted: impl Fn(&ObjectName) -> bool) -> Vec<ServiceView> {
        let known = self.entries.iter().filter(|(name, _)| is_wanted(name));
        let mut all: Vec<_> = known
            .filter_map(|(_, entry)| {
                let service = entry.service.as_ref()?;
                let notices = entry.notices.iter().map(ToString::to_string).collect();
                let ports = view::ports(service, &entry.slices, &self.ports, self.policy.node());
                Some(ServiceView {
                    name: service.name.clone(),
                    ports,
                    notices,
                })
            })
            .collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// The sets of all Services, in order of their names.
    pub fn sets(&self) -> Vec<PortSets> {
        drawn::port_sets(&self.ports)
    }

    /// All Services that are declared, in no order.
    pub fn services(&self) -> impl Iterator<Item = &Arc<Service>> {
        let entries = self.entries.values();
        entries.filter_map(|entry| entry.service.as_ref())
    }

    /// What is configured.
    pub const fn config(&self) -> &Config {
        self.policy.config()
    }

    /// Name of this node.
    pub const fn node(&self) -> &Arc<str> {
        self.policy.node()
    }

    /// The zone of this node.
    pub const fn zone(&self) -> Option<&Arc<str>> {
        self.policy.facts().zone.as_ref()
    }

    /// The ranges of this node's pods, as its Node has them.
    pub fn pod_cidrs(&self) -> &[IpNet] {
        &self.policy.facts().pod_cidrs
    }

    /// The addresses of this node's interfaces.
    pub const fn own_addresses(&self) -> &Arc<BTreeSet<IpAddr>> {
        &self.policy.facts().own
    }

    /// Where node ports of a family are served on this node.
    pub fn node_port_addresses(&self, family: Family) -> &[IpAddr] {
        self.policy.node_port_addresses(family)
    }

    /// Addresses of the endpoints that run on this node.
    pub fn local_endpoints(&self) -> impl Iterator<Item = IpAddr> {
        let node = self.policy.node();
        let endpoints = self.slices.values().flat_map(|slice| &slice.endpoints);
        let local = endpoints.filter(move |own| own.node.as_ref() == Some(node));
        local.map(|own| own.address)
    }

    /// What is declared and not served, or not served in full.
    pub fn notices(&self) -> impl Iterator<Item = (&ObjectName, &Notice)> {
        let all = self.entries.iter();
        all.flat_map(|(name, entry)| entry.notices.iter().map(move |notice| (name, notice)))
    }

    fn note(&mut self, change: Change, dirty: &mut BTreeSet<ObjectName>) {
        match change {
            Change::Set(Object::Service(service)) => {
                dirty.insert(service.name.clone());
                let entry = self.entries.entry(service.name.clone()).or_default();
                entry.service = Some(service);
            }
            Change::Gone(ObjectKey::Service(name)) => {
                if let Some(entry) = self.entries.get_mut(&name) {
                    entry.service = None;
                    dirty.insert(name);
                }
            }
            Change::Set(Object::Slice(slice)) => {
                self.forget_slice(&slice.name, dirty);
                dirty.insert(slice.service.clone());
                let entry = self.entries.entry(slice.service.clone()).or_default();
                entry.slices.push(Arc::clone(&slice));
                self.slices.insert(slice.name.clone(), slice);
            }
            Change::Gone(ObjectKey::Slice(name)) => self.forget_slice(&name, dirty),
            Change::Set(Object::Node(node)) if node.name == *self.policy.node() => {
                self.note_node(Some(&node), dirty);
            }
            Change::Gone(ObjectKey::Node(name)) if name == *self.policy.node() => {
                self.note_node(None, dirty);
            }
            Change::Addresses(own) => {
                let moved = self.policy.follow_addresses(own);
                let services = self.entries.iter();
                let concerned = services.filter(|(_, entry)| {
                    let service = entry.service.as_ref();
                    service.is_some_and(|service| moved.concerns(service))
                });
                dirty.extend(concerned.map(|(name, _)| name.clone()));
            }
            Change::Set(Object::Node(_) | Object::ServiceCidr(_))
            | Change::Gone(ObjectKey::Node(_) | ObjectKey::ServiceCidr(_)) => {}
        }
    }

    /// Takes in this node's Node object. Most changes of it are the kubelet's, and of no concern
    /// here; any other may concern every Service.
    fn note_node(&mut self, node: Option<&Node>, dirty: &mut BTreeSet<ObjectName>) {
        if self.policy.follow_node(node) {
            self.ports.detect(self.policy.detector());
            dirty.extend(self.entries.keys().cloned());
        }
    }

    fn forget_slice(&mut self, name: &ObjectName, dirty: &mut BTreeSet<ObjectName>) {
        let Some(slice) = self.slices.remove(name) else {
            return;
        };
        if let Some(entry) = self.entries.get_mut(&slice.service) {
            entry.slices.retain(|other| other.name != *name);
            dirty.insert(slice.service.clone());
        }
    }

    fn replan(&mut self, dirty: BTreeSet<ObjectName>, now: Duration) -> Outcome {
        let (entries, policy) = (&self.entries, &self.policy);
        let of_service = |name: &ObjectName| of_service(entries.get(name), policy);
        let created = |name: &ObjectName| entries.get(name)?.service.as_ref()?.created;
        let notices = self.ports.replan(dirty, of_service, created, now);
        let mut outcome = Outcome::default();
        for (name, notices) in notices {
            self.report(&name, notices, &mut outcome);
        }
        outcome.ops = self.ports.drain();
        outcome.left = self.ports.take_left();
        outcome
    }

    /// Passes on what was not said before about a Service, and forgets the entry if nothing is
    /// known under its name any more.
    fn report(&mut self, name: &ObjectName, mut notices: Vec<Notice>, outcome: &mut Outcome) {
        if notices.iter().any(Notice::is_passing) {
            self.waiting.insert(name.clone());
        } else {
            self.waiting.remove(name);
        }
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        if let Some(service) = &entry.service {
            let refused = self.policy.refused_external_ips(service);
            notices.extend(refused.map(|addr| Notice::ExternalIp { addr }));
        }
        for notice in &notices {
            if !entry.notices.contains(notice) {
                outcome.notices.push((name.clone(), notice.clone()));
            }
        }
        entry.notices = notices;
        if entry.service.is_none() && entry.slices.is_empty() {
            self.entries.remove(name);
        }
    }
}

/// What the Service of an entry should become.
fn of_service(entry: Option<&Entry>, policy: &Policy) -> Vec<Wanted> {
    let service = entry.and_then(|entry| entry.service.as_ref().map(|own| (own, entry)));
    service.map_or_else(Vec::new, |(service, entry)| {
        policy.wanted(service, &entry.slices)
    })
}
