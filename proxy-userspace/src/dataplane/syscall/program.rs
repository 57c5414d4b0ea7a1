//! Programs of others.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

use bytemuck::{Pod, Zeroable};

use super::bpf;
use super::link::InfoAttr;

/// Commands of bpf(2).
const BPF_PROG_GET_FD_BY_ID: u32 = 13;
const BPF_OBJ_GET_INFO_BY_FD: u32 = 15;

/// The part of `union bpf_attr` that names an object by its number.
#[repr(C)]
struct IdAttr {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// The beginning of `struct bpf_prog_info`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    /// Tag, lengths and addresses of the code, times, numbers of the maps.
    skipped: [u64; 7],
    name: [u8; 16],
}

/// Opens a program by its number, which takes `CAP_SYS_ADMIN`.
pub(in crate::dataplane) fn by_id(id: u32) -> io::Result<OwnedFd> {
    let mut attr = IdAttr {
        id,
        next_id: 0,
        open_flags: 0,
    };
    // SAFETY: `attr` is the part of `union bpf_attr` for this command and holds no pointer.
    let fd = unsafe { bpf(BPF_PROG_GET_FD_BY_ID, &mut attr) }?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Number and name of a program; the kernel keeps the first 15 letters.
pub(in crate::dataplane) fn id_and_name(program: impl AsFd) -> io::Result<(u32, String)> {
    let mut info = ProgramInfo::zeroed();
    let mut attr = InfoAttr {
        bpf_fd: program.as_fd().as_raw_fd().cast_unsigned(),
        info_len: size_of::<ProgramInfo>() as u32,
        info: (&raw mut info).addr() as u64,
    };
    // SAFETY: the kernel writes at most `info_len` bytes to `info`, which has that many.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr) }?;
    let name = info.name.split(|byte| *byte == 0).next();
    let name = String::from_utf8_lossy(name.unwrap_or_default());
    Ok((info.id, name.into_owned()))
}
