//! Service ports: their numbers, endpoints and sets, and the operations that change them.

mod adopt;
mod doors;
mod endpoints;
mod windows;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use proxy_common::abi::{Detector, Frontend};
use proxy_common::net::Proto;

use super::bits::Bits;
use super::claims::{Claim, Claims};
use super::detector::Detection;
use super::diff::Held;
use super::drawn::{Left, PortSets};
use super::family::PerFamily;
use super::frontends::Frontends;
use super::ids::{Numbers, Slots};
use super::op::{Bitmap, Op, Socket};
use super::reverse::Reverse;
use super::sets::{Region, Regions};
use super::sources::Sources;
use super::wanted::{PortKey, Wanted, WantedFrontend};
use super::{Limits, Notice, Summary, Usage};
use crate::model::{Family, ObjectName};
use windows::{Windows, slots};

/// All service ports and what they share.
#[derive(Debug)]
pub(super) struct Ports {
    limits: Limits,
    numbers: Numbers,
    by_service: HashMap<ObjectName, HashMap<PortKey, u32>>,
    by_number: HashMap<u32, Port>,
    claims: Claims,
    frontends: Frontends,
    slots: PerFamily<Slots>,
    reverse: PerFamily<Reverse>,
    sources: PerFamily<Sources>,
    regions: Regions,
    frontend_bits: Bits,
    endpoint_bits: Bits,
    detection: Detection,
    steps: Steps,
    left: Vec<Left>,
    former: adopt::Former,
}

/// One service port that has a frontend.
#[derive(Debug)]
struct Port {
    key: PortKey,
    frontends: Vec<WantedFrontend>,
    /// In order of address and port.
    endpoints: Vec<Held>,
    affinity_timeout: u32,
    windows: Windows,
    /// Where its frontends of a former run may lead as well.
    strays: Vec<Region>,
}

/// Operations that are still to be put in order.
#[derive(Debug, Default)]
struct Steps {
    /// Endpoints that a set will list.
    records: Vec<Op>,
    sets: Vec<Op>,
    /// What no frontend needs any more: endpoints that no set lists, clients that were sticky.
    farewells: Vec<Op>,
}

