//! Pins, and the name of the network namespace that is never used again.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::net::{AddressFamily, SocketType, socket};

use super::bpf;

/// Commands of bpf(2).
const BPF_OBJ_PIN: u32 = 6;
const BPF_OBJ_GET: u32 = 7;

/// The part of `union bpf_attr` that these commands use.
#[repr(C)]
struct ObjectAttr {
    pathname: u64,
    bpf_fd: u32,
    file_flags: u32,
}

/// Pins a map or a link at a path that does not exist yet.
pub(in crate::dataplane) fn pin(object: impl AsFd, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = ObjectAttr {
        pathname: path.as_ptr().addr() as u64,
        bpf_fd: object.as_fd().as_raw_fd().cast_unsigned(),
        file_flags: 0,
    };
    // SAFETY: the path ends in a zero byte and outlives the call.
    unsafe { bpf(BPF_OBJ_PIN, &mut attr) }.map(drop)
}

/// Opens what is pinned at a path.
pub(in crate::dataplane) fn open(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = ObjectAttr {
        pathname: path.as_ptr().addr() as u64,
        bpf_fd: 0,
        file_flags: 0,
    };
    // SAFETY: the path ends in a zero byte and outlives the call.
    let fd = unsafe { bpf(BPF_OBJ_GET, &mut attr) }?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The cookie of the network namespace that this thread is in.
pub(in crate::dataplane) fn netns_cookie() -> io::Result<u64> {
    let any = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `cookie`, which has that many.
    let result = unsafe {
        libc::getsockopt(
            any.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(cookie)
}

/// Linux 5.14.
const SO_NETNS_COOKIE: RawFd = 71;
