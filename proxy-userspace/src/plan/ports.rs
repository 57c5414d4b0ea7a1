//! Service ports: their numbers, endpoints and sets, and the operations that change them.

mod adopt;
mod endpoints;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use proxy_common::abi::{EndpointSet, Frontend, FrontendFlags, Slot};

use super::bits::Bits;
use super::desired::{PortKey, Wanted};
use super::diff::Held;
use super::family::PerFamily;
use super::frontends::{Frontends, Refusal};
use super::ids::{Numbers, Slots};
use super::op::{Bitmap, Op, Socket};
use super::reverse::Reverse;
use super::sets::{Region, Regions};
use super::{Limits, Notice, Summary, Usage};
use crate::model::{Family, ObjectName, Protocol};

/// All service ports and what they share.
#[derive(Debug)]
pub(super) struct Ports {
    limits: Limits,
    numbers: Numbers,
    by_service: HashMap<ObjectName, HashMap<PortKey, u32>>,
    by_number: HashMap<u32, Port>,
    frontends: Frontends,
    slots: PerFamily<Slots>,
    reverse: PerFamily<Reverse>,
    regions: Regions,
    frontend_bits: Bits,
    endpoint_bits: Bits,
    steps: Steps,
    former: adopt::Former,
}

/// One service port that has a frontend.
#[derive(Debug)]
struct Port {
    key: PortKey,
    frontends: Vec<Socket>,
    /// In order of address and port.
    endpoints: Vec<Held>,
    region: Region,
    /// Whether the set in the tables may be another than its endpoints make: it was found so.
    is_torn: bool,
}

/// Operations that are still to be put in order.
#[derive(Debug, Default)]
struct Steps {
    /// Endpoints that a set will list.
    records: Vec<Op>,
    sets: Vec<Op>,
    /// Endpoints that no set lists any more.
    farewells: Vec<Op>,
}

