//! What becomes of a packet.

use crate::abi::Counter;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// On its way as it came.
    Pass,
    /// On its way with other addresses or ports.
    Rewritten,
    /// On its way as it came, with a mark by which netfilter rejects it.
    Rejected,
    /// Dropped, for the reason counted.
    Drop(Counter),
}

impl Verdict {
    /// The word, to be returned by a global function.
    #[inline(always)]
    pub const fn word(self) -> u32 {
        match self {
            Self::Pass => 0,
            Self::Rewritten => 1,
            Self::Rejected => 2,
            Self::Drop(reason) => reason as u32 + 3,
        }
    }

    /// The verdict that a global function returned.
    #[inline(always)]
    pub const fn of_word(word: u32) -> Self {
        match (word, Counter::from_index(word.wrapping_sub(3))) {
            (1, _) => Self::Rewritten,
            (2, _) => Self::Rejected,
            (_, Some(reason)) => Self::Drop(reason),
            _ => Self::Pass,
        }
    }
}

/// What is to be done with a packet, in one word: the BPF target returns nothing larger from a
/// function that stays a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step(u32);

impl Step {
    /// Rewrite it.
    pub const REWRITE: Self = Self(0);
    /// Leave it alone.
    pub const PASS: Self = Self(1);
    /// The part that was asked has nothing to say.
    pub const NONE: Self = Self(2);

    /// It opens a flow.
    pub const OPEN: Self = Self(3);

    /// Somebody else's flow stands where this one would.
    pub const TAKEN: Self = Self(4);

    /// It goes straight to an endpoint and opens a flow there.
    pub const DIRECT: Self = Self(5);

    /// Have netfilter reject it.
    pub const REJECT: Self = Self(6);

    /// Drop it, for this reason.
    #[inline(always)]
    pub const fn drop(reason: Counter) -> Self {
        Self(reason as u32 + 7)
    }

    /// The reason to drop, if this says so.
    #[inline(always)]
    pub const fn dropped(self) -> Option<Counter> {
        Counter::from_index(self.0.wrapping_sub(7))
    }

    /// The word, to be returned by a global function.
    #[inline(always)]
    pub const fn word(self) -> u32 {
        self.0
    }

    /// The step that a global function returned.
    #[inline(always)]
    pub const fn of_word(word: u32) -> Self {
        Self(word)
    }
}
