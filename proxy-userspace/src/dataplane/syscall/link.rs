//! Links to TCX, by the index of the device: a name may be another device's by now.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use bytemuck::{Pod, Zeroable};

use super::bpf;

/// Commands of bpf(2).
const BPF_OBJ_GET_INFO_BY_FD: u32 = 15;
const BPF_PROG_QUERY: u32 = 16;
const BPF_LINK_CREATE: u32 = 28;
const BPF_LINK_UPDATE: u32 = 29;
const BPF_LINK_DETACH: u32 = 34;

const BPF_LINK_TYPE_TCX: u32 = 11;
const BPF_F_BEFORE: u32 = 1 << 3;
const BPF_F_AFTER: u32 = 1 << 4;
const BPF_F_LINK: u32 = 1 << 13;

/// Which hook of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Direction {
    /// Packets that come in by the device.
    Ingress = 46,
    /// Packets that go out by the device.
    Egress = 47,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        })
    }
}

/// The part of `union bpf_attr` that creates a link to TCX.
#[repr(C)]
struct CreateAttr {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
    relative: u32,
    pad: u32,
    expected_revision: u64,
}

/// Where among the programs at a hook.
#[derive(Clone, Copy, Debug)]
pub(in crate::dataplane) enum Position<'a> {
    /// Before all others.
    First,
    /// After all others.
    Last,
    /// Right before a link.
    Before(BorrowedFd<'a>),
}

/// Attaches a program to a device. One program can be only once at a hook.
pub(in crate::dataplane) fn create(
    program: impl AsFd,
    device: u32,
    direction: Direction,
    position: Position<'_>,
) -> io::Result<OwnedFd> {
    let (flags, relative) = match position {
        Position::First => (BPF_F_BEFORE, 0),
        Position::Last => (BPF_F_AFTER, 0),
        Position::Before(link) => (BPF_F_BEFORE | BPF_F_LINK, link.as_raw_fd().cast_unsigned()),
    };
    let mut attr = CreateAttr {
        prog_fd: program.as_fd().as_raw_fd().cast_unsigned(),
        target_ifindex: device,
        attach_type: direction as u32,
        flags,
        relative,
        pad: 0,
        expected_revision: 0,
    };
    // SAFETY: `attr` is the part of `union bpf_attr` for this command and holds no pointer.
    let fd = unsafe { bpf(BPF_LINK_CREATE, &mut attr) }?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The part of `union bpf_attr` that updates a link.
#[repr(C)]
struct UpdateAttr {
    link_fd: u32,
    new_prog_fd: u32,
    flags: u32,
    old_prog_fd: u32,
}

/// Puts another program in the place of a link's, between two packets.
pub(in crate::dataplane) fn update(link: impl AsFd, program: impl AsFd) -> io::Result<()> {
    let mut attr = UpdateAttr {
        link_fd: link.as_fd().as_raw_fd().cast_unsigned(),
        new_prog_fd: program.as_fd().as_raw_fd().cast_unsigned(),
        flags: 0,
        old_prog_fd: 0,
    };
    // SAFETY: `attr` is the part of `union bpf_attr` for this command and holds no pointer.
    unsafe { bpf(BPF_LINK_UPDATE, &mut attr) }.map(drop)
}

/// Takes a link off its device, whoever else holds it open.
pub(in crate::dataplane) fn detach(link: impl AsFd) -> io::Result<()> {
    let mut link = link.as_fd().as_raw_fd().cast_unsigned();
    // SAFETY: this command reads the one word.
    unsafe { bpf(BPF_LINK_DETACH, &mut link) }.map(drop)
}

/// What the kernel says of a link: the beginning of `struct bpf_link_info`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::dataplane) struct LinkInfo {
    kind: u32,
    /// Number of the link.
    pub(in crate::dataplane) id: u32,
    /// Number of its program.
    pub(in crate::dataplane) program: u32,
    pad: u32,
    /// Index of the device, 0 once that is gone; in the namespace that it is in by now.
    pub(in crate::dataplane) device: u32,
    direction: u32,
}

/// The part of `union bpf_attr` that asks what an object is.
#[repr(C)]
pub(super) struct InfoAttr {
    pub(super) bpf_fd: u32,
    pub(super) info_len: u32,
    pub(super) info: u64,
}

/// What the kernel says of a link to TCX.
pub(in crate::dataplane) fn info(link: impl AsFd) -> io::Result<LinkInfo> {
    let mut info = LinkInfo::zeroed();
    let mut attr = InfoAttr {
        bpf_fd: link.as_fd().as_raw_fd().cast_unsigned(),
        info_len: size_of::<LinkInfo>() as u32,
        info: (&raw mut info).addr() as u64,
    };
    // SAFETY: the kernel writes at most `info_len` bytes to `info`, which has that many.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr) }?;
    if info.kind != BPF_LINK_TYPE_TCX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(info)
}

/// The part of `union bpf_attr` that asks what is attached.
#[repr(C)]
struct QueryAttr {
    target_ifindex: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    count: u32,
    pad: u32,
    prog_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
}

/// A program at a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dataplane) struct Attached {
    /// Number of the program.
    pub(in crate::dataplane) program: u32,
    /// Number of the link, 0 where there is none.
    pub(in crate::dataplane) link: u32,
}

/// What is attached to a device of this network namespace, in the order in which packets meet it.
pub(in crate::dataplane) fn chain(device: u32, direction: Direction) -> io::Result<Vec<Attached>> {
    let mut programs = [0_u32; MOST];
    let mut links = [0_u32; MOST];
    let mut attr = QueryAttr {
        target_ifindex: device,
        attach_type: direction as u32,
        query_flags: 0,
        attach_flags: 0,
        prog_ids: programs.as_mut_ptr().addr() as u64,
        count: MOST as u32,
        pad: 0,
        prog_attach_flags: 0,
        link_ids: links.as_mut_ptr().addr() as u64,
        link_attach_flags: 0,
        revision: 0,
    };
    // SAFETY: the kernel writes at most `count` words to each of the arrays, which have that many.
    match unsafe { bpf(BPF_PROG_QUERY, &mut attr) } {
        Ok(_) => {}
        // Nothing was ever attached there.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    }
    let pairs = programs.into_iter().zip(links);
    let all = pairs.map(|(program, link)| Attached { program, link });
    Ok(all.take_while(|one| one.program != 0).collect())
}

/// Whether the kernel has TCX; one that has not knows no such kind of attachment.
pub(in crate::dataplane) fn is_supported() -> bool {
    chain(LOOPBACK, Direction::Ingress).is_ok()
}

/// In every network namespace.
const LOOPBACK: u32 = 1;

/// The kernel has no more places at one hook of a device.
const MOST: usize = 64;