impl Ports {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            numbers: Numbers::new(),
            by_service: HashMap::new(),
            by_number: HashMap::new(),
            frontends: Frontends::new(limits.frontends),
            slots: PerFamily::new(|| Slots::new(limits.endpoints)),
            reverse: PerFamily::new(|| Reverse::new(limits.reverse)),
            regions: Regions::new(limits.set_slots),
            frontend_bits: Bits::new(Bitmap::Frontends),
            endpoint_bits: Bits::new(Bitmap::Endpoints),
            steps: Steps::default(),
            former: adopt::Former::default(),
        }
    }

    /// Gives up the ports and frontends of a Service that are not wanted any more; returns the
    /// Services that waited for one of them.
    pub(super) fn release(&mut self, name: &ObjectName, wanted: &[Wanted]) -> BTreeSet<ObjectName> {
        let mut heirs = BTreeSet::new();
        let own: Vec<_> = self
            .by_service
            .get(name)
            .into_iter()
            .flatten()
            .map(|(key, number)| (key.clone(), *number))
            .collect();
        for (key, number) in own {
            match wanted.iter().find(|wanted| wanted.key == key) {
                None => self.end(name, &key, &mut heirs),
                // UDP flows are held by the generation of their endpoint alone. Those that lead
                // here must not outlive the frontend, which may be another's tomorrow.
                Some(wanted)
                    if key.protocol == Protocol::Udp && self.loses(number, &wanted.frontends) =>
                {
                    self.end(name, &key, &mut heirs);
                }
                Some(wanted) => self.release_frontends(number, &wanted.frontends, &mut heirs),
            }
        }
        heirs
    }

    /// Whether a service port has frontends other than these.
    fn loses(&self, number: u32, wanted: &[Socket]) -> bool {
        let port = self.by_number.get(&number);
        port.is_some_and(|port| port.frontends.iter().any(|at| !wanted.contains(at)))
    }

    fn release_frontends(
        &mut self,
        number: u32,
        wanted: &[Socket],
        heirs: &mut BTreeSet<ObjectName>,
    ) {
        let Some(port) = self.by_number.get_mut(&number) else {
            return;
        };
        let (kept, gone): (_, Vec<_>) = port.frontends.iter().partition(|at| wanted.contains(at));
        port.frontends = kept;
        for at in gone {
            heirs.append(&mut self.frontends.release(at));
            let reverse = self.reverse.of_mut(port.key.family);
            for endpoint in &port.endpoints {
                reverse.remove(
                    port.key.socket(endpoint.addr, endpoint.port),
                    (at.addr, at.port),
                );
            }
        }
    }

    /// Ends a service port; its number is never used again.
    fn end(&mut self, name: &ObjectName, key: &PortKey, heirs: &mut BTreeSet<ObjectName>) {
        let Some(number) = self
            .by_service
            .get_mut(name)
            .and_then(|own| own.remove(key))
        else {
            return;
        };
        if self.by_service.get(name).is_some_and(HashMap::is_empty) {
            self.by_service.remove(name);
        }
        self.release_frontends(number, &[], heirs);
        if let Some(port) = self.by_number.remove(&number) {
            self.give_up(&port.endpoints, &port);
            self.regions.give_up(port.region);
        }
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
                    self.keep_former(number, &mut wanted);
                    self.set_endpoints(number, wanted.endpoints, now, &mut notices);
                }
                // Whoever waits for its frontends has been told, for there are none.
                _ => self.end(name, &wanted.key, &mut BTreeSet::new()),
            }
        }
        notices
    }

    /// The frontends that a service port can have, and its number, which is fresh if it is new.
    fn claim(
        &mut self,
        name: &ObjectName,
        wanted: &Wanted,
        notices: &mut Vec<Notice>,
    ) -> (Option<u32>, Vec<Socket>) {
        let own = self.by_service.get(name);
        let mut number = own.and_then(|own| own.get(&wanted.key)).copied();
        for &frontend in &wanted.frontends {
            number = self.inherit(name, &wanted.key, frontend, number);
        }
        if let Some(number) = number {
            self.release_frontends(number, &wanted.frontends, &mut BTreeSet::new());
        }
        let mut granted = Vec::with_capacity(wanted.frontends.len());
        for &frontend in &wanted.frontends {
            match self.frontends.refusal(frontend, number, name) {
                Some(Refusal::Taken(owner)) => {
                    notices.push(Notice::FrontendTaken { frontend, owner });
                    continue;
                }
                Some(Refusal::Full) => {
                    let capacity = self.limits.frontends;
                    notices.push(Notice::FrontendsFull { frontend, capacity });
                    continue;
                }
                None => {}
            }
            number = number.or_else(|| self.numbers.take());
            let Some(number) = number else {
                notices.push(Notice::NumbersEnded);
                break;
            };
            self.frontends.grant(frontend, number, name);
            granted.push(frontend);
        }
        if let Some(number) = number {
            let own = self.by_service.entry(name.clone()).or_default();
            own.insert(wanted.key.clone(), number);
        }
        (number, granted)
    }

    fn set_frontends(&mut self, number: u32, key: &PortKey, frontends: Vec<Socket>) {
        let port = self.by_number.entry(number).or_insert_with(|| Port {
            key: key.clone(),
            frontends: Vec::new(),
            endpoints: Vec::new(),
            region: Region { base: 0, len: 0 },
            is_torn: false,
        });
        let reverse = self.reverse.of_mut(key.family);
        for at in frontends.iter().filter(|at| !port.frontends.contains(at)) {
            self.frontend_bits.set(at.addr);
            for endpoint in &port.endpoints {
                reverse.add(key.socket(endpoint.addr, endpoint.port), (at.addr, at.port));
            }
        }
        port.frontends = frontends;
    }

    /// All operations since the last call, in their safe order.
    pub(super) fn drain(&mut self) -> Vec<Op> {
        let steps = std::mem::take(&mut self.steps);
        let mut ops = steps.records;
        ops.append(&mut self.reverse.v4.drain());
        ops.append(&mut self.reverse.v6.drain());
        ops.extend(self.frontend_bits.drain());
        ops.extend(self.endpoint_bits.drain());
        ops.extend(steps.sets);
        let ports = &self.by_number;
        ops.extend(
            self.frontends
                .drain(|number| ports.get(&number).map(|port| port.value(number))),
        );
        ops.extend(steps.farewells);
        ops
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
            Op::Set { base, .. } => {
                let owned = |port: &&Port| port.region.len > 0 && port.region.base == base;
                let (number, port) = self.by_number.iter().find(|(_, port)| owned(port))?;
                let slots = port.listed().map(|endpoint| Slot {
                    endpoint,
                    service: *number,
                });
                Some(Op::Set {
                    base,
                    slots: slots.collect(),
                })
            }
            Op::Frontend { at, .. } | Op::FrontendGone { at } => Some(self.frontends.op(at)),
        }
    }

    /// Number, frontends and endpoints of a service port, if it is planned.
    pub(super) fn planned(
        &self,
        name: &ObjectName,
        key: &PortKey,
    ) -> Option<(u32, &[Socket], &[Held])> {
        let number = *self.by_service.get(name)?.get(key)?;
        let port = self.by_number.get(&number)?;
        Some((number, &port.frontends, &port.endpoints))
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
        Summary {
            services: self.by_service.len(),
            frontends: self
                .by_number
                .values()
                .map(|port| port.frontends.len())
                .sum(),
            endpoints: self
                .by_number
                .values()
                .map(|port| port.region.len as usize)
                .sum(),
        }
    }
}

impl Port {
    /// The slots that its set lists.
    fn listed(&self) -> impl Iterator<Item = u32> {
        listed(&self.endpoints)
    }

    const fn value(&self, number: u32) -> Frontend {
        let set = EndpointSet::new(self.region.base, self.region.len);
        Frontend {
            inside: set,
            outside: set,
            service: number,
            flags: FrontendFlags::NONE,
            affinity_timeout: 0,
            reserved: [0; 5],
        }
    }
}

impl PortKey {
    fn socket(&self, addr: IpAddr, port: u16) -> Socket {
        Socket {
            addr,
            port,
            proto: self.protocol.into(),
        }
    }
}

/// The slots of those endpoints that a set lists.
fn listed(endpoints: &[Held]) -> impl Iterator<Item = u32> {
    let listed = endpoints.iter().filter(|held| held.is_listed());
    listed.map(|held| held.slot)
}
