//! Service ports of a former run, known by what the tables hold: they have numbers, frontends and
//! endpoints, but no names. The Service that wants one of their frontends inherits them; what
//! nobody wants is retired once all that is declared is known.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use proxy_common::abi::{EndpointFlags, EndpointSet, Frontend, FrontendFlags, Slot};

use super::super::claims::Claim;
use super::super::diff::Held;
use super::super::op::Socket;
use super::super::reverse::{Door, doors};
use super::super::sets::Region;
use super::super::snapshot::{Floors, Snapshot};
use super::super::wanted::{FrontendKind, List, PortKey, Wanted, WantedEndpoint, WantedFrontend};
use super::windows::{LISTS, Windows, slots};
use super::{Port, Ports};
use crate::model::{Family, ObjectName};

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
        for (number, range) in snapshot.sources {
            let family = Family::of(range.addr());
            self.sources.of_mut(family).adopt(number, range);
        }
        self.detection.adopt(snapshot.detector);
        self.frontend_bits.adopt(snapshot.frontend_bits);
        self.endpoint_bits.adopt(snapshot.endpoint_bits);
        // The update that was cut short may have written an endpoint and not the way to it.
        for port in self.by_number.values() {
            for frontend in &port.frontends {
                self.frontend_bits.set(frontend.at.addr);
                if frontend.flags.has(FrontendFlags::OWN_ADDRESS) {
                    self.endpoint_bits.set_socket(frontend.at);
                }
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
        let Some((first, _)) = frontends.first() else {
            return;
        };
        endpoints.retain(|held| Family::of(held.addr) == first.family());
        endpoints.sort_unstable_by_key(|held| (held.addr, held.port, held.slot));
        let mut at = None;
        let (endpoints, twice): (Vec<_>, _) = endpoints
            .into_iter()
            .partition(|held| at.replace((held.addr, held.port)) != Some((held.addr, held.port)));
        self.former.orphans.extend::<Vec<_>>(twice);
        // Some frontends may have been switched and others not.
        let sets_of = |(_, value): &(_, Frontend)| [value.inside, value.outside];
        let found = frontends.iter().flat_map(sets_of).map(Region::from);
        let mut found: Vec<_> = found.collect::<BTreeSet<_>>().into_iter().collect();
        found.retain(|region| region.len > 0 && self.regions.reserve(*region));
        let mut windows = Windows::EMPTY;
        let mut strays = found.clone();
        for list in LISTS {
            let slots = slots(&endpoints, list, number);
            let is_here = |region: &&Region| {
                let end = region.base as usize + region.len as usize;
                sets.get(region.base as usize..end) == Some(&*slots)
            };
            if let Some(region) = found.iter().find(is_here) {
                windows.place(list, *region);
                strays.retain(|stray| stray != region);
            }
        }
        // Which lists they lead to is said when they are wanted; here it matters if to any.
        let list = |set: EndpointSet| match set.count() {
            0 => List::Nobody,
            _ => List::Cluster,
        };
        let timeouts = frontends.iter().map(|(_, value)| value.affinity_timeout);
        let affinity_timeout = timeouts.max().unwrap_or_default();
        let frontends = frontends.iter().map(|(at, value)| WantedFrontend {
            at: *at,
            // Not known, and of no account for what nobody claims.
            kind: FrontendKind::ClusterIp,
            flags: value.flags,
            inside: list(value.inside),
            outside: list(value.outside),
        });
        let port = Port {
            key: PortKey {
                name: "".into(),
                proto: first.proto,
                family: first.family(),
            },
            frontends: frontends.collect(),
            endpoints,
            affinity_timeout,
            windows,
            strays,
        };
        let named = port.endpoints.iter().map(|held| (held.addr, held.port));
        self.former.endpoints.insert(number, named.collect());
        self.by_number.insert(number, port);
        self.former.ports.insert(number);
    }

    fn adopt_reverse(&mut self, table: Vec<(Socket, Vec<Door>)>) {
        let mut live: HashMap<Socket, Vec<_>> = HashMap::new();
        for port in self.by_number.values() {
            for held in &port.endpoints {
                let own = live.entry(port.key.socket(held.addr, held.port));
                own.or_default().extend(doors(&port.frontends));
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

    /// Has these Services inherit what they want. Of several with one cluster IP the one whose claim
    /// comes first has it.
    pub(super) fn inherit_all(
        &mut self,
        all: &BTreeMap<ObjectName, Vec<Wanted>>,
        created: impl Fn(&ObjectName) -> Option<i64>,
    ) {
        if self.former.ports.is_empty() {
            return;
        }
        let mut heirs: Vec<_> = all
            .iter()
            .flat_map(|(name, wanted)| wanted.iter().map(move |wanted| (name, wanted)))
            .collect();
        heirs.sort_by_cached_key(|(name, wanted)| {
            let mut claims = Claim::all(name, created(name), wanted).into_iter();
            claims.next().map(|(_, claim)| claim)
        });
        for (name, wanted) in heirs {
            self.inherit(name, wanted);
        }
    }

    /// Has a service port without a number take over a former one: the one that has its first
    /// frontend, which is the cluster IP. By another frontend only one that has nothing else, for
    /// an external address or a node port may have been another Service's, of which nothing is
    /// known yet.
    fn inherit(&mut self, name: &ObjectName, wanted: &Wanted) {
        let own = self.by_service.get(name);
        if self.former.ports.is_empty() || own.is_some_and(|own| own.contains_key(&wanted.key)) {
            return;
        }
        let sockets = wanted.sockets();
        let heir_of = |(place, frontend): (usize, &WantedFrontend)| {
            let owner = self.frontends.owner(frontend.at)?;
            let port = self.by_number.get(&owner)?;
            let is_former = self.former.ports.contains(&owner);
            let mut others = port.frontends.iter();
            let is_all = place == 0 || others.all(|other| sockets.contains(&other.at));
            (is_former && is_all).then_some(owner)
        };
        let number = wanted.frontends.iter().enumerate().find_map(heir_of);
        let Some((number, port)) = number.and_then(|number| {
            let port = self.by_number.get_mut(&number)?;
            Some((number, port))
        }) else {
            return;
        };
        port.key = wanted.key.clone();
        self.former.ports.remove(&number);
        let own = self.by_service.entry(name.clone()).or_default();
        own.insert(wanted.key.clone(), number);
    }

    /// Takes a frontend from the service port of a former run that has it.
    pub(super) fn take_from_former(&mut self, at: Socket) {
        let owner = self.frontends.owner(at);
        let Some(owner) = owner.filter(|owner| self.former.ports.contains(owner)) else {
            return;
        };
        let Some(port) = self.by_number.get(&owner) else {
            return;
        };
        let mut others: HashSet<_> = port.frontends.iter().map(|own| own.at).collect();
        others.remove(&at);
        self.release_frontends(owner, &others);
    }

    /// Has a service port keep those endpoints of the former run that nothing has declared so far:
    /// what declares them may be what cannot be used.
    pub(super) fn keep_former(&mut self, name: &ObjectName, wanted: &mut Wanted) {
        let own = self.by_service.get(name);
        let Some(number) = own.and_then(|own| own.get(&wanted.key)).copied() else {
            return;
        };
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
                in_cluster: held.is_in(List::Cluster),
                in_local: held.is_in(List::Local),
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
            self.end_number(*number);
        }
        for held in orphans {
            self.give_up_slot(Family::of(held.addr), held.slot);
        }
        for family in Family::ALL {
            let sources = self.sources.of_mut(family);
            let services: Vec<_> = sources.services().collect();
            for unknown in services
                .into_iter()
                .filter(|number| !self.by_number.contains_key(number))
            {
                sources.set(unknown, &[]);
            }
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
