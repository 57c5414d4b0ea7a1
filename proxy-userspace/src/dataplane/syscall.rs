//! System calls that aya has no function for: maps in shared memory, many elements at a time, pins
//! and links by the index of a device.
#![expect(
    unsafe_code,
    reason = "raw system calls and memory that the kernel reads as well"
)]

mod batch;
pub(super) mod link;
pub(super) mod pin;
pub(super) mod program;
pub(super) mod run;
mod shared;
mod walk;

use std::io;

pub(super) use batch::{Batch, BatchResult};
pub(super) use shared::SharedWords;
pub(super) use walk::Elements;

/// Calls bpf(2).
///
/// # Safety
///
/// `attr` is the part of `union bpf_attr` for `command`, and its pointers lead to what the kernel
/// expects there.
unsafe fn bpf<T>(command: u32, attr: &mut T) -> io::Result<i32> {
    // SAFETY: the caller answers for it; the kernel reads no more of `attr` than its size.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attr, size_of::<T>()) };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
