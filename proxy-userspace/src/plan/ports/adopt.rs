//! Service ports of a former run, known by what the tables hold: they have numbers, frontends and
//! endpoints, but no names. The Service that wants one of their frontends inherits them; what
//! nobody wants is retired once all that is declared is known.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use proxy_common::abi::{EndpointFlags, Frontend, Slot};
use proxy_common::net::Proto;

use super::super::desired::{PortKey, Wanted, WantedEndpoint};
use super::super::diff::Held;
use super::super::op::Socket;
use super::super::sets::Region;
use super::super::snapshot::{Floors, Snapshot};
use super::{Port, Ports, listed};
use crate::model::{Family, ObjectName, Protocol};

/// What is left of a former run.
#[derive(Debug, Default)]
pub(super) struct Former {
    /// Service ports that nobody has inherited.
    ports: BTreeSet<u32>,
    /// Endpoints of service ports, inherited or not, that nothing has declared so far.
    endpoints: HashMap<u32, HashSet<(IpAddr, u16)>>,
    /// Slots in use that no service port with a frontend owns: an update was cut short.
    orphans: Vec<Held>,
}

impl Ports {
    pub(in super::super) const fn begin_at(&mut self, floors: Floors) {
        self.numbers.skip_to(floors.service);
        self.slots.v4.begin_at(floors.generation);
        self.slots.v6.begin_at(floors.generation);
    }

    /// Begins with what the tables hold.
    pub(in super::super) fn adopt(&mut self, snapshot: Snapshot) {
        self.numbers.skip_to(snapshot.next_service());
        for family in [Family::V4, Family::V6] {
            let own = snapshot
                .records
                .iter()
                .filter(|(_, record)| Family::of(record.addr) == family);
            self.slots.of_mut(family).adopt(own.copied());
        }
        let mut held: HashMap<u32, Vec<Held>> = HashMap::new();
        for (slot, record) in &snapshot.records {
            if record.flags.has(EndpointFlags::HELD) {
                held.entry(record.service).or_default().push(Held {
                    addr: record.addr,
                    port: record.port,
                    slot: *slot,
                    flags: record.flags,
                });
            }
        }
        let mut ports: HashMap<u32, Vec<(Socket, Frontend)>> = HashMap::new();
        for (at, value) in snapshot.frontends {
            self.frontends.adopt(at, value);
            ports.entry(value.service).or_default().push((at, value));
        }
        for (number, frontends) in ports {
            let endpoints = held.remove(&number).unwrap_or_default();
            self.adopt_port(number, &frontends, endpoints, &snapshot.sets);
        }
        self.former.orphans.extend(held.into_values().flatten());
        self.frontend_bits.adopt(snapshot.frontend_bits);
        self.endpoint_bits.adopt(snapshot.endpoint_bits);
        // The update that was cut short may have written an endpoint and not the way to it.
        for port in self.by_number.values() {
            for at in &port.frontends {
                self.frontend_bits.set(at.addr);
            }
            for held in &port.endpoints {
                self.endpoint_bits
                    .set_socket(port.key.socket(held.addr, held.port));
            }
        }
        self.adopt_reverse(snapshot.reverse);
    }

    fn adopt_port(
        &mut self,
        number: u32,
        frontends: &[(Socket, Frontend)],
        mut endpoints: Vec<Held>,
        sets: &[Slot],
    ) {
        let Some((first, value)) = frontends.first() else {
            return;
        };
        let region = Region {
            base: value.inside.base(),
            len: value.inside.count(),
        };
        let mut is_torn = !self.regions.reserve(region);
        for (_, other) in frontends.iter().filter(|(_, other)| other != value) {
            // Some were switched already.
            is_torn = true;
            let old = Region {
                base: other.inside.base(),
                len: other.inside.count(),
            };
            if self.regions.reserve(old) {
                self.regions.give_up(old);
            }
        }
        endpoints.retain(|held| Family::of(held.addr) == first.family());
        endpoints.sort_unstable_by_key(|held| (held.addr, held.port, held.slot));
        let mut at = None;
        let (endpoints, twice): (Vec<_>, _) = endpoints
            .into_iter()
            .partition(|held| at.replace((held.addr, held.port)) != Some((held.addr, held.port)));
        self.former.orphans.extend::<Vec<_>>(twice);
        let window = region.base as usize..(region.base as usize + region.len as usize);
        let slots = sets.get(window).unwrap_or_default();
        let is_listed = slots.iter().all(|slot| slot.service == number)
            && slots
                .iter()
                .map(|slot| slot.endpoint)
                .eq(listed(&endpoints));
        let port = Port {
            key: PortKey {
                name: "".into(),
                protocol: protocol(first.proto),
                family: first.family(),
            },
            frontends: frontends.iter().map(|(at, _)| *at).collect(),
            endpoints,
            region,
            is_torn: is_torn || !is_listed || slots.len() != region.len as usize,
        };
        let named = port.endpoints.iter().map(|held| (held.addr, held.port));
        self.former.endpoints.insert(number, named.collect());
        self.by_number.insert(number, port);
        self.former.ports.insert(number);
    }

