//! The kinds of maps, typed.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;

use aya::Ebpf;
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use bytemuck::Pod;
use proxy_common::abi::{Counter, Slot};

use super::load::LoadError;
use super::plain::Plain;
use super::syscall::{Batch, BatchResult, SharedWords};

/// Where maps are taken from.
pub(super) trait Maps {
    /// The map of this name; not for a second time.
    fn take(&mut self, name: &str) -> Result<Map, LoadError>;
}

impl Maps for Ebpf {
    fn take(&mut self, name: &str) -> Result<Map, LoadError> {
        self.take_map(name)
            .ok_or_else(|| LoadError::NoMap(name.to_owned()))
    }
}

/// Pins of a folder.
impl Maps for &Path {
    fn take(&mut self, name: &str) -> Result<Map, LoadError> {
        let map = MapData::from_pin(self.join(name)).and_then(Map::from_map_data);
        map.map_err(|source| LoadError::Map {
            map: name.to_owned(),
            source,
        })
    }
}

/// A hash map.
pub struct Table<K, V> {
    map: HashMap<MapData, Plain<K>, Plain<V>>,
    batch: Batch<K, V>,
}

impl<K: Pod, V: Pod> Table<K, V> {
    pub(super) fn take(maps: &mut impl Maps, name: &str) -> Result<Self, LoadError> {
        let map = maps.take(name)?;
        let batch = batch(&map, name)?;
        let map = typed(map, name, HashMap::try_from)?;
        Ok(Self { map, batch })
    }

