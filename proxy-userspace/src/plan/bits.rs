//! The two bitmaps.
//!
//! Bits are set before a set that needs them is switched in. They are never cleared: a flow that is
//! still open may need them for as long as it lives. A restart goes on with those it finds.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proxy_common::abi::bits::{WORDS, bit_of, socket_bit_of};
use proxy_common::net::{Ip4, Ip6, Port};

use super::op::{Bitmap, Op, Socket};

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

    /// Sets the bit of an address.
    pub(super) fn set(&mut self, addr: IpAddr) {
        self.set_bit(match addr {
            IpAddr::V4(v4) => bit_of(Ip4::from(v4)),
            IpAddr::V6(v6) => bit_of(Ip6::from(v6)),
        });
    }

    /// Sets the bits of an endpoint: its address's, and that of the whole.
    pub(super) fn set_socket(&mut self, at: Socket) {
        self.set(at.addr);
        let port = Port::new(at.port);
        self.set_bit(match at.addr {
            IpAddr::V4(v4) => socket_bit_of(Ip4::from(v4), port, at.proto),
            IpAddr::V6(v6) => socket_bit_of(Ip6::from(v6), port, at.proto),
        });
    }

    fn set_bit(&mut self, (word, mask): (u32, u64)) {
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
