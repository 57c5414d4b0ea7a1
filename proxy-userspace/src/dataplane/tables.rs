//! All maps by their purpose, and how large they are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use aya::maps::MapError;
use ipnet::IpNet;
use proxy_common::abi::settings::TestSources;
use proxy_common::abi::source::SERVICE_BITS;
use proxy_common::abi::{
    Affinity, Detector, Family as AbiFamily, Frontend, Meta, V4, V6, capacity,
};

use super::kill::KillPoint;
use super::load::LoadError;
use super::maps::{Counters, Draws, Elements, Maps, Sets, Table, Trie};
use super::pins::Place;
use crate::plan::Limits;

/// How large the maps are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacities {
    /// What the plan counts with.
    pub limits: Limits,
    /// Established flow halves for IPv4; IPv6 has half as many.
    pub flows: u32,
    /// Half-open flow halves for IPv4; IPv6 has half as many.
    pub half_open: u32,
    /// Datagrams whose first fragment is remembered, per family.
    pub fragments: u32,
}

impl Default for Capacities {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            flows: capacity::FLOWS,
            half_open: capacity::HALF_OPEN,
            fragments: capacity::FRAGMENTS,
        }
    }
}

impl Capacities {
    /// Each map that has a capacity of its own, by name.
    pub(super) fn by_map(&self) -> [(&'static str, u32); 20] {
        let Limits {
            frontends,
            endpoints,
            set_slots,
            reverse,
            sources,
        } = self.limits;
        let half = |entries: u32| (entries / 2).max(1);
        [
            ("FRONTENDS4", frontends),
            ("FRONTENDS6", frontends),
            ("ENDPOINTS4", endpoints),
            ("ENDPOINTS6", endpoints),
            ("PICKS4", endpoints),
            ("PICKS6", endpoints),
            ("REVERSE4", reverse),
            ("REVERSE6", reverse),
            ("SETS", set_slots),
            ("DRAWS", set_slots),
            ("SOURCES4", sources),
            ("SOURCES6", sources),
            ("AFFINITY4", capacity::AFFINITY),
            ("AFFINITY6", capacity::AFFINITY),
            ("FLOWS4", self.flows),
            ("FLOWS6", half(self.flows)),
            ("HALF4", self.half_open),
            ("HALF6", half(self.half_open)),
            ("FRAGMENTS4", self.fragments),
            ("FRAGMENTS6", self.fragments),
        ]
    }
}

/// All maps that the controller reads or writes.
pub struct Tables {
    /// The IPv4 half.
    pub v4: FamilyTables<V4>,
    /// The IPv6 half.
    pub v6: FamilyTables<V6>,
    /// The sets of both families.
    pub sets: Sets,
    /// How often each element of the sets was drawn.
    pub draws: Draws,
    /// Addresses of frontends.
    pub frontend_bits: Elements<u64>,
    /// Addresses of endpoints.
    pub endpoint_bits: Elements<u64>,
    /// Who is inside.
    pub detector: Elements<Detector>,
    /// What the programs counted.
    pub counters: Counters,
    /// What these maps are.
    pub meta: Elements<Meta>,
    /// Where to die, in a test.
    pub kill: KillPoint,
    /// Time and randomness of tests; not pinned.
    pub test_sources: Option<Elements<TestSources>>,
}

/// The maps of one family.
pub struct FamilyTables<F: AbiFamily> {
    /// Frontends.
    pub frontends: Table<F::FrontendKey, Frontend>,
    /// Endpoint records.
    pub endpoints: Elements<F::Endpoint>,
    /// From endpoints back to frontends.
    pub reverse: Table<F::EndpointKey, F::Frontends>,
    /// Source ranges of service ports.
    pub sources: Trie<F::Source>,
    /// Which endpoint clients had last.
    pub affinity: Table<F::AffinityKey, Affinity>,
    /// New flows per endpoint slot.
    pub picks: Elements<u64>,
    /// Established flow halves.
    pub flows: Table<F::FlowKey, F::Flow>,
    /// Half-open flow halves.
    pub half_open: Table<F::FlowKey, F::Flow>,
}

impl Tables {
    /// Opens the pinned maps of a place, to be read.
    pub fn open(place: &Place) -> Result<Self, LoadError> {
        Self::take(&mut place.pins().as_path())
    }

