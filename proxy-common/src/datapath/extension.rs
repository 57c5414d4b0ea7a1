//! IPv6 extension headers: where the transport header stands behind them.

use crate::net::ipv6::{self, FragmentHeader};
use crate::net::{Piece, Proto};

/// How far from the beginning of the packet is looked, in bytes.
const MAX_OFFSET: usize = 0x3fff;

/// How many headers are passed over at most.
const MAX_HEADERS: u32 = 6;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

/// What stands at the end of a chain of headers, in one word, as the BPF target returns it from a
/// function that stays a call.
///
/// | bits | meaning |
/// | --- | --- |
/// | 0–7 | its protocol |
/// | 8–21 | its offset in the packet, in bytes |
/// | 22–23 | the [`Piece`] of a datagram that it begins |
/// | 24–31 | the fragment header's distance from the first one, in units of 8 bytes |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain(u32);

impl Chain {
    #[inline(always)]
    const fn new(proto: u8, at: usize, piece: Piece, fragment: u32) -> Self {
        Self(
            proto as u32
                | (at as u32 & MAX_OFFSET as u32) << 8
                | (piece as u32) << 22
                | fragment << 24,
        )
    }

    /// The word, to be returned by a global function.
    #[inline(always)]
    pub const fn word(self) -> u32 {
        self.0
    }

    /// The chain that a global function returned.
    #[inline(always)]
    pub const fn of_word(word: u32) -> Self {
        Self(word)
    }

    /// Protocol of what stands there. One of an extension header, if that could not be passed over.
    #[inline(always)]
    pub const fn proto(self) -> Proto {
        Proto(self.0 as u8)
    }

    /// Where it stands in the packet, in bytes.
    #[inline(always)]
    pub const fn offset(self) -> usize {
        (self.0 >> 8) as usize & MAX_OFFSET
    }

    /// Which piece of a datagram it begins.
    #[inline(always)]
    pub const fn piece(self) -> Piece {
        match self.0 >> 22 & 3 {
            0 => Piece::Whole,
            1 => Piece::First,
            _ => Piece::Later,
        }
    }

    /// How far behind the first header the fragment header stands, in bytes, if there is one.
    #[inline(always)]
    pub const fn fragment(self) -> usize {
        (self.0 >> 24 << 3) as usize
    }
}

/// Whether a header is one of those that are passed over.
#[inline(always)]
pub const fn is_passed_over(next: Proto) -> bool {
    matches!(
        next.0,
        HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION
    )
}

/// Passes over the headers from `from` on, the first of which is `next`; `load` reads eight bytes
/// at an offset, and no header is shorter.
#[inline(always)]
pub fn pass_over(load: impl Fn(usize) -> Option<[u8; 8]>, from: usize, next: Proto) -> Chain {
    let (mut at, mut next) = (from, next.0);
    let (mut piece, mut fragment) = (Piece::Whole, 0);
    let mut left = MAX_HEADERS;
    while left > 0 && is_passed_over(Proto(next)) {
        left -= 1;
        let Some(header) = load(at) else {
            break;
        };
        let [following, len, _, segments_left, ..] = header;
        let len = len as usize;
        let begin = at;
        match next {
            FRAGMENT => {
                let distance = at - from;
                // Fragments of fragments, or one too far behind to say where.
                if piece != Piece::Whole || distance > 0xff << 3 || distance & 7 != 0 {
                    break;
                }
                let header: FragmentHeader = bytemuck::cast(header);
                piece = header.piece();
                fragment = distance as u32 >> 3;
                at += size_of::<FragmentHeader>();
                if piece == Piece::Later {
                    return Chain::new(following, at, piece, fragment);
                }
            }
            // The destination is not the last one yet, for which the checksum is made.
            ROUTING if segments_left > 0 => break,
            AUTHENTICATION => at += (len + 2) * 4,
            _ => at += (len + 1) * 8,
        }
        // In what an ICMP error quotes.
        if at > MAX_OFFSET {
            at = begin;
            break;
        }
        next = following;
    }
    Chain::new(next, at, piece, fragment)
}

const _: () = assert!(ipv6::LEN + 14 + MAX_HEADERS as usize * 2048 <= MAX_OFFSET);
