//! System calls that aya has no function for: maps in shared memory and many elements at a time.
#![expect(
    unsafe_code,
    reason = "raw system calls and memory that the kernel reads as well"
)]

mod read;

use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use aya::maps::{MapData, MapError};
use bytemuck::Pod;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Commands of bpf(2).
const BPF_MAP_UPDATE_BATCH: u32 = 26;
const BPF_MAP_DELETE_BATCH: u32 = 27;

/// An array map of 64-bit words, as memory.
#[derive(Debug)]
pub(super) struct SharedWords {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process and is reached through atomics only.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps the first `words` elements of an array map that was created mmapable.
    pub(super) fn new(map: BorrowedFd<'_>, words: u32) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let bytes = (words as usize * size_of::<u64>()).next_multiple_of(page);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                map,
                0,
            )
        }?;
        let start = NonNull::new(start).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { start, bytes })
    }

    /// The words. The kernel reads them at any time.
    const fn words(&self) -> &[AtomicU64] {
        let len = self.bytes / size_of::<u64>();
        // SAFETY: the mapping is page aligned, `bytes` long and lives as long as `self`; other
        // accesses, the kernel's among them, are atomic as well.
        unsafe { slice::from_raw_parts(self.start.as_ptr().cast(), len) }
    }

    /// Writes consecutive words; whether they fit.
    pub(super) fn write(&self, base: u32, values: impl ExactSizeIterator<Item = u64>) -> bool {
        let base = base as usize;
        let Some(target) = self.words().get(base..base + values.len()) else {
            return false;
        };
        for (word, value) in target.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        // Whoever sees what is written to other maps from here on sees these words too.
        fence(Ordering::Release);
        true
    }

    /// Reads one word.
    pub(super) fn read(&self, at: u32) -> Option<u64> {
        let word = self.words().get(at as usize)?;
        Some(word.load(Ordering::Relaxed))
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no slice of it outlives `self`.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A map of known key and value types, for commands that handle many elements.
#[derive(Debug)]
pub(super) struct Batch<K, V> {
    map: OwnedFd,
    types: PhantomData<fn(K, V)>,
}

/// The part of `union bpf_attr` that batch commands use.
#[repr(C)]
struct BatchAttr {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// How far a batch came, and why it ended early.
pub(super) type BatchResult = Result<(), (usize, io::Error)>;

impl<K: Pod, V: Pod> Batch<K, V> {
    /// The map, if its keys and values have the size of these types.
    pub(super) fn new(map: &MapData) -> Result<Self, MapError> {
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
    pub(super) fn update(&self, keys: &[K], values: &[V]) -> BatchResult {
        let count = keys.len().min(values.len());
        self.run(BPF_MAP_UPDATE_BATCH, keys.as_ptr(), values.as_ptr(), count)
    }

    /// Removes elements.
    pub(super) fn delete(&self, keys: &[K]) -> BatchResult {
        self.run(
            BPF_MAP_DELETE_BATCH,
            keys.as_ptr(),
            std::ptr::null(),
            keys.len(),
        )
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
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command,
                &raw mut attr,
                size_of::<BatchAttr>(),
            )
        };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // The kernel tells how many it did, but leaves the number alone when it did not begin.
        let done = attr.count as usize;
        Err((if done < count { done } else { 0 }, error))
    }
}
