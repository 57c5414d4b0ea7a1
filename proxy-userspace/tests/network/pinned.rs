//! What a node's tables hold, read from their pins.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use kube_lottery::dataplane::maps::Table;
use kube_lottery::dataplane::tables::FamilyTables;
use kube_lottery::dataplane::{Place, Tables};
use kube_lottery::model::Family;
use kube_lottery::plan::{Record, Snapshot, Socket};
use proxy_common::abi::endpoint::Endpoint as _;
use proxy_common::abi::flow::{Flow as _, FlowKey as _};
use proxy_common::abi::{Affinity, Counter, EndpointFlags, Family as AbiFamily, Kind, V4, V6};
use proxy_common::lottery::{self, Random};
use proxy_common::net::{Port, Proto};
use xtask::lab::Host;

/// Where proxies pin by default.
const ROOT: &str = "/sys/fs/bpf/kube-lottery";

/// The tables of a node.
pub(super) struct Pinned(Snapshot);

impl Pinned {
    pub(super) fn read(node: &Host) -> Self {
        let place = place(node);
        Self(Tables::open(&place).unwrap().snapshot().unwrap())
    }

    /// Every frontend with its service number and the endpoints that new flows are drawn from.
    /// Fails where a set lists what is foreign or dead.
    pub(super) fn frontends(&self) -> BTreeMap<Socket, (u32, BTreeSet<IpAddr>)> {
        let records: BTreeMap<(bool, u32), &Record> = self
            .0
            .records
            .iter()
            .map(|(slot, record)| ((record.addr.is_ipv6(), *slot), record))
            .collect();
        let mut all = BTreeMap::new();
        for (at, value) in &self.0.frontends {
            let (base, count) = (value.inside.base(), value.inside.count());
            let window = &self.0.sets[base as usize..(base + count) as usize];
            let mut endpoints = BTreeSet::new();
            for slot in window {
                assert_eq!(value.service, slot.service, "{at} leads to a foreign slot");
                let record = records[&(at.family() == Family::V6, slot.endpoint)];
                assert_eq!(
                    value.service, record.service,
                    "{at} leads to a foreign record"
                );
                assert!(record.flags.has(EndpointFlags::ALIVE), "{at}: {record:?}");
                assert!(
                    endpoints.insert(record.addr),
                    "{at} lists {} twice",
                    record.addr
                );
            }
            all.insert(*at, (value.service, endpoints));
        }
        all
    }

    /// Slot, generation and service number of every endpoint in use.
    pub(super) fn identities(&self) -> BTreeMap<(IpAddr, u16, u32), (u32, u32)> {
        let records = self.0.records.iter();
        let used = records.filter(|(_, record)| record.flags.has(EndpointFlags::HELD));
        used.map(|(slot, record)| {
            let key = (record.addr, record.port, record.service);
            (key, (*slot, record.generation))
        })
        .collect()
    }
}

/// The tables of a node while its controller works on them.
pub(super) struct Live(Tables);

impl Live {
    pub(super) fn open(node: &Host) -> Self {
        Self(Tables::open(&place(node)).unwrap())
    }

    /// Takes one half away of some of the flows that have both, as tables that are too small do:
    /// `chance` of 100 flows lose one. Returns how many did.
    pub(super) fn evict(&mut self, random: &mut impl Random, chance: u32) -> u64 {
        let (v4, v6) = (&mut self.0.v4, &mut self.0.v6);
        evict_of(v4, random, chance) + evict_of(v6, random, chance)
    }

    /// What the programs of the node have counted.
    pub(super) fn count(&self, counter: Counter) -> u64 {
        self.0.counters.get(counter).unwrap()
    }

    /// Lets time pass, in seconds, for what the node remembers of clients.
    pub(super) fn age_clients(&mut self, seconds: u32) {
        age(&mut self.0.v4.affinity, seconds);
        age(&mut self.0.v6.affinity, seconds);
    }

    /// Counts more draws of the first endpoint that those inside draw from at a frontend.
    pub(super) fn favour_first(&self, at: SocketAddr, proto: Proto, draws: u64) {
        let port = Port::new(at.port());
        let IpAddr::V4(addr) = at.ip() else {
            panic!("{at} is not of IPv4")
        };
        let key = V4::frontend_key(addr.into(), port, proto);
        let first = self
            .0
            .v4
            .frontends
            .get(&key)
            .unwrap()
            .unwrap()
            .inside
            .base();
        let had = self.0.draws.of(first, 1)[0];
        assert!(self.0.draws.set(first, had + draws));
    }

