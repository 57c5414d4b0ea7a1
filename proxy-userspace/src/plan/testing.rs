//! Builders and a table model for the tests of the plan.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use proxy_common::abi::bits::{WORDS, bit_of, socket_bit_of};
use proxy_common::abi::{Detector, EndpointFlags, Frontend, FrontendFlags, Origin, Slot};
use proxy_common::net::{Ip4, Ip6, Port};

use super::{Bitmap, Op, Record, Snapshot, Socket};
use crate::model::{
    Endpoint, EndpointSlice, Family, IpNet, ObjectName, Protocol, Service, ServicePort, SlicePort,
};

pub(super) fn service(name: &str, ip: &str, ports: &[(&str, Protocol, u16)]) -> Service {
    let ports = ports.iter().map(|&(name, protocol, port)| ServicePort {
        name: name.into(),
        protocol,
        port,
        node_port: 0,
    });
    Service::new(
        ObjectName::new("default", name),
        vec![ip.parse().unwrap()],
        ports.collect(),
    )
}

pub(super) fn endpoint(addr: &str) -> Endpoint {
    Endpoint {
        address: addr.parse().unwrap(),
        node: None,
        ready: true,
        serving: true,
        terminating: false,
        for_zones: Vec::new(),
        for_nodes: Vec::new(),
    }
}

/// A slice of the family of its first endpoint.
pub(super) fn slice(
    service: &str,
    name: &str,
    ports: &[(&str, Protocol, u16)],
    endpoints: &[Endpoint],
) -> Arc<EndpointSlice> {
    let ports = ports.iter().map(|&(name, protocol, port)| SlicePort {
        name: name.into(),
        protocol,
        port,
    });
    let family = endpoints
        .first()
        .map_or(Family::V4, |first| Family::of(first.address));
    Arc::new(EndpointSlice {
        name: ObjectName::new("default", &format!("{service}-{name}")),
        service: ObjectName::new("default", service),
        family,
        ports: ports.collect(),
        endpoints: endpoints.to_vec(),
    })
}

/// The tables as plain memory, read as the data path reads them.
#[derive(Debug, Default, Clone)]
pub(super) struct Tables {
    pub(super) frontends: HashMap<Socket, Frontend>,
    pub(super) records: HashMap<(Family, u32), Record>,
    pub(super) sets: HashMap<u32, Slot>,
    /// Elements of the set array whose draws are counted from zero.
    pub(super) reset: HashSet<u32>,
    pub(super) reverse: HashMap<Socket, Vec<(IpAddr, u16)>>,
    pub(super) bits: HashMap<(Bitmap, u32), u64>,
    pub(super) sources: HashSet<(u32, IpNet)>,
    pub(super) detector: Option<Detector>,
    /// Service ports whose clients were forgotten, in order.
    pub(super) forgotten: Vec<u32>,
}

/// Where packets come from that can be told apart by their sets.
pub(super) const ORIGINS: [Origin; 2] = [Origin::Inside, Origin::Outside];

/// What a reader finds behind a slot of a frontend's set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Found {
    Endpoint {
        addr: IpAddr,
        port: u16,
        slot: u32,
        generation: u32,
        /// Whether its record says that it is in a set as this: a client may be sent there for
        /// having been sent there before.
        is_remembered: bool,
    },
    /// The slot, or the record it names, belongs to another service port or is dead: the reader
    /// looks the frontend up again.
    Mismatch,
}

impl Tables {
    pub(super) fn apply(&mut self, op: &Op) {
        match op.clone() {
            Op::ResetPicks { .. } => {}
            Op::ResetDraws { base, len } => self.reset.extend(base..base + len),
            Op::ForgetClients { service, .. } => {
                self.forgotten.push(service);
            }
            Op::Detector { value } => self.detector = Some(value),
            Op::Source { service, range } => {
                assert_eq!(range.trunc(), range);
                assert!(self.sources.insert((service, range)), "{service} {range}");
            }
            Op::SourceGone { service, range } => {
                assert!(self.sources.remove(&(service, range)), "{service} {range}");
            }
            Op::Endpoint { slot, record } => {
                self.records.insert((Family::of(record.addr), slot), record);
            }
            Op::Reverse {
                endpoint,
                frontends,
            } => {
                assert!((1..=8).contains(&frontends.len()), "{frontends:?}");
                self.reverse.insert(endpoint, frontends);
            }
            Op::ReverseGone { endpoint } => {
                self.reverse.remove(&endpoint).unwrap();
            }
            Op::Bits {
                bitmap,
                word,
                value,
            } => {
                assert!(word < WORDS);
                let old = self.bits.insert((bitmap, word), value).unwrap_or_default();
                assert_eq!(old, old & value, "a bit was cleared");
            }
            Op::Set { base, slots } => {
                for (at, slot) in (base..).zip(slots) {
                    assert!(self.reset.remove(&at), "{at} has another set's draws");
                    self.sets.insert(at, slot);
                }
            }
            Op::Frontend { at, value } => {
                self.frontends.insert(at, value);
            }
            Op::FrontendGone { at } => {
                self.frontends.remove(&at).unwrap();
            }
        }
    }

