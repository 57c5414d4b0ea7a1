//! Service ports: their numbers, endpoints and sets, and the operations that change them.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use proxy_common::abi::{EndpointSet, Frontend, FrontendFlags, Slot};

use super::bits::Bits;
use super::desired::{PortKey, Wanted, WantedEndpoint};
use super::diff::{Held, diff, flags};
use super::frontends::{Frontends, Refusal};
use super::ids::{Numbers, Slots, Taken};
use super::op::{Bitmap, Op, Socket};
use super::reverse::Reverse;
use super::sets::{Region, Regions};
use super::{Limits, MAX_ENDPOINTS, Notice, Summary};
use crate::model::{Family, ObjectName};

/// All service ports and what they share.
#[derive(Debug)]
pub(super) struct Ports {
    limits: Limits,
    numbers: Numbers,
    by_service: HashMap<ObjectName, HashMap<PortKey, u32>>,
    ports: HashMap<u32, Port>,
    frontends: Frontends,
    slots: PerFamily<Slots>,
    reverse: PerFamily<Reverse>,
    regions: Regions,
    frontend_bits: Bits,
    endpoint_bits: Bits,
    steps: Steps,
}

/// One service port that has a frontend.
#[derive(Debug)]
struct Port {
    key: PortKey,
    frontends: Vec<Socket>,
    /// In order of address and port.
    endpoints: Vec<Held>,
    region: Region,
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

#[derive(Debug)]
struct PerFamily<T> {
    v4: T,
    v6: T,
}

impl<T> PerFamily<T> {
    fn new(make: impl Fn() -> T) -> Self {
        Self {
            v4: make(),
            v6: make(),
        }
    }

    const fn of(&self, family: Family) -> &T {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    const fn of_mut(&mut self, family: Family) -> &mut T {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}

impl Ports {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            numbers: Numbers::new(),
            by_service: HashMap::new(),
            ports: HashMap::new(),
            frontends: Frontends::new(limits.frontends),
            slots: PerFamily::new(|| Slots::new(limits.endpoints)),
            reverse: PerFamily::new(|| Reverse::new(limits.reverse)),
            regions: Regions::new(limits.set_slots),
            frontend_bits: Bits::new(Bitmap::Frontends),
            endpoint_bits: Bits::new(Bitmap::Endpoints),
            steps: Steps::default(),
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
                Some(wanted) => self.release_frontends(number, &wanted.frontends, &mut heirs),
            }
        }
        heirs
    }

