//! Programs of others: the smallest there are, each returns one verdict.
#![expect(
    unsafe_code,
    reason = "raw bpf(2): what others do is not done by our own code"
)]

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use xtask::lab::Host;

/// Goes on to the next program.
pub(super) const NEXT: i32 = -1;
/// Lets the packet pass and ends the chain.
pub(super) const OK: i32 = 0;

pub(super) const INGRESS: u32 = 46;
pub(super) const EGRESS: u32 = 47;

/// Before all others.
pub(super) const FIRST: u32 = 1 << 3;
/// After all others.
pub(super) const LAST: u32 = 1 << 4;

/// A loaded program.
pub(super) struct Foreign {
    fd: OwnedFd,
}

impl Foreign {
    /// A program of this name that returns `verdict`.
    pub(super) fn new(name: &str, verdict: i32) -> Self {
        // r0 = verdict; exit
        let code = [0xb7 | u64::from(verdict.cast_unsigned()) << 32, 0x95];
        let license = c"GPL";
        let mut attr = LoadAttr {
            kind: 3,
            instructions: 2,
            code: code.as_ptr().addr() as u64,
            license: license.as_ptr().addr() as u64,
            ..LoadAttr::default()
        };
        attr.name[..name.len()].copy_from_slice(name.as_bytes());
        Self {
            fd: bpf(5, &mut attr).unwrap(),
        }
    }

    /// Attaches it to a device of a host until the result is dropped.
    pub(super) fn attach(&self, host: &Host, device: &str, hook: u32, end: u32) -> OwnedFd {
        let create = || {
            let index = rustix::net::netdevice::name_to_index(
                rustix::net::socket(
                    rustix::net::AddressFamily::INET,
                    rustix::net::SocketType::DGRAM,
                    None,
                )?,
                device,
            )?;
            let mut attr = [
                self.fd.as_raw_fd().cast_unsigned(),
                index,
                hook,
                end,
                0,
                0,
                0,
                0,
            ];
            Ok(bpf(28, &mut attr)?)
        };
        host.namespace.enter(create).unwrap()
    }

    /// Attaches it by a filter, as agents did before there was TCX; `at` is where, in the words of
    /// `tc`, and `name` is the filter's.
    pub(super) fn filter(&self, host: &Host, device: &str, at: &str, name: &str) {
        let path = format!("/sys/fs/bpf/{name}-{}", std::process::id());
        let c_path = std::ffi::CString::new(path.clone()).unwrap();
        let mut attr = [
            c_path.as_ptr().addr() as u64,
            self.fd.as_raw_fd().cast_unsigned().into(),
        ];
        // SAFETY: the path outlives the call.
        let pinned = unsafe { libc::syscall(libc::SYS_bpf, 6, &raw mut attr, size_of_val(&attr)) };
        assert_eq!(0, pinned, "{}", io::Error::last_os_error());
        let output = host
            .namespace
            .command("tc")
            .args(["filter", "add", "dev", device])
            .args(at.split(' '))
            .args("handle 1 bpf direct-action object-pinned".split(' '))
            .arg(&path)
            .output()
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

/// The part of `union bpf_attr` that loads a program.
#[derive(Default)]
#[repr(C)]
struct LoadAttr {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log: [u64; 2],
    version: u32,
    flags: u32,
    name: [u8; 16],
}

/// A command that returns a descriptor.
fn bpf<T>(command: u32, attr: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the callers' attributes are those of their commands, and what they point to lives.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attr, size_of::<T>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