impl Ports {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            numbers: Numbers::new(),
            by_service: HashMap::new(),
            by_number: HashMap::new(),
            claims: Claims::default(),
            frontends: Frontends::new(limits.frontends),
            slots: PerFamily::new(|| Slots::new(limits.endpoints)),
            reverse: PerFamily::new(|| Reverse::new(limits.reverse)),
            sources: PerFamily::new(|| Sources::new(limits.sources)),
            regions: Regions::new(limits.set_slots),
            frontend_bits: Bits::new(Bitmap::Frontends),
            endpoint_bits: Bits::new(Bitmap::Endpoints),
            detection: Detection::default(),
            steps: Steps::default(),
            left: Vec::new(),
            former: adopt::Former::default(),
        }
    }

    /// Makes Services anew, and those that gain or lose a frontend by that. Returns what is to be
    /// said about each of them.
    ///
    /// What several of them want goes to the one whose claim comes first: a node that starts and
    /// sees them all at once comes to the same as one that saw them come.
    pub(super) fn replan(
        &mut self,
        dirty: BTreeSet<ObjectName>,
        wanted: impl Fn(&ObjectName) -> Vec<Wanted>,
        created: impl Fn(&ObjectName) -> Option<i64>,
        now: Duration,
    ) -> BTreeMap<ObjectName, Vec<Notice>> {
        let mut all: BTreeMap<_, _> = BTreeMap::new();
        for name in dirty {
            let wanted = wanted(&name);
            all.insert(name, wanted);
        }
        self.inherit_all(&all, &created);

        // All claims are known before any frontend changes hands, and everything is released before
        // anything is granted. Those whose claims are in another order now are looked at as well.
        let mut concerned = BTreeSet::new();
        for (name, wanted) in &mut all {
            let mut claims = Vec::new();
            for wanted in wanted {
                self.keep_former(name, wanted);
                claims.append(&mut Claim::all(name, created(name), wanted));
            }
            self.claims.set(name, claims, &mut concerned);
        }
        for name in concerned {
            if let Entry::Vacant(entry) = all.entry(name) {
                let mut wanted = wanted(entry.key());
                for wanted in &mut wanted {
                    self.keep_former(entry.key(), wanted);
                }
                entry.insert(wanted);
            }
        }
        for (name, wanted) in &all {
            self.release(name, wanted);
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by_cached_key(|(name, _)| created(name).unwrap_or(i64::MAX));
        let program = |(name, wanted)| {
            let notices = self.program(&name, wanted, now);
            (name, notices)
        };
        all.into_iter().map(program).collect()
    }

    /// Says who is inside.
    pub(super) const fn detect(&mut self, value: Detector) {
        self.detection.set(value);
    }

    /// Makes the service ports of a Service as wanted, as far as there is room.
    pub(super) fn program(
        &mut self,
        name: &ObjectName,
        wanted: Vec<Wanted>,
        now: Duration,
    ) -> Vec<Notice> {
        let mut notices = Vec::new();
        for mut wanted in wanted {
            let (number, frontends) = self.claim(name, &wanted, &mut notices);
            match number {
                Some(number) if !frontends.is_empty() => {
                    self.set_frontends(number, &wanted.key, frontends);
                    self.set_endpoints(number, &mut wanted, now, &mut notices);
                    self.set_sources(number, &wanted, &mut notices);
                    self.publish(number);
                }
                _ => self.end(name, &wanted.key),
            }
        }
        notices
    }

    /// All operations since the last call, in their safe order.
    pub(super) fn drain(&mut self) -> Vec<Op> {
        let steps = std::mem::take(&mut self.steps);
        let (mut sources, mut sources_gone) = self.sources.v4.drain();
        let (mut of_v6, mut gone_of_v6) = self.sources.v6.drain();
        sources.append(&mut of_v6);
        sources_gone.append(&mut gone_of_v6);

        let mut ops: Vec<_> = self.detection.drain().into_iter().collect();
        ops.extend(sources);
        ops.extend(steps.records);
        ops.append(&mut self.reverse.v4.drain());
        ops.append(&mut self.reverse.v6.drain());
        ops.extend(self.frontend_bits.drain());
        ops.extend(self.endpoint_bits.drain());
        ops.extend(steps.sets);
        ops.append(&mut self.frontends.drain());
        ops.extend(steps.farewells);
        ops.extend(sources_gone);
        ops
    }

    /// The sets that were left since the last call.
    pub(super) fn take_left(&mut self) -> Vec<Left> {
        std::mem::take(&mut self.left)
    }

    /// The sets of the service ports that Services have.
    pub(super) fn sets(&self) -> impl Iterator<Item = PortSets> {
        let named = self.by_service.iter();
        let named =
            named.flat_map(|(name, own)| own.iter().map(move |(key, number)| (name, key, number)));
        named.filter_map(|(service, key, number)| {
            let port = self.by_number.get(number)?;
            Some(PortSets {
                service: service.clone(),
                name: Arc::clone(&key.name),
                protocol: key.proto.try_into().ok()?,
                family: key.family,
                number: *number,
                sets: port.windows.drawn(&port.endpoints),
            })
        })
    }

    pub(super) fn applied(&mut self, now: Duration) {
        self.regions.applied(now);
        self.slots.v4.applied(now);
        self.slots.v6.applied(now);
    }

    pub(super) fn current(&self, op: &Op) -> Option<Op> {
        match *op {
            // A count that was not reset is a wrong number on a screen; resetting it late would
            // make another one.
            Op::ResetPicks { .. } => None,
            Op::ForgetClients { service, .. } => {
                let port = self.by_number.get(&service);
                let is_sticky = port.is_some_and(|port| port.affinity_timeout != 0);
                (!is_sticky).then(|| op.clone())
            }
            Op::Endpoint { slot, record } => {
                let record = self.slots.of(Family::of(record.addr)).record(slot)?;
                Some(Op::Endpoint { slot, record })
            }
            Op::Reverse { endpoint, .. } | Op::ReverseGone { endpoint } => {
                Some(self.reverse.of(endpoint.family()).op(endpoint))
            }
            Op::Bits { bitmap, word, .. } => Some(match bitmap {
                Bitmap::Frontends => self.frontend_bits.op(word),
                Bitmap::Endpoints => self.endpoint_bits.op(word),
            }),
            // From whenever it is done on, all counts are draws from one set.
            Op::ResetDraws { base, .. } => {
                let mut windows = self.by_number.values().map(|port| &port.windows);
                let is_used = windows.any(|windows| windows.at(base).is_some());
                is_used.then(|| op.clone())
            }
            Op::Set { base, .. } => {
                let slots = self.by_number.iter().find_map(|(number, port)| {
                    let list = port.windows.at(base)?;
                    Some(slots(&port.endpoints, list, *number))
                })?;
                Some(Op::Set { base, slots })
            }
            Op::Source { service, range } | Op::SourceGone { service, range } => {
                let family = Family::of(range.addr());
                Some(self.sources.of(family).op(service, range))
            }
            Op::Detector { .. } => self.detection.op(),
            Op::Frontend { at, .. } | Op::FrontendGone { at } => Some(self.frontends.op(at)),
        }
    }

    /// Number, frontends and endpoints of a service port, if it is planned.
    pub(super) fn planned(
        &self,
        name: &ObjectName,
        key: &PortKey,
    ) -> Option<(u32, &[WantedFrontend], &[Held])> {
        let number = *self.by_service.get(name)?.get(key)?;
        let port = self.by_number.get(&number)?;
        Some((number, &port.frontends, &port.endpoints))
    }

    /// All claims of a frontend, the first of which has it.
    pub(super) fn claims(&self, at: Socket) -> &[Claim] {
        self.claims.at(at)
    }

    pub(super) fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for port in self.by_number.values() {
            let family = usize::from(port.key.family == Family::V6);
            let counts = [
                (&mut usage.frontends, port.frontends.len()),
                (&mut usage.endpoints, port.endpoints.len()),
            ];
            for (sums, count) in counts {
                if let Some(sum) = sums.get_mut(family) {
                    *sum += count;
                }
            }
        }
        usage
    }

    pub(super) fn summary(&self) -> Summary {
        let ports = self.by_number.values();
        Summary {
            services: self.by_service.len(),
            // A whole address leads nowhere.
            frontends: ports
                .clone()
                .filter(|port| port.key.proto != Proto(0))
                .map(|port| port.frontends.len())
                .sum(),
            endpoints: ports
                .flat_map(|port| &port.endpoints)
                .filter(|held| held.is_listed())
                .count(),
        }
    }
}

impl Port {
    const fn new(key: PortKey) -> Self {
        Self {
            key,
            frontends: Vec::new(),
            endpoints: Vec::new(),
            affinity_timeout: 0,
            windows: Windows::EMPTY,
            strays: Vec::new(),
        }
    }

    /// What one of its frontends says.
    fn value(&self, number: u32, frontend: &WantedFrontend) -> Frontend {
        Frontend {
            inside: self.windows.set(frontend.inside),
            outside: self.windows.set(frontend.outside),
            service: number,
            flags: frontend.flags,
            affinity_timeout: self.affinity_timeout,
            reserved: [0; 5],
        }
    }
}
