//! An instance of the programs with small maps of its own, attached to nothing and pinned nowhere:
//! what it does with a packet changes nothing that anybody else uses.

use std::io;

use aya::maps::MapError;
use aya::programs::SchedClassifier;
use aya::{Ebpf, EbpfLoader};
use proxy_common::abi::{Counter, Settings, capacity};
use proxy_common::datapath::memory::{FamilyMaps, MemoryTables, Stored};

use super::devices::Devices;
use super::load::{LoadError, OBJECT, load_program};
use super::plain::Plain;
use super::tables::{Capacities, FamilyTables, Tables};
use super::trial::{Trial, run};
use crate::plan::Limits;

/// What a packet meets that comes in, and one that leaves.
const PROGRAMS: [&str; 2] = ["tc_in", "tc_eg"];

/// Room for flows. The kernel evicts from a map of this kind before it is full, so there is far
/// more of it than one packet needs.
const FLOWS: u32 = 4096;

/// Entries of every map at least.
const ROOM: u32 = 512;

/// Programs with maps of their own.
pub struct Private {
    ebpf: Ebpf,
    tables: Tables,
    devices: Devices,
    settings: Settings,
    capacities: Capacities,
    /// What was counted before the maps were last filled.
    before: Vec<u64>,
}

impl Private {
    /// Loads the programs onto maps that hold what `memory` does.
    pub fn load(memory: &MemoryTables) -> Result<Self, LoadError> {
        let plain = Plain(memory.settings);
        let capacities = capacities(memory);
        let mut loader = EbpfLoader::new();
        loader
            .override_global("SETTINGS", &plain, true)
            .override_global(aya_log::LEVEL, &0_u8, false);
        for (map, entries) in capacities.by_map() {
            loader.map_max_entries(map, entries.min(capacity_of(map)));
        }
        let mut ebpf = loader.load(OBJECT)?;
        for program in PROGRAMS {
            load_program(&mut ebpf, program)?;
        }
        let devices = Devices::take(&mut ebpf)?;
        let tables = Tables::take(&mut ebpf)?;
        let mut own = Self {
            ebpf,
            tables,
            devices,
            settings: memory.settings,
            capacities,
            before: Vec::new(),
        };
        own.fill(memory).map_err(|source| LoadError::Map {
            map: "of a private instance".to_owned(),
            source,
        })?;
        Ok(own)
    }

    /// Has the maps hold what `memory` does and nothing else; whether they are large enough, and
    /// the programs told the same.
    pub fn refill(&mut self, memory: &MemoryTables) -> io::Result<bool> {
        let (own, wanted) = (self.capacities, capacities(memory));
        let fits = own.limits.frontends >= wanted.limits.frontends
            && own.limits.endpoints >= wanted.limits.endpoints
            && own.limits.set_slots >= wanted.limits.set_slots
            && own.limits.reverse >= wanted.limits.reverse
            && own.limits.sources >= wanted.limits.sources
            && own.flows >= wanted.flows
            && self.settings == memory.settings;
        if !fits {
            return Ok(false);
        }
        let filled = self.empty().and_then(|()| self.fill(memory));
        filled.map(|()| true).map_err(io::Error::other)
    }

    fn empty(&mut self) -> Result<(), MapError> {
        empty_family(&mut self.tables.v4)?;
        empty_family(&mut self.tables.v6)?;
        for bits in [
            &mut self.tables.frontend_bits,
            &mut self.tables.endpoint_bits,
        ] {
            let set = bits.read().map_err(MapError::IoError)?;
            for (index, _) in set.into_iter().filter(|(_, word)| *word != 0) {
                bits.set(index, &0)?;
            }
        }
        Ok(())
    }

    /// What a program makes of a packet, an Ethernet frame, that came by the loopback device.
    pub fn trial(&self, program: &str, packet: &[u8], mark: u32) -> io::Result<Trial> {
        let found = self.ebpf.program(program).ok_or(io::ErrorKind::NotFound)?;
        let classifier: &SchedClassifier = found.try_into().map_err(io::Error::other)?;
        run(classifier, packet, mark)
    }