    fn release_frontends(
        &mut self,
        number: u32,
        wanted: &[Socket],
        heirs: &mut BTreeSet<ObjectName>,
    ) {
        let Some(port) = self.ports.get_mut(&number) else {
            return;
        };
        let (kept, gone) = port.frontends.iter().partition(|at| wanted.contains(at));
        port.frontends = kept;
        for at in Vec::<Socket>::from(gone) {
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
        if let Some(port) = self.ports.remove(&number) {
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
        for wanted in wanted {
            let (number, frontends) = self.claim(name, &wanted, &mut notices);
            match number {
                Some(number) if !frontends.is_empty() => {
                    self.set_frontends(number, &wanted.key, frontends);
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
        let port = self.ports.entry(number).or_insert_with(|| Port {
            key: key.clone(),
            frontends: Vec::new(),
            endpoints: Vec::new(),
            region: Region { base: 0, len: 0 },
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

    fn set_endpoints(
        &mut self,
        number: u32,
        mut wanted: Vec<WantedEndpoint>,
        now: Duration,
        notices: &mut Vec<Notice>,
    ) {
        let Some(mut port) = self.ports.remove(&number) else {
            return;
        };
        let surplus = limit_listed(&mut wanted);
        if surplus > 0 {
            notices.push(Notice::TooManyEndpoints {
                port: port.key.name.to_string(),
                protocol: port.key.protocol,
                family: port.key.family,
                missing: surplus,
            });
        }
        self.change_endpoints(number, &mut port, &wanted, now, notices);
        self.ports.insert(number, port);
    }

    fn change_endpoints(
        &mut self,
        number: u32,
        port: &mut Port,
        wanted: &[WantedEndpoint],
        now: Duration,
        notices: &mut Vec<Notice>,
    ) {
        let diff = diff(&port.endpoints, wanted);
        let taken = self.take_slots(number, port, &diff.new, now, notices);
        let kept = diff
            .kept
            .iter()
            .map(|&(held, flags)| Held { flags, ..held });
        let mut endpoints: Vec<_> = kept.chain(taken.iter().map(|&(held, _)| held)).collect();
        endpoints.sort_unstable_by_key(|endpoint| (endpoint.addr, endpoint.port));

        if !self.change_set(number, port, &endpoints, now) {
            notices.push(Notice::SetsFull {
                port: port.key.name.to_string(),
                protocol: port.key.protocol,
                family: port.key.family,
                len: listed(&endpoints).count(),
            });
            let slots = self.slots.of_mut(port.key.family);
            taken
                .into_iter()
                .for_each(|(_, taken)| slots.put_back(taken));
            return;
        }
        for (held, taken) in taken {
            self.welcome(port, held, taken);
        }
        for (held, flags) in diff.kept {
            self.mark(port.key.family, held, flags);
        }
        self.give_up(&diff.gone, port);
        port.endpoints = endpoints;
    }

    fn take_slots(
        &mut self,
        number: u32,
        port: &Port,
        new: &[WantedEndpoint],
        now: Duration,
        notices: &mut Vec<Notice>,
    ) -> Vec<(Held, Taken)> {
        let slots = self.slots.of_mut(port.key.family);
        let mut all = Vec::with_capacity(new.len());
        for endpoint in new {
            let (addr, flags) = (endpoint.addr, flags(endpoint));
            let Some(taken) = slots.take((number, addr, endpoint.port), flags, now) else {
                notices.push(Notice::EndpointsFull {
                    port: port.key.name.to_string(),
                    protocol: port.key.protocol,
                    family: port.key.family,
                    missing: new.len() - all.len(),
                    capacity: self.limits.endpoints,
                });
                break;
            };
            let held = Held {
                addr,
                port: endpoint.port,
                slot: taken.slot,
                flags,
            };
            all.push((held, taken));
        }
        all
    }

    /// Writes the set of these endpoints beside the old one, if it differs. Returns whether there
    /// was room.
    fn change_set(&mut self, number: u32, port: &mut Port, new: &[Held], now: Duration) -> bool {
        if listed(&port.endpoints).eq(listed(new)) {
            // A new frontend is changed already, an old one leads where it led.
            return true;
        }
        let slots: Vec<_> = listed(new)
            .map(|endpoint| Slot {
                endpoint,
                service: number,
            })
            .collect();
        let region = match u32::try_from(slots.len()) {
            Ok(0) => Region { base: 0, len: 0 },
            Ok(len) => match self.regions.take(len, now) {
                Some(region) => region,
                None => return false,
            },
            Err(_) => return false,
        };
        if !slots.is_empty() {
            let base = region.base;
            self.steps.sets.push(Op::Set { base, slots });
        }
        self.regions.give_up(port.region);
        port.region = region;
        for &at in &port.frontends {
            self.frontends.touch(at);
        }
        true
    }

    /// Writes the record of an endpoint that got a slot, and the ways to it.
    fn welcome(&mut self, port: &Port, held: Held, taken: Taken) {
        let family = port.key.family;
        let slot = held.slot;
        if taken.is_used {
            self.steps.records.push(Op::ResetPicks { family, slot });
        }
        if let Some(record) = self.slots.of(family).record(slot) {
            self.steps.records.push(Op::Endpoint { slot, record });
        }
        self.endpoint_bits.set(held.addr);
        let reverse = self.reverse.of_mut(family);
        for at in &port.frontends {
            reverse.add(port.key.socket(held.addr, held.port), (at.addr, at.port));
        }
    }

    /// Gives the record of an endpoint that stays the properties it should have.
    fn mark(&mut self, family: Family, held: Held, flags: proxy_common::abi::EndpointFlags) {
        if held.flags == flags {
            return;
        }
        let slot = held.slot;
        let Some(record) = self.slots.of_mut(family).mark(slot, flags) else {
            return;
        };
        let stays_listed = flags.has(proxy_common::abi::EndpointFlags::ALIVE);
        let steps = if stays_listed {
            &mut self.steps.records
        } else {
            &mut self.steps.farewells
        };
        steps.push(Op::Endpoint { slot, record });
    }

    /// Ends the use of these endpoints' slots.
    fn give_up(&mut self, gone: &[Held], port: &Port) {
        let slots = self.slots.of_mut(port.key.family);
        let reverse = self.reverse.of_mut(port.key.family);
        for held in gone {
            if let Some(record) = slots.give_up(held.slot) {
                let slot = held.slot;
                self.steps.farewells.push(Op::Endpoint { slot, record });
            }
            for at in &port.frontends {
                reverse.remove(port.key.socket(held.addr, held.port), (at.addr, at.port));
            }
        }
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
        let ports = &self.ports;
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
                let (number, port) = self.ports.iter().find(|(_, port)| owned(port))?;
                let slots = listed(&port.endpoints).map(|endpoint| Slot {
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

    pub(super) fn summary(&self) -> Summary {
        Summary {
            services: self.by_service.len(),
            frontends: self.ports.values().map(|port| port.frontends.len()).sum(),
            endpoints: self
                .ports
                .values()
                .map(|port| port.region.len as usize)
                .sum(),
        }
    }
}

impl Port {
    fn value(&self, number: u32) -> Frontend {
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

/// The slots that the set of these endpoints lists.
fn listed(endpoints: &[Held]) -> impl Iterator<Item = u32> {
    endpoints
        .iter()
        .filter(|held| held.is_listed())
        .map(|held| held.slot)
}

/// Keeps as many endpoints listed as a set may have; returns how many that leaves out.
fn limit_listed(wanted: &mut [WantedEndpoint]) -> usize {
    let listed = wanted.iter_mut().filter(|endpoint| endpoint.is_listed);
    let mut surplus = 0;
    for endpoint in listed.skip(MAX_ENDPOINTS) {
        endpoint.is_listed = false;
        surplus += 1;
    }
    surplus
}
