//! All maps by their purpose, and how large they are.

use aya::maps::MapError;
use proxy_common::abi::settings::TestSources;
use proxy_common::abi::{Family as AbiFamily, Frontend, Meta, V4, V6, capacity};

use super::kill::KillPoint;
use super::load::LoadError;
use super::maps::{Counters, Elements, Maps, Sets, Table};
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
}

impl Default for Capacities {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            flows: capacity::FLOWS,
            half_open: capacity::HALF_OPEN,
        }
    }
}

impl Capacities {
    /// Each map that has a capacity of its own, by name.
    pub(super) fn by_map(&self) -> [(&'static str, u32); 13] {
        let Limits {
            frontends,
            endpoints,
            set_slots,
            reverse,
            ..
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
            ("FLOWS4", self.flows),
            ("FLOWS6", half(self.flows)),
            ("HALF4", self.half_open),
            ("HALF6", half(self.half_open)),
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
    /// Addresses of frontends.
    pub frontend_bits: Elements<u64>,
    /// Addresses of endpoints.
    pub endpoint_bits: Elements<u64>,
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

    /// Takes the maps out of a loaded object, or opens them.
    pub(super) fn take(ebpf: &mut impl Maps) -> Result<Self, LoadError> {
        Ok(Self {
            v4: FamilyTables::take(ebpf, "4")?,
            v6: FamilyTables::take(ebpf, "6")?,
            sets: Sets::take(ebpf)?,
            frontend_bits: Elements::take(ebpf, "VIP_BITS")?,
            endpoint_bits: Elements::take(ebpf, "ENDPOINT_BITS")?,
            counters: Counters::take(ebpf)?,
            kill: KillPoint::default(),
            meta: Elements::take(ebpf, "META")?,
            test_sources: Elements::take(ebpf, "TEST_SOURCES").ok(),
        })
    }
}

impl<F: AbiFamily> FamilyTables<F> {
    fn take(ebpf: &mut impl Maps, suffix: &str) -> Result<Self, LoadError> {
        let name = |base: &str| format!("{base}{suffix}");
        Ok(Self {
            frontends: Table::take(ebpf, &name("FRONTENDS"))?,
            endpoints: Elements::take(ebpf, &name("ENDPOINTS"))?,
            reverse: Table::take(ebpf, &name("REVERSE"))?,
            picks: Elements::take(ebpf, &name("PICKS"))?,
            flows: Table::take(ebpf, &name("FLOWS"))?,
            half_open: Table::take(ebpf, &name("HALF"))?,
        })
    }
}

/// How many service port numbers are reserved in one go.
const NUMBERS_AT_ONCE: u32 = 1024;