    /// What was counted since the maps were filled.
    pub fn counted(&self) -> io::Result<Vec<Counter>> {
        let now = self.counts().map_err(io::Error::other)?;
        let all = Counter::ALL.iter().zip(now.iter().zip(&self.before));
        let counted = all.filter(|(_, (now, before))| now > before);
        Ok(counted.map(|(counter, _)| *counter).collect())
    }

    fn counts(&self) -> Result<Vec<u64>, MapError> {
        let all = Counter::ALL.iter();
        all.map(|counter| self.tables.counters.get(*counter))
            .collect()
    }

    fn fill(&mut self, memory: &MemoryTables) -> Result<(), MapError> {
        self.before = self.counts()?;
        fill(&mut self.tables, &mut self.devices, memory)
    }
}

/// Clients, too, are few.
fn capacity_of(map: &str) -> u32 {
    if map.starts_with("AFFINITY") {
        FLOWS.min(capacity::AFFINITY)
    } else {
        u32::MAX
    }
}

fn capacities(memory: &MemoryTables) -> Capacities {
    // Some room, so that the next packet finds it.
    let most = |v4: usize, v6: usize| u32::try_from(v4.max(v6)).unwrap_or(u32::MAX).max(ROOM);
    let (v4, v6) = (&memory.v4, &memory.v6);
    let last = |slots: Option<&u32>| slots.map_or(0, |slot| *slot as usize + 1);
    let flows = most(
        v4.flows.len().max(v4.half_open.len()),
        v6.flows.len().max(v6.half_open.len()),
    );
    Capacities {
        limits: Limits {
            frontends: most(v4.frontends.len(), v6.frontends.len()),
            endpoints: most(
                last(v4.endpoints.keys().max()),
                last(v6.endpoints.keys().max()),
            ),
            set_slots: most(memory.sets.len(), 0),
            reverse: most(v4.reverse.len(), v6.reverse.len()),
            sources: most(v4.sources.len(), v6.sources.len()),
        },
        // IPv6 has half of it.
        flows: FLOWS.max(flows.saturating_mul(8)),
        half_open: FLOWS.max(flows.saturating_mul(8)),
        fragments: FLOWS,
    }
}

fn fill(tables: &mut Tables, devices: &mut Devices, memory: &MemoryTables) -> Result<(), MapError> {
    fill_family(&mut tables.v4, &memory.v4)?;
    fill_family(&mut tables.v6, &memory.v6)?;
    if !tables.sets.write(0, &memory.sets) {
        return Err(MapError::OutOfBounds {
            index: memory.sets.len() as u32,
            max_entries: memory.sets.len() as u32,
        });
    }
    for (own, words) in [
        (&mut tables.frontend_bits, &memory.frontend_bits),
        (&mut tables.endpoint_bits, &memory.endpoint_bits),
    ] {
        for (index, word) in (0..).zip(words).filter(|(_, word)| **word != 0) {
            own.set(index, word)?;
        }
    }
    tables.set_detector(&memory.detector)?;
    for (index, device) in &memory.devices {
        devices.write(*index, *device)?;
    }
    Ok(())
}

fn empty_family<F: Stored>(tables: &mut FamilyTables<F>) -> Result<(), MapError> {
    tables.frontends.clear()?;
    tables.reverse.clear()?;
    tables.affinity.clear()?;
    tables.flows.clear()?;
    tables.half_open.clear()?;
    tables.sources.clear()
}

fn fill_family<F: Stored>(
    tables: &mut FamilyTables<F>,
    memory: &FamilyMaps<F>,
) -> Result<(), MapError> {
    for (key, value) in &memory.frontends {
        tables.frontends.insert(key, value)?;
    }
    for (slot, record) in &memory.endpoints {
        tables.endpoints.set(*slot, record)?;
    }
    for (key, value) in &memory.reverse {
        tables.reverse.insert(key, value)?;
    }
    for (bits, source) in &memory.sources {
        tables.sources.insert(*bits, *source)?;
    }
    for (key, value) in &memory.affinity {
        tables.affinity.insert(key, value)?;
    }
    for (key, value) in &memory.flows {
        tables.flows.insert(key, value)?;
    }
    for (key, value) in &memory.half_open {
        tables.half_open.insert(key, value)?;
    }
    Ok(())
}
