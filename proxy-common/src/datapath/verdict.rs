//! What becomes of a packet.

use crate::abi::Counter;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// On its way as it came.
    Pass,
    /// On its way with other addresses or ports.
    Rewritten,
    /// Dropped, for the reason counted.
    Drop(Counter),
}

/// What is to be done with a packet.
///
/// One word, because the BPF target returns nothing larger from a function that stays a call; the
/// new addresses go by way of a [`super::rewrite::Change`] that the caller holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Rewrite it.
    Rewrite,
    /// Leave it alone.
    Pass,
    /// Drop it.
    Drop(Counter),
}

const _: () = assert!(size_of::<Step>() == 4);