    /// All that is remembered of clients and flows, but for when flows were last seen.
    pub(super) fn remembered(&self) -> BTreeSet<Vec<u8>> {
        let mut all = remembered(&self.0.v4);
        all.append(&mut remembered(&self.0.v6));
        all
    }

    /// How many clients the node remembers.
    pub(super) fn clients(&self) -> usize {
        self.0.v4.affinity.iter().count() + self.0.v6.affinity.iter().count()
    }

    /// Takes a frontend out of the tables; whether there was one.
    pub(super) fn take_away(&mut self, at: SocketAddr, proto: Proto) -> bool {
        let port = Port::new(at.port());
        let removed = match at.ip() {
            IpAddr::V4(addr) => {
                let key = V4::frontend_key(addr.into(), port, proto);
                self.0.v4.frontends.remove(&key)
            }
            IpAddr::V6(addr) => {
                let key = V6::frontend_key(addr.into(), port, proto);
                self.0.v6.frontends.remove(&key)
            }
        };
        removed.unwrap()
    }

    /// The endpoints that new flows to a frontend are drawn from; nothing where they are being
    /// changed.
    pub(super) fn endpoints(&self, at: SocketAddr, proto: Proto) -> Option<BTreeSet<IpAddr>> {
        let port = Port::new(at.port());
        match at.ip() {
            IpAddr::V4(addr) => self.of(&self.0.v4, &V4::frontend_key(addr.into(), port, proto)),
            IpAddr::V6(addr) => self.of(&self.0.v6, &V6::frontend_key(addr.into(), port, proto)),
        }
    }

    fn of<F: AbiFamily>(
        &self,
        tables: &FamilyTables<F>,
        key: &F::FrontendKey,
    ) -> Option<BTreeSet<IpAddr>>
    where
        F::Addr: Into<IpAddr>,
    {
        let value = tables.frontends.get(key).unwrap()?;
        let window = value.inside.base()..value.inside.base() + value.inside.count();
        window
            .map(|at| {
                let slot = self.0.sets.get(at)?;
                let record = tables.endpoints.get(slot.endpoint).ok()?;
                let is_right = slot.service == value.service && record.service() == value.service;
                (is_right && record.is_alive()).then(|| record.addr().into())
            })
            .collect()
    }
}

fn remembered<F: AbiFamily>(tables: &FamilyTables<F>) -> BTreeSet<Vec<u8>> {
    let mut all = BTreeSet::new();
    for entry in tables.affinity.iter() {
        let (client, affinity) = entry.unwrap();
        let parts = [bytemuck::bytes_of(&client), bytemuck::bytes_of(&affinity)];
        all.insert(parts.concat());
    }
    for (tier, map) in [(1, &tables.flows), (2, &tables.half_open)] {
        for entry in map.iter() {
            let (key, mut half) = entry.unwrap();
            half.state_mut().last_seen = tier;
            let parts = [bytemuck::bytes_of(&key), bytemuck::bytes_of(&half)];
            all.insert(parts.concat());
        }
    }
    all
}

fn age<K: bytemuck::Pod>(clients: &mut Table<K, Affinity>, seconds: u32) {
    let all: Vec<_> = clients.iter().map(Result::unwrap).collect();
    for (client, mut affinity) in all {
        affinity.last_used = affinity.last_used.checked_sub(seconds).unwrap();
        clients.insert(&client, &affinity).unwrap();
    }
}

fn evict_of<F: AbiFamily>(
    tables: &mut FamilyTables<F>,
    random: &mut impl Random,
    chance: u32,
) -> u64 {
    let mut evicted = 0;
    for map in [&mut tables.flows, &mut tables.half_open] {
        // By what both halves of a flow say of its client, who keeps its port here.
        let mut flows: HashMap<_, Vec<F::FlowKey>> = HashMap::new();
        for entry in map.iter() {
            // What goes meanwhile is of no interest.
            let Ok((key, half)) = entry else { break };
            let client = match half.state().marks.kind() {
                Kind::DNAT => (key.src(), key.sport(), half.new_dst(), key.proto()),
                Kind::UNDNAT => (key.dst(), key.dport(), key.src(), key.proto()),
                _ => continue,
            };
            flows.entry(client).or_default().push(key);
        }
        for halves in flows.into_values().filter(|halves| halves.len() == 2) {
            if lottery::below(random, 100) < chance {
                let half = lottery::below(random, 2) as usize;
                evicted += u64::from(map.remove(&halves[half]).unwrap());
            }
        }
    }
    evicted
}

pub(super) fn place(node: &Host) -> Place {
    let here = || Ok(Place::here(Path::new(ROOT))?);
    node.namespace.enter(here).unwrap()
}