    /// What a reader that holds this value of a frontend finds now, for packets of this origin.
    pub(super) fn read(&self, family: Family, value: Frontend, origin: Origin) -> Vec<Found> {
        let set = value.set(origin);
        (set.base()..set.base() + set.count())
            .map(|at| self.found(family, value, at, origin))
            .collect()
    }

    fn found(&self, family: Family, value: Frontend, at: u32, origin: Origin) -> Found {
        let slot = self.sets[&at];
        let Some(record) = self.records.get(&(family, slot.endpoint)) else {
            return Found::Mismatch;
        };
        let service = value.service;
        let is_mine = slot.service == service && record.service == service;
        if !is_mine || !record.flags.has(EndpointFlags::ALIVE) {
            return Found::Mismatch;
        }
        Found::Endpoint {
            addr: record.addr,
            port: record.port,
            slot: slot.endpoint,
            generation: record.generation,
            is_remembered: record.flags.has(listing(value.flags, origin)),
        }
    }

    /// The endpoints a client of this origin can reach at a frontend now.
    pub(super) fn reachable_from(
        &self,
        at: Socket,
        origin: Origin,
    ) -> Option<BTreeSet<(IpAddr, u16)>> {
        let value = *self.frontends.get(&at)?;
        let found = self.read(at.family(), value, origin);
        let count = found.len();
        let all: BTreeSet<_> = found
            .into_iter()
            .map(|found| match found {
                Found::Endpoint {
                    addr,
                    port,
                    is_remembered,
                    ..
                } => {
                    assert!(is_remembered, "{at} lists {addr}, whose record denies it");
                    (addr, port)
                }
                Found::Mismatch => panic!("{at} leads to a foreign or dead endpoint"),
            })
            .collect();
        assert_eq!(count, all.len(), "{at} lists an endpoint twice");
        Some(all)
    }

    /// The endpoints any client can reach at a frontend now.
    pub(super) fn reachable(&self, at: Socket) -> Option<BTreeSet<(IpAddr, u16)>> {
        let [inside, outside] = ORIGINS.map(|origin| self.reachable_from(at, origin));
        assert_eq!(inside, outside);
        inside
    }

    /// The source ranges of a service port.
    pub(super) fn sources(&self, service: u32) -> BTreeSet<IpNet> {
        let own = self.sources.iter().filter(|(owner, _)| *owner == service);
        own.map(|(_, range)| *range).collect()
    }

    /// What a controller reads that starts now.
    pub(super) fn snapshot(&self) -> Snapshot {
        let words = |bitmap| {
            let mut words = vec![0; WORDS as usize];
            for ((_, word), value) in self.bits.iter().filter(|((own, _), _)| *own == bitmap) {
                words[*word as usize] = *value;
            }
            words
        };
        let end = self.sets.keys().max().map_or(0, |last| last + 1);
        let unused = Slot {
            endpoint: 0,
            service: 0,
        };
        Snapshot {
            frontends: self.frontends.clone().into_iter().collect(),
            records: self
                .records
                .iter()
                .map(|((_, slot), record)| (*slot, *record))
                .collect(),
            sets: (0..end)
                .map(|at| self.sets.get(&at).copied().unwrap_or(unused))
                .collect(),
            reverse: self.reverse.clone().into_iter().collect(),
            sources: self.sources.iter().copied().collect(),
            detector: self.detector,
            frontend_bits: words(Bitmap::Frontends),
            endpoint_bits: words(Bitmap::Endpoints),
        }
    }

    pub(super) fn has_bit(&self, bitmap: Bitmap, addr: IpAddr) -> bool {
        let bit = match addr {
            IpAddr::V4(v4) => bit_of(Ip4::from(v4)),
            IpAddr::V6(v6) => bit_of(Ip6::from(v6)),
        };
        self.is_set(bitmap, bit)
    }

    /// Whether both bits of an endpoint are set.
    pub(super) fn has_socket_bits(&self, at: Socket) -> bool {
        let port = Port::new(at.port);
        let bit = match at.addr {
            IpAddr::V4(v4) => socket_bit_of(Ip4::from(v4), port, at.proto),
            IpAddr::V6(v6) => socket_bit_of(Ip6::from(v6), port, at.proto),
        };
        self.has_bit(Bitmap::Endpoints, at.addr) && self.is_set(Bitmap::Endpoints, bit)
    }

    fn is_set(&self, bitmap: Bitmap, (word, mask): (u32, u64)) -> bool {
        self.bits
            .get(&(bitmap, word))
            .is_some_and(|value| value & mask != 0)
    }
}

/// What the records of endpoints say that packets of this origin may be given to.
const fn listing(flags: FrontendFlags, origin: Origin) -> EndpointFlags {
    if flags.has(FrontendFlags::local(origin)) {
        EndpointFlags::IN_LOCAL_SET
    } else {
        EndpointFlags::IN_CLUSTER_SET
    }
}
