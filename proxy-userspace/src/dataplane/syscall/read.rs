//! All elements of a map, many at a time.

use std::io;
use std::os::fd::AsRawFd as _;

use bytemuck::Pod;
use rustix::io::Errno;

use super::{Batch, BatchAttr};

/// Command of bpf(2).
const BPF_MAP_LOOKUP_BATCH: u32 = 24;

/// Elements that are asked for at once. A hash map refuses to begin when one of its buckets holds
/// more than that, which is out of the question here.
const AT_ONCE: usize = 4096;

impl<K: Pod, V: Pod> Batch<K, V> {
    /// All elements. What changes meanwhile may be missed or seen twice.
    pub(in crate::dataplane) fn read(&self) -> io::Result<Vec<(K, V)>> {
        // The kernel's own note of how far it came: the size of a key, at least of a word.
        let mut place = vec![0_u64; size_of::<K>().div_ceil(8).max(1)];
        let mut next = place.clone();
        let mut keys = vec![K::zeroed(); AT_ONCE];
        let mut values = vec![V::zeroed(); AT_ONCE];
        let mut all = Vec::new();
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
            // SAFETY: the kernel writes up to `count` keys and values of the map's sizes, which
            // `new` compared with those of the types, where there is room for as many, and its
            // note of the place, which is no longer than a key or a word.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_bpf,
                    BPF_MAP_LOOKUP_BATCH,
                    &raw mut attr,
                    size_of::<BatchAttr>(),
                )
            };
            let is_last = match (result, io::Error::last_os_error()) {
                (0, _) => false,
                (_, error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => true,
                (_, error) => return Err(error),
            };
            let found = keys.iter().zip(&values).take(attr.count as usize);
            all.extend(found.map(|(key, value)| (*key, *value)));
            if is_last {
                return Ok(all);
            }
            is_first = false;
            std::mem::swap(&mut place, &mut next);
        }
    }
}
