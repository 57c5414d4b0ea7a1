//! Runs a program on bytes that stand for a packet.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use super::bpf;

/// Commands of bpf(2).
const BPF_PROG_TEST_RUN: u32 = 10;

/// The part of `union bpf_attr` for that.
#[repr(C)]
struct RunAttr {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

/// Runs `program` once on `packet` and returns what it returned.
pub(in crate::dataplane) fn run(program: impl AsFd, packet: &[u8]) -> io::Result<u32> {
    let mut attr = RunAttr {
        prog_fd: program.as_fd().as_raw_fd().cast_unsigned(),
        retval: 0,
        data_size_in: u32::try_from(packet.len()).unwrap_or(u32::MAX),
        data_size_out: 0,
        data_in: packet.as_ptr().addr() as u64,
        data_out: 0,
        repeat: 1,
        duration: 0,
    };
    // SAFETY: `attr` is the part of `union bpf_attr` for this command; the kernel reads
    // `data_size_in` bytes of `packet`, which has that many, and writes none.
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut attr) }?;
    Ok(attr.retval)
}