    fn adopt_reverse(&mut self, table: Vec<(Socket, Vec<(IpAddr, u16)>)>) {
        let mut live: HashMap<Socket, Vec<_>> = HashMap::new();
        for port in self.by_number.values() {
            for held in &port.endpoints {
                let doors = live
                    .entry(port.key.socket(held.addr, held.port))
                    .or_default();
                doors.extend(port.frontends.iter().map(|at| (at.addr, at.port)));
            }
        }
        let (table4, table6) = table
            .into_iter()
            .partition(|(at, _)| at.family() == Family::V4);
        let (live4, live6) = live
            .into_iter()
            .partition(|(at, _)| at.family() == Family::V4);
        self.reverse.v4.adopt(table4, live4);
        self.reverse.v6.adopt(table6, live6);
    }

    /// Has a service port, which has a number or not yet, take over the former owner of a
    /// frontend, or the frontend alone. Returns its number.
    pub(super) fn inherit(
        &mut self,
        name: &ObjectName,
        key: &PortKey,
        at: Socket,
        number: Option<u32>,
    ) -> Option<u32> {
        let owner = self.frontends.owner(at);
        let Some(owner) = owner.filter(|owner| self.former.ports.contains(owner)) else {
            return number;
        };
        let port = self.by_number.get_mut(&owner)?;
        if number.is_some() {
            let mut others = port.frontends.clone();
            others.retain(|other| *other != at);
            // Nobody was refused a frontend of a former run.
            self.release_frontends(owner, &others, &mut BTreeSet::new());
            return number;
        }
        port.key = key.clone();
        for at in &port.frontends {
            self.frontends.rename(*at, name);
        }
        self.former.ports.remove(&owner);
        Some(owner)
    }

    /// Has a service port keep those endpoints of the former run that nothing has declared so far:
    /// what declares them may be what cannot be used.
    pub(super) fn keep_former(&mut self, number: u32, wanted: &mut Wanted) {
        let Some(undeclared) = self.former.endpoints.get_mut(&number) else {
            return;
        };
        let able = wanted.endpoints.iter().map(|own| (own.addr, own.port));
        for at in able.chain(wanted.idle.iter().copied()) {
            undeclared.remove(&at);
        }
        let held = self.by_number.get(&number).into_iter();
        let kept = held
            .flat_map(|port| &port.endpoints)
            .filter(|held| undeclared.contains(&(held.addr, held.port)))
            .map(|held| WantedEndpoint {
                addr: held.addr,
                port: held.port,
                is_local: held.flags.has(EndpointFlags::LOCAL),
                is_listed: held.is_listed(),
            });
        wanted.endpoints.extend(kept);
        let by_address = |own: &WantedEndpoint| (own.addr, own.port);
        wanted.endpoints.sort_unstable_by_key(by_address);
    }

    /// Keeps no endpoint any more for being of the former run; returns the Services that have some.
    pub(in super::super) fn end_keeping(&mut self) -> BTreeSet<ObjectName> {
        let kept = std::mem::take(&mut self.former.endpoints);
        let has_some = |number| kept.get(number).is_some_and(|all| !all.is_empty());
        let of_services = self.by_service.iter();
        of_services
            .filter(|(_, own)| own.values().any(has_some))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Gives up what nobody has inherited; returns how many service ports that were.
    pub(in super::super) fn retire(&mut self) -> usize {
        let Former { ports, orphans, .. } = std::mem::take(&mut self.former);
        for number in &ports {
            self.release_frontends(*number, &[], &mut BTreeSet::new());
            if let Some(port) = self.by_number.remove(number) {
                self.give_up(&port.endpoints, &port);
                self.regions.give_up(port.region);
            }
        }
        for held in orphans {
            self.give_up_slot(Family::of(held.addr), held.slot);
        }
        ports.len()
    }

    /// The number that the next service port will get.
    pub(in super::super) const fn next_number(&self) -> u32 {
        self.numbers.next()
    }

    /// Whether something of a former run is left that nobody has inherited.
    pub(in super::super) fn has_former(&self) -> bool {
        let Former {
            ports,
            endpoints,
            orphans,
        } = &self.former;
        !ports.is_empty() || !orphans.is_empty() || endpoints.values().any(|all| !all.is_empty())
    }
}

const fn protocol(proto: Proto) -> Protocol {
    match proto {
        Proto::UDP => Protocol::Udp,
        _ => Protocol::Tcp,
    }
}
