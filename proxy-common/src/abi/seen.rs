//! What the witnesses of a device count.

use bytemuck::{Pod, Zeroable};

/// Packets that may be for a Service, by where they were met at the ingress of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Seen {
    /// Before all other programs.
    pub first: u64,
    /// Right before ours.
    pub last: u64,
}

const _: () = assert!(size_of::<Seen>() == 16);
