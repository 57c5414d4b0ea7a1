//! The maps of a former run: which of them are used on, which are copied, and which are given up.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use aya::Ebpf;
use aya::maps::{Array, Map, MapData};
use proxy_common::abi::{Endpoint4, Endpoint6, Meta};
use tracing::{info, warn};

use super::load::LoadError;
use super::pins::{PinError, Place, remove};
use super::plain::Plain;
use super::shapes::{Group, Likeness, Shape, shapes};
use super::syscall::{Batch, Elements, pin};
use super::tables::Capacities;
use crate::plan::Floors;

/// What is pinned, compared with what is wanted.
#[derive(Debug, Default)]
pub(super) struct Former {
    /// Maps that are used on.
    adopted: Vec<&'static str>,
    /// Maps whose elements are copied to a new one.
    copied: Vec<(&'static str, MapData)>,
    /// The same for flows, which change until the last moment.
    flows: Vec<(&'static str, MapData)>,
    /// All that is wanted.
    shapes: Vec<Shape>,
    /// What no number may fall below.
    floors: Floors,
}

impl Former {
    /// Looks at the pins of a place.
    pub(super) fn look(place: &Place, wanted: &Meta, capacities: &Capacities) -> Self {
        let mut former = Self {
            shapes: shapes(capacities),
            ..Self::default()
        };
        let Some(meta) = former.meta(place) else {
            return former;
        };
        if !meta.is_like(wanted) {
            warn!(?meta, "the pinned maps are none of ours, all are made anew");
            return former;
        }
        former.floors.service = meta.next_service;
        former.adopted.push("META");
        for group in [Group::Flows, Group::Tables, Group::Counters] {
            former.take(place, group);
        }
        former
    }

    fn meta(&self, place: &Place) -> Option<Meta> {
        let shape = self.shapes.iter().find(|shape| shape.name == "META")?;
        let map = MapData::from_pin(place.pins().join(shape.name)).ok()?;
        if shape.compare(&map) != Likeness::Same {
            return None;
        }
        let map: Array<_, Plain<Meta>> = Map::from_map_data(map).ok()?.try_into().ok()?;
        let Plain(meta) = map.get(&0, 0).ok()?;
        Some(meta)
    }

    fn take(&mut self, place: &Place, group: Group) {
        let mut found = Vec::new();
        for shape in self.shapes.iter().filter(|shape| shape.group == group) {
            let map = MapData::from_pin(place.pins().join(shape.name)).ok();
            let likeness = map
                .as_ref()
                .map_or(Likeness::Other, |map| shape.compare(map));
            found.push((shape.name, likeness, map));
        }
        let all_same = found.iter().all(|(_, like, _)| *like == Likeness::Same);
        // Old programs go on with the old tables until they are replaced: tables that lead to one
        // another must not be of both kinds.
        let is_copied = match group {
            Group::Tables => found
                .iter()
                .all(|(_, like, _)| matches!(like, Likeness::Same | Likeness::Smaller)),
            _ => true,
        };
        if group == Group::Tables && !all_same && !is_copied {
            warn!(
                "the tables are smaller than those of the run before: made anew, and open UDP \
                flows draw their endpoints again"
            );
            self.floors.generation = found
                .iter()
                .filter_map(|(name, _, map)| Some((*name, map.as_ref()?)))
                .filter_map(|(name, map)| largest_generation(name, map))
                .max()
                .map_or(0, |largest| largest.wrapping_add(1));
            return;
        }
        for (name, likeness, map) in found {
            match (likeness, map) {
                (Likeness::Same, _) if all_same || group != Group::Tables => {
                    self.adopted.push(name);
                }
                (Likeness::Same | Likeness::Smaller | Likeness::Larger, Some(map))
                    if group != Group::Counters =>
                {
                    match group {
                        Group::Flows => self.flows.push((name, map)),
                        _ => self.copied.push((name, map)),
                    }
                }
                _ => warn!(map = name, "made anew, what it held is lost"),
            }
        }
    }

    /// The maps that are used on.
    pub(super) fn adopted(&self) -> &[&'static str] {
        &self.adopted
    }

    /// What no number may fall below.
    pub(super) const fn floors(&self) -> Floors {
        self.floors
    }

    /// Maps of flows that are to be copied.
    pub(super) fn flows(self) -> Vec<(&'static str, MapData)> {
        self.flows
    }

    /// Copies the tables that are to be copied to the maps of a loaded object.
    pub(super) fn copy(&self, ebpf: &Ebpf) -> Result<(), LoadError> {
        for (name, old) in &self.copied {
            let refused = |source| LoadError::Copy { map: name, source };
            let new = data(ebpf, name)?;
            let to = Elements::new(new).map_err(refused)?;
            let copied = Elements::new(old)
                .and_then(|from| from.copy_to(&to))
                .map_err(refused)?;
            info!(
                map = name,
                elements = copied,
                "copied to a map of another size"
            );
        }
        Ok(())
    }

    /// The maps of a loaded object that are still to be pinned.
    pub(super) fn fresh(&self, ebpf: &Ebpf) -> Result<Vec<(&'static str, OwnedFd)>, LoadError> {
        let mut fresh = Vec::new();
        for shape in &self.shapes {
            if self.adopted.contains(&shape.name) {
                continue;
            }
            let fd = data(ebpf, shape.name)?.fd().as_fd().try_clone_to_owned();
            fresh.push((
                shape.name,
                fd.map_err(|source| LoadError::Copy {
                    map: shape.name,
                    source,
                })?,
            ));
        }
        Ok(fresh)
    }
}

/// Copies flows to those of the new maps that have their names.
pub(super) fn copy_flows(
    flows: &[(&'static str, MapData)],
    maps: &[(&'static str, OwnedFd)],
) -> io::Result<()> {
    for (name, old) in flows {
        if let Some((_, new)) = maps.iter().find(|(other, _)| other == name) {
            let from = Elements::new(old)?;
            let copied = from.copy_to(&from.like(new.as_fd()))?;
            info!(
                map = name,
                elements = copied,
                "copied to a map of another size"
            );
        }
    }
    Ok(())
}

/// Pins maps at a place; where another map was pinned, in one step.
pub(super) fn pin_maps(place: &Place, maps: Vec<(&'static str, OwnedFd)>) -> Result<(), PinError> {
    for (name, map) in maps {
        let path = place.pins().join(name);
        let draft = place.pins().join(format!("{name}~"));
        remove(&draft)?;
        pin::pin(&map, &draft).map_err(PinError::new("pin a map at", &draft))?;
        std::fs::rename(&draft, &path).map_err(PinError::new("pin a map at", &path))?;
    }
    Ok(())
}

fn data<'a>(ebpf: &'a Ebpf, name: &str) -> Result<&'a MapData, LoadError> {
    match ebpf.map(name) {
        Some(
            Map::Array(data)
            | Map::HashMap(data)
            | Map::LruHashMap(data)
            | Map::LpmTrie(data)
            | Map::PerCpuArray(data),
        ) => Ok(data),
        _ => Err(LoadError::NoMap(name.to_owned())),
    }
}

fn largest_generation(name: &str, map: &MapData) -> Option<u32> {
    fn largest<V: bytemuck::Pod>(map: &MapData, of: impl Fn(&V) -> u32) -> io::Result<Option<u32>> {
        let batch = Batch::<u32, V>::new(map).map_err(io::Error::other)?;
        Ok(batch.read()?.iter().map(|(_, record)| of(record)).max())
    }
    match name {
        "ENDPOINTS4" => largest(map, |record: &Endpoint4| record.generation).ok()?,
        "ENDPOINTS6" => largest(map, |record: &Endpoint6| record.generation).ok()?,
        _ => None,
    }
}
