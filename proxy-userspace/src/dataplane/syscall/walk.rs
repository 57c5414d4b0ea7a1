//! All elements of a map, as bytes.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;

use super::batch::BatchAttr;
use super::bpf;

/// Commands of bpf(2).
const BPF_MAP_LOOKUP_BATCH: u32 = 24;
const BPF_MAP_UPDATE_BATCH: u32 = 26;

/// Elements that are asked for at once. A hash map refuses to begin when one of its buckets holds
/// more than that, which is out of the question here.
const AT_ONCE: usize = 4096;

/// A map of known key and value sizes.
#[derive(Clone, Copy, Debug)]
pub(in crate::dataplane) struct Elements<'a> {
    map: BorrowedFd<'a>,
    key: usize,
    value: usize,
}

impl<'a> Elements<'a> {
    /// The caller answers for the sizes: those that the map was created with.
    pub(super) const fn of(map: BorrowedFd<'a>, key: usize, value: usize) -> Self {
        Self { map, key, value }
    }

    /// The elements of a map that is not a per-CPU one, by the sizes that the kernel tells.
    pub(in crate::dataplane) fn new(data: &'a aya::maps::MapData) -> io::Result<Self> {
        use std::os::fd::AsFd as _;
        let info = data.info().map_err(io::Error::other)?;
        let (key, value) = (info.key_size() as usize, info.value_size() as usize);
        Ok(Self::of(data.fd().as_fd(), key, value))
    }

    /// Another map of the same sizes.
    pub(in crate::dataplane) const fn like<'b>(&self, map: BorrowedFd<'b>) -> Elements<'b> {
        Elements::of(map, self.key, self.value)
    }

    /// Gives `take` the keys and the values, some at a time.
    pub(in crate::dataplane) fn walk(
        &self,
        mut take: impl FnMut(&[u8], &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        // The kernel's own note of how far it came: the size of a key, at least of a word.
        let mut place = vec![0_u8; self.key.max(size_of::<u64>())];
        let mut next = place.clone();
        let mut keys = vec![0_u8; AT_ONCE * self.key];
        let mut values = vec![0_u8; AT_ONCE * self.value];
        let mut is_first = true;
        loop {
            let mut attr = BatchAttr {
                in_batch: if is_first {
                    0
                } else {
                    place.as_ptr().addr() as u64
                },
                out_batch: next.as_mut_ptr().addr() as u64,
                keys: keys.as_mut_ptr().addr() as u64,
                values: values.as_mut_ptr().addr() as u64,
                count: AT_ONCE as u32,
                map_fd: self.map.as_raw_fd().cast_unsigned(),
                elem_flags: 0,
                flags: 0,
            };
            // SAFETY: the kernel writes up to `count` keys and values of the map's sizes, for which
            // there is room, and its note of the place, which is no longer than a key or a word.
            let result = unsafe { bpf(BPF_MAP_LOOKUP_BATCH, &mut attr) };
            let is_last = match result {
                Ok(_) => false,
                Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => true,
                Err(error) => return Err(error),
            };
            let count = (attr.count as usize).min(AT_ONCE);
            let (found, _) = keys.split_at(count * self.key);
            let (known, _) = values.split_at(count * self.value);
            take(found, known)?;
            if is_last {
                return Ok(());
            }
            is_first = false;
            std::mem::swap(&mut place, &mut next);
        }
    }

    /// Copies all elements to a map of the same sizes, as far as they fit; returns how many.
    pub(in crate::dataplane) fn copy_to(&self, other: &Self) -> io::Result<usize> {
        if (self.key, self.value) != (other.key, other.value) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut copied = 0;
        self.walk(|keys, values| {
            let count = keys.len() / self.key;
            if count == 0 {
                return Ok(());
            }
            let mut attr = BatchAttr {
                in_batch: 0,
                out_batch: 0,
                keys: keys.as_ptr().addr() as u64,
                values: values.as_ptr().addr() as u64,
                count: count as u32,
                map_fd: other.map.as_raw_fd().cast_unsigned(),
                elem_flags: 0,
                flags: 0,
            };
            // SAFETY: the kernel reads `count` keys and values of the map's sizes, which are those
            // that the slices were cut by.
            unsafe { bpf(BPF_MAP_UPDATE_BATCH, &mut attr) }?;
            copied += count;
            Ok(())
        })?;
        Ok(copied)
    }
}
