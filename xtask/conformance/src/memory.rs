//! The kernel's tables in plain memory, for what is decided outside of the programs.

use anyhow::Result;
use kube_lottery::dataplane::Tables;
use kube_lottery::dataplane::tables::FamilyTables;
use kube_lottery::model::Family;
use kube_lottery::plan::Snapshot;
use proxy_common::abi::{Family as AbiFamily, Settings};
use proxy_common::datapath::memory::{FamilyMaps, MemoryTables};

/// What the kernel's tables hold; flows and clients are left out.
pub(crate) fn read(
    tables: &Tables,
    snapshot: &Snapshot,
    settings: Settings,
) -> Result<MemoryTables> {
    let mut memory = MemoryTables::new(settings);
    memory.sets.clone_from(&snapshot.sets);
    memory.frontend_bits.clone_from(&snapshot.frontend_bits);
    memory.endpoint_bits.clone_from(&snapshot.endpoint_bits);
    memory.detector = tables.detector.get(0)?;
    let slots = |family| {
        let all = snapshot.records.iter();
        let own = all.filter(move |(_, record)| Family::of(record.addr) == family);
        own.map(|(slot, _)| *slot)
    };
    read_family(&tables.v4, slots(Family::V4), &mut memory.v4)?;
    read_family(&tables.v6, slots(Family::V6), &mut memory.v6)?;
    Ok(memory)
}

fn read_family<F: AbiFamily>(
    tables: &FamilyTables<F>,
    slots: impl Iterator<Item = u32>,
    memory: &mut FamilyMaps<F>,
) -> Result<()> {
    memory.frontends = tables.frontends.iter().collect::<Result<_, _>>()?;
    memory.sources = tables.sources.iter().collect::<Result<_, _>>()?;
    for slot in slots {
        memory.endpoints.insert(slot, tables.endpoints.get(slot)?);
    }
    Ok(())
}
