//! An array map in memory that the kernel shares.

use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// An array map of 64-bit words, as memory.
#[derive(Debug)]
pub(in crate::dataplane) struct SharedWords {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process and is reached through atomics only.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps the first `words` elements of an array map that was created mmapable.
    pub(in crate::dataplane) fn new(map: BorrowedFd<'_>, words: u32) -> io::Result<Self> {
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
    pub(in crate::dataplane) fn write(
        &self,
        base: u32,
        values: impl ExactSizeIterator<Item = u64>,
    ) -> bool {
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
    pub(in crate::dataplane) fn read(&self, at: u32) -> Option<u64> {
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
