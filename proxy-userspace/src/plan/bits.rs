//! The two address bitmaps.
//!
//! Bits are set before a set that needs them is switched in. They are never cleared: a flow that is
//! still open may need them for as long as it lives. A restart goes on with those it finds.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proxy_common::abi::{bit_of, bits::WORDS};
use proxy_common::net::{Ip4, Ip6};

use super::op::{Bitmap, Op};

#[derive(Debug)]
pub(super) struct Bits {
    bitmap: Bitmap,
    words: Vec<u64>,
    changed: BTreeSet<u32>,
}

impl Bits {
    pub(super) fn new(bitmap: Bitmap) -> Self {
        Self {
            bitmap,
            words: vec![0; WORDS as usize],
            changed: BTreeSet::new(),
        }
    }

    /// Begins with the words that the tables hold.
    pub(super) fn adopt(&mut self, words: Vec<u64>) {
        for (own, word) in self.words.iter_mut().zip(words) {
            *own |= word;
        }
    }

    pub(super) fn set(&mut self, addr: IpAddr) {
        let (word, mask) = match addr {
            IpAddr::V4(v4) => bit_of(Ip4::from(v4)),
            IpAddr::V6(v6) => bit_of(Ip6::from(v6)),
        };
        if let Some(value) = self.words.get_mut(word as usize)
            && *value & mask == 0
        {
            *value |= mask;
            self.changed.insert(word);
        }
    }

    /// The words that changed since the last call.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Op> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|word| self.op(word))
    }

    /// What a word should be.
    pub(super) fn op(&self, word: u32) -> Op {
        Op::Bits {
            bitmap: self.bitmap,
            word,
            value: self.words.get(word as usize).copied().unwrap_or_default(),
        }
    }
}
