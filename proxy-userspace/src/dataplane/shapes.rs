//! What the pinned maps must look like. The kernel does not compare: a pin of another shape would
//! be used, and its values cut off or read beyond their end.

use aya::maps::{MapData, MapType};
use proxy_common::abi::{Affinity, Counter, Detector, Family, Frontend, Meta, Slot, V4, V6, bits};

use super::tables::Capacities;

/// `BPF_F_NO_PREALLOC`.
const NO_PREALLOC: u32 = 1;
/// `BPF_F_MMAPABLE`.
const MMAPABLE: u32 = 1 << 10;

/// Which maps must be adopted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// Tells what all the others are.
    Meta,
    /// The controller's tables, which lead to one another.
    Tables,
    /// Flows, which mean something without the others.
    Flows,
    /// Counters.
    Counters,
}

/// What a map must look like.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) group: Group,
    kind: MapType,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
}

/// How a map that is there compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Likeness {
    /// It is what is wanted.
    Same,
    /// Its elements would fit into the map that is wanted.
    Smaller,
    /// Its elements have the same form, but there may be too many of them.
    Larger,
    /// It is something else.
    Other,
}

impl Shape {
    pub(super) fn compare(&self, map: &MapData) -> Likeness {
        let Ok(info) = map.info() else {
            return Likeness::Other;
        };
        let form = (info.key_size(), info.value_size(), info.map_flags());
        let is_kind = info.map_type().is_ok_and(|kind| kind == self.kind);
        if !is_kind || form != (self.key, self.value, self.flags) {
            return Likeness::Other;
        }
        match info.max_entries().cmp(&self.entries) {
            std::cmp::Ordering::Less => Likeness::Smaller,
            std::cmp::Ordering::Equal => Likeness::Same,
            std::cmp::Ordering::Greater => Likeness::Larger,
        }
    }
}

/// All maps that are pinned.
pub(super) fn shapes(capacities: &Capacities) -> Vec<Shape> {
    let entries: std::collections::HashMap<_, _> = capacities.by_map().into_iter().collect();
    let mut all = vec![
        array::<Meta>("META", Group::Meta, 1),
        array::<Slot>("SETS", Group::Tables, 0),
        array::<u64>("DRAWS", Group::Tables, 0),
        array::<u64>("VIP_BITS", Group::Tables, bits::WORDS),
        array::<u64>("ENDPOINT_BITS", Group::Tables, bits::WORDS),
        array::<u32>("TRACES", Group::Flows, bits::TRACES),
        array::<u64>("PICKS4", Group::Tables, 0),
        array::<u64>("PICKS6", Group::Tables, 0),
        array::<Detector>("DETECTOR", Group::Tables, 1),
        Shape {
            kind: MapType::PerCpuArray,
            ..array::<u64>("COUNTERS", Group::Counters, Counter::COUNT)
        },
    ];
    all.extend(of_family::<V4>([
        "FRONTENDS4",
        "ENDPOINTS4",
        "REVERSE4",
        "FLOWS4",
        "HALF4",
        "FRAGMENTS4",
        "SOURCES4",
        "AFFINITY4",
    ]));
    all.extend(of_family::<V6>([
        "FRONTENDS6",
        "ENDPOINTS6",
        "REVERSE6",
        "FLOWS6",
        "HALF6",
        "FRAGMENTS6",
        "SOURCES6",
        "AFFINITY6",
    ]));
    for shape in &mut all {
        if let Some(entries) = entries.get(shape.name) {
            shape.entries = *entries;
        }
        if ["SETS", "DRAWS"].contains(&shape.name) {
            shape.flags = MMAPABLE;
        }
    }
    all
}

fn of_family<F: Family>(names: [&'static str; 8]) -> [Shape; 8] {
    let [
        frontends,
        endpoints,
        reverse,
        flows,
        half_open,
        fragments,
        sources,
        affinity,
    ] = names;
    let lru = |shape| Shape {
        kind: MapType::LruHash,
        ..shape
    };
    let flow_map = |name| lru(hash::<F::FlowKey, F::Flow>(name, Group::Flows));
    [
        hash::<F::FrontendKey, Frontend>(frontends, Group::Tables),
        array::<F::Endpoint>(endpoints, Group::Tables, 0),
        hash::<F::EndpointKey, F::Frontends>(reverse, Group::Tables),
        flow_map(flows),
        flow_map(half_open),
        lru(hash::<F::FragmentKey, F::Fragment>(fragments, Group::Flows)),
        trie::<F::Source>(sources, Group::Tables),
        lru(hash::<F::AffinityKey, Affinity>(affinity, Group::Flows)),
    ]
}

const fn array<V>(name: &'static str, group: Group, entries: u32) -> Shape {
    Shape {
        name,
        group,
        kind: MapType::Array,
        key: size_of::<u32>() as u32,
        value: size_of::<V>() as u32,
        entries,
        flags: 0,
    }
}

const fn hash<K, V>(name: &'static str, group: Group) -> Shape {
    Shape {
        name,
        group,
        kind: MapType::Hash,
        key: size_of::<K>() as u32,
        value: size_of::<V>() as u32,
        entries: 0,
        flags: 0,
    }
}

/// Keys begin with the length of their prefix.
const fn trie<K>(name: &'static str, group: Group) -> Shape {
    Shape {
        kind: MapType::LpmTrie,
        key: (size_of::<u32>() + size_of::<K>()) as u32,
        flags: NO_PREALLOC,
        ..hash::<K, u32>(name, group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_map_has_a_name_of_its_own_and_room() {
        let all = shapes(&Capacities::default());
        let names: std::collections::HashSet<_> = all.iter().map(|shape| shape.name).collect();
        assert_eq!(26, names.len());
        assert!(all.iter().all(|shape| shape.entries > 0), "{all:?}");
    }
}