    /// Sees to it that all service port numbers below `next` count as used, whatever happens.
    pub fn reserve_numbers(&mut self, next: u32) -> Result<(), MapError> {
        let mut meta = self.meta.get(0)?;
        if next > meta.next_service {
            // Not for every number by itself: after a restart some are passed over.
            meta.next_service = next.saturating_add(NUMBERS_AT_ONCE);
            self.meta.set(0, &meta)?;
        }
        Ok(())
    }

    /// Says who is inside, from now on.
    pub fn set_detector(&mut self, detector: &Detector) -> Result<(), MapError> {
        self.detector.set(0, detector)
    }

    /// Lets the sources of a range, whose host bits are zero, use the frontends of a service port
    /// that are filtered.
    pub fn source_set(&mut self, service: u32, range: IpNet) -> Result<(), MapError> {
        let bits = SERVICE_BITS + u32::from(range.prefix_len());
        match range.addr() {
            IpAddr::V4(addr) => self
                .v4
                .sources
                .insert(bits, V4::source(service, addr.into())),
            IpAddr::V6(addr) => self
                .v6
                .sources
                .insert(bits, V6::source(service, addr.into())),
        }
    }

    /// Does not let them any more; whether they were let.
    pub fn source_remove(&mut self, service: u32, range: IpNet) -> Result<bool, MapError> {
        let bits = SERVICE_BITS + u32::from(range.prefix_len());
        match range.addr() {
            IpAddr::V4(addr) => self
                .v4
                .sources
                .remove(bits, V4::source(service, addr.into())),
            IpAddr::V6(addr) => self
                .v6
                .sources
                .remove(bits, V6::source(service, addr.into())),
        }
    }

    /// All service ports' source ranges.
    pub fn all_sources(&self) -> Result<Vec<(u32, IpNet)>, MapError> {
        let v4 = self.v4.sources.iter().map(|entry| {
            let (bits, source) = entry?;
            Ok((source.service, range(Ipv4Addr::from(source.addr), bits)))
        });
        let v6 = self.v6.sources.iter().map(|entry| {
            let (bits, source) = entry?;
            Ok((source.service, range(Ipv6Addr::from(source.addr), bits)))
        });
        v4.chain(v6).collect()
    }

    /// Takes the maps out of a loaded object, or opens them.
    pub(super) fn take(ebpf: &mut impl Maps) -> Result<Self, LoadError> {
        Ok(Self {
            v4: FamilyTables::take(ebpf, "4")?,
            v6: FamilyTables::take(ebpf, "6")?,
            sets: Sets::take(ebpf)?,
            draws: Draws::take(ebpf)?,
            frontend_bits: Elements::take(ebpf, "VIP_BITS")?,
            endpoint_bits: Elements::take(ebpf, "ENDPOINT_BITS")?,
            detector: Elements::take(ebpf, "DETECTOR")?,
            counters: Counters::take(ebpf)?,
            kill: KillPoint::default(),
            meta: Elements::take(ebpf, "META")?,
            test_sources: Elements::take(ebpf, "TEST_SOURCES").ok(),
        })
    }
}

/// The range at a prefix of so many `bits`, the service port's number included.
fn range(addr: impl Into<IpAddr>, bits: u32) -> IpNet {
    let addr = addr.into();
    let len = u8::try_from(bits.saturating_sub(SERVICE_BITS)).unwrap_or(u8::MAX);
    // A longer prefix than addresses have does not fit a trie's keys.
    IpNet::new(addr, len).unwrap_or_else(|_| addr.into())
}

impl<F: AbiFamily> FamilyTables<F> {
    fn take(ebpf: &mut impl Maps, suffix: &str) -> Result<Self, LoadError> {
        let name = |base: &str| format!("{base}{suffix}");
        Ok(Self {
            frontends: Table::take(ebpf, &name("FRONTENDS"))?,
            endpoints: Elements::take(ebpf, &name("ENDPOINTS"))?,
            reverse: Table::take(ebpf, &name("REVERSE"))?,
            sources: Trie::take(ebpf, &name("SOURCES"))?,
            affinity: Table::take(ebpf, &name("AFFINITY"))?,
            picks: Elements::take(ebpf, &name("PICKS"))?,
            flows: Table::take(ebpf, &name("FLOWS"))?,
            half_open: Table::take(ebpf, &name("HALF"))?,
        })
    }
}

/// How many service port numbers are reserved in one go.
const NUMBERS_AT_ONCE: u32 = 1024;
