//! Many elements of a map at a time.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use aya::maps::{MapData, MapError};
use bytemuck::Pod;

use super::bpf;
use super::walk::Elements;

/// Commands of bpf(2).
const BPF_MAP_LOOKUP_ELEM: u32 = 1;
const BPF_MAP_UPDATE_BATCH: u32 = 26;
const BPF_MAP_DELETE_BATCH: u32 = 27;

/// A map of known key and value types, for commands that handle many elements.
#[derive(Debug)]
pub(in crate::dataplane) struct Batch<K, V> {
    map: OwnedFd,
    types: PhantomData<fn(K, V)>,
}

/// The part of `union bpf_attr` that batch commands use.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct BatchAttr {
    pub(super) in_batch: u64,
    pub(super) out_batch: u64,
    pub(super) keys: u64,
    pub(super) values: u64,
    pub(super) count: u32,
    pub(super) map_fd: u32,
    pub(super) elem_flags: u64,
    pub(super) flags: u64,
}

/// The part of `union bpf_attr` that commands for one element use.
#[derive(Clone, Copy)]
#[repr(C)]
struct ElementAttr {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// How far a batch came, and why it ended early.
pub(in crate::dataplane) type BatchResult = Result<(), (usize, io::Error)>;

impl<K: Pod, V: Pod> Batch<K, V> {
    /// The map, if its keys and values have the size of these types.
    pub(in crate::dataplane) fn new(map: &MapData) -> Result<Self, MapError> {
        let info = map.info()?;
        let (key, value) = (info.key_size() as usize, info.value_size() as usize);
        if key != size_of::<K>() {
            let expected = size_of::<K>();
            return Err(MapError::InvalidKeySize {
                size: key,
                expected,
            });
        }
        if value != size_of::<V>() {
            let expected = size_of::<V>();
            return Err(MapError::InvalidValueSize {
                size: value,
                expected,
            });
        }
        let fd = map
            .fd()
            .as_fd()
            .try_clone_to_owned()
            .map_err(MapError::IoError)?;
        Ok(Self {
            map: fd,
            types: PhantomData,
        })
    }

    /// Writes elements, created where they do not exist; pairs as many as the shorter slice has.
    pub(in crate::dataplane) fn update(&self, keys: &[K], values: &[V]) -> BatchResult {
        let count = keys.len().min(values.len());
        self.run(BPF_MAP_UPDATE_BATCH, keys.as_ptr(), values.as_ptr(), count)
    }

    /// Removes elements.
    pub(in crate::dataplane) fn delete(&self, keys: &[K]) -> BatchResult {
        self.run(
            BPF_MAP_DELETE_BATCH,
            keys.as_ptr(),
            std::ptr::null(),
            keys.len(),
        )
    }

    /// The value at a key. To an LRU map, that is no use of the element.
    pub(in crate::dataplane) fn get(&self, key: &K) -> io::Result<Option<V>> {
        let mut value = V::zeroed();
        let mut attr = ElementAttr {
            map_fd: self.map.as_raw_fd().cast_unsigned(),
            pad: 0,
            key: (&raw const *key).addr() as u64,
            value: (&raw mut value).addr() as u64,
            flags: 0,
        };
        // SAFETY: the kernel reads a key and writes a value of the map's sizes, which `new` compared
        // with those of the types; any bytes are a value of a type that is `Pod`.
        match unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &mut attr) } {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All elements. What changes meanwhile may be missed or seen twice.
    pub(in crate::dataplane) fn read(&self) -> io::Result<Vec<(K, V)>> {
        let mut all = Vec::new();
        self.walk(|key, value| {
            all.push((key, value));
            Ok(())
        })?;
        Ok(all)
    }

    /// Gives `take` all elements, as [`Self::read`] would return them.
    pub(in crate::dataplane) fn walk(
        &self,
        mut take: impl FnMut(K, V) -> io::Result<()>,
    ) -> io::Result<()> {
        let elements = Elements::of(self.map.as_fd(), size_of::<K>(), size_of::<V>());
        elements.walk(|keys, values| {
            let keys = keys.chunks_exact(size_of::<K>());
            let values = values.chunks_exact(size_of::<V>());
            for (key, value) in keys.zip(values) {
                take(
                    bytemuck::pod_read_unaligned(key),
                    bytemuck::pod_read_unaligned(value),
                )?;
            }
            Ok(())
        })
    }

    /// `keys` and `values` hold `count` elements each, but for `values` in a deletion.
    fn run(&self, command: u32, keys: *const K, values: *const V, count: usize) -> BatchResult {
        if count == 0 {
            return Ok(());
        }
        let mut attr = BatchAttr {
            in_batch: 0,
            out_batch: 0,
            keys: keys.addr() as u64,
            values: values.addr() as u64,
            count: count as u32,
            map_fd: self.map.as_raw_fd().cast_unsigned(),
            elem_flags: 0,
            flags: 0,
        };
        // SAFETY: `attr` is the batch part of `union bpf_attr`. The kernel reads `count` keys and
        // values of the map's sizes, which `new` compared with those of the types, from slices
        // that outlive the call and are that long.
        let result = unsafe { bpf(command, &mut attr) };
        let Err(error) = result else {
            return Ok(());
        };
        // The kernel tells how many it did, but leaves the number alone when it did not begin.
        let done = attr.count as usize;
        Err((if done < count { done } else { 0 }, error))
    }
}