    /// The value at a key.
    pub fn get(&self, key: &K) -> Result<Option<V>, MapError> {
        match self.map.get(&Plain(*key), 0) {
            Ok(Plain(value)) => Ok(Some(value)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates or replaces an element.
    pub fn insert(&mut self, key: &K, value: &V) -> Result<(), MapError> {
        self.map.insert(Plain(*key), Plain(*value), 0)
    }

    /// Removes an element; whether it was there.
    pub fn remove(&mut self, key: &K) -> Result<bool, MapError> {
        was_there(self.map.remove(&Plain(*key)))
    }

    /// All elements; others may be missed or seen twice while it changes.
    pub fn iter(&self) -> impl Iterator<Item = Result<(K, V), MapError>> {
        self.map
            .iter()
            .map(|entry| entry.map(|(Plain(key), Plain(value))| (key, value)))
    }

    /// Removes all elements of one that nobody else changes.
    pub(super) fn clear(&mut self) -> Result<(), MapError> {
        let keys: Result<Vec<_>, _> = self.iter().map(|entry| entry.map(|(key, _)| key)).collect();
        for key in keys? {
            self.remove(&key)?;
        }
        Ok(())
    }

    pub(super) fn update_batch(&self, keys: &[K], values: &[V]) -> BatchResult {
        self.batch.update(keys, values)
    }

    /// All elements, in few calls.
    pub(super) fn read(&self) -> io::Result<Vec<(K, V)>> {
        self.batch.read()
    }

    /// Gives `take` all elements, in few calls.
    pub(super) fn walk(&self, take: impl FnMut(K, V) -> io::Result<()>) -> io::Result<()> {
        self.batch.walk(take)
    }

    pub(super) fn delete_batch(&self, keys: &[K]) -> BatchResult {
        self.batch.delete(keys)
    }
}

/// A trie of prefixes; what it holds is whether they are there.
pub struct Trie<K>(LpmTrie<MapData, Plain<K>, u32>);

impl<K: Pod> Trie<K> {
    /// What stands at each prefix.
    const THERE: u32 = 1;

    pub(super) fn take(maps: &mut impl Maps, name: &str) -> Result<Self, LoadError> {
        typed(maps.take(name)?, name, LpmTrie::try_from).map(Self)
    }

    /// Adds the first `bits` of `data`, if they are not there.
    pub fn insert(&mut self, bits: u32, data: K) -> Result<(), MapError> {
        self.0.insert(&Key::new(bits, Plain(data)), Self::THERE, 0)
    }

    /// Removes them; whether they were there.
    pub fn remove(&mut self, bits: u32, data: K) -> Result<bool, MapError> {
        was_there(self.0.remove(&Key::new(bits, Plain(data))))
    }

    /// Removes all prefixes of one that nobody else changes.
    pub(super) fn clear(&mut self) -> Result<(), MapError> {
        let all: Result<Vec<_>, _> = self.iter().collect();
        for (bits, data) in all? {
            self.remove(bits, data)?;
        }
        Ok(())
    }

    /// All prefixes; others may be missed or seen twice while it changes.
    pub fn iter(&self) -> impl Iterator<Item = Result<(u32, K), MapError>> {
        self.0.keys().map(|key| {
            let key = key?;
            let Plain(data) = key.data();
            Ok((key.prefix_len(), data))
        })
    }
}

/// Whether what was to be removed was there.
fn was_there(removed: Result<(), MapError>) -> Result<bool, MapError> {
    match removed {
        Ok(()) => Ok(true),
        Err(MapError::KeyNotFound) => Ok(false),
        // Removal of a missing key is reported as a failed call.
        Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// An array map.
pub struct Elements<V: Pod> {
    map: Array<MapData, Plain<V>>,
    batch: Batch<u32, V>,
}

impl<V: Pod> Elements<V> {
    pub(super) fn take(maps: &mut impl Maps, name: &str) -> Result<Self, LoadError> {
        let map = maps.take(name)?;
        let batch = batch(&map, name)?;
        let map = typed(map, name, Array::try_from)?;
        Ok(Self { map, batch })
    }

    /// The element at an index.
    pub fn get(&self, index: u32) -> Result<V, MapError> {
        self.map.get(&index, 0).map(|Plain(value)| value)
    }

    /// Replaces an element.
    pub fn set(&mut self, index: u32, value: &V) -> Result<(), MapError> {
        self.map.set(index, Plain(*value), 0)
    }

    /// All elements, in few calls.
    pub(super) fn read(&self) -> io::Result<Vec<(u32, V)>> {
        self.batch.read()
    }

    pub(super) fn update_batch(&self, indices: &[u32], values: &[V]) -> BatchResult {
        self.batch.update(indices, values)
    }
}

/// An array map of 64-bit words, in memory that the kernel shares.
struct SharedArray {
    words: SharedWords,
    len: u32,
    /// Keeps the map open.
    _map: Array<MapData, u64>,
}

impl SharedArray {
    fn take(maps: &mut impl Maps, name: &'static str) -> Result<Self, LoadError> {
        let map = maps.take(name)?;
        let Map::Array(data) = &map else {
            return Err(LoadError::NoMap(name.to_owned()));
        };
        let info = data.info().map_err(|source| LoadError::Map {
            map: name.to_owned(),
            source,
        })?;
        let len = info.max_entries();
        let words = SharedWords::new(data.fd().as_fd(), len)
            .map_err(|source| LoadError::Share { map: name, source })?;
        let map = typed(map, name, Array::try_from)?;
        Ok(Self {
            words,
            len,
            _map: map,
        })
    }

    fn write(&self, base: u32, words: impl ExactSizeIterator<Item = u64>) -> bool {
        let end = u64::from(base) + words.len() as u64;
        end <= u64::from(self.len) && self.words.write(base, words)
    }

    fn get(&self, index: u32) -> Option<u64> {
        self.words.read(index).filter(|_| index < self.len)
    }
}

/// The set array.
pub struct Sets(SharedArray);

impl Sets {
    pub(super) fn take(maps: &mut impl Maps) -> Result<Self, LoadError> {
        SharedArray::take(maps, "SETS").map(Self)
    }

    /// Writes consecutive slots; whether they lie in the array.
    pub fn write(&self, base: u32, slots: &[Slot]) -> bool {
        let words = slots.iter().map(|slot| bytemuck::cast(*slot));
        self.0.write(base, words)
    }

    /// All slots.
    pub(super) fn read(&self) -> Vec<Slot> {
        (0..self.0.len)
            .filter_map(|index| self.get(index))
            .collect()
    }

    /// The slot at an index.
    pub fn get(&self, index: u32) -> Option<Slot> {
        self.0.get(index).map(bytemuck::cast)
    }
}

/// How often each element of the set array was drawn.
pub struct Draws(SharedArray);

impl Draws {
    pub(super) fn take(maps: &mut impl Maps) -> Result<Self, LoadError> {
        SharedArray::take(maps, "DRAWS").map(Self)
    }

    /// The counts of consecutive elements, as far as they lie in the array.
    pub fn of(&self, base: u32, len: u32) -> Vec<u64> {
        let all = base..base.saturating_add(len);
        all.map_while(|index| self.0.get(index)).collect()
    }

    /// Replaces the count of one element; whether it lies in the array.
    pub fn set(&self, index: u32, count: u64) -> bool {
        self.0.write(index, std::iter::once(count))
    }

    /// Starts counting consecutive elements anew; whether they lie in the array.
    pub fn reset(&self, base: u32, len: u32) -> bool {
        self.0.write(base, std::iter::repeat_n(0, len as usize))
    }
}

/// The counters of the programs.
pub struct Counters(PerCpuArray<MapData, u64>);

impl Counters {
    pub(super) fn take(maps: &mut impl Maps) -> Result<Self, LoadError> {
        let map = maps.take("COUNTERS")?;
        typed(map, "COUNTERS", PerCpuArray::try_from).map(Self)
    }

    /// The counters in this map.
    pub(super) fn new(map: Map) -> Result<Self, MapError> {
        PerCpuArray::try_from(map).map(Self)
    }

    /// The sum over all CPUs.
    pub fn get(&self, counter: Counter) -> Result<u64, MapError> {
        let values = self.0.get(&(counter as u32), 0)?;
        Ok(values.iter().sum())
    }
}

/// Kernel memory of a map in bytes, as the kernel accounts it.
pub(super) fn memory(map: &Map) -> io::Result<u64> {
    let (Map::Array(data)
    | Map::HashMap(data)
    | Map::LruHashMap(data)
    | Map::LpmTrie(data)
    | Map::PerCpuArray(data)
    | Map::RingBuf(data)) = map
    else {
        return Ok(0);
    };
    let fd = data.fd().as_fd().as_raw_fd();
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}"))?;
    let bytes = info
        .lines()
        .find_map(|line| line.strip_prefix("memlock:"))
        .and_then(|text| text.trim().parse().ok());
    bytes.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn batch<K: Pod, V: Pod>(map: &Map, name: &str) -> Result<Batch<K, V>, LoadError> {
    let shape = |source| LoadError::Map {
        map: name.to_owned(),
        source,
    };
    match map {
        Map::Array(data) | Map::HashMap(data) | Map::LruHashMap(data) => {
            Batch::new(data).map_err(shape)
        }
        _ => Err(shape(MapError::InvalidMapType { map_type: 0 })),
    }
}

pub(super) fn typed<T>(
    map: Map,
    name: &str,
    convert: impl FnOnce(Map) -> Result<T, MapError>,
) -> Result<T, LoadError> {
    convert(map).map_err(|source| LoadError::Map {
        map: name.to_owned(),
        source,
    })
}
