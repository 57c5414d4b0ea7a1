//! What clients and servers of a lab say to each other.
//!
//! The server speaks first: it greets a TCP connection with its [`Answer`], as it answers every
//! datagram. After that a TCP client may send commands, one a line:
//! `echo TEXT`, `take BYTES SEED` followed by that many bytes, `give BYTES SEED`.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Error, Result};

/// How long anybody waits for anything.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The largest datagram, in bytes.
pub(super) const LARGEST: usize = 65_536;

/// What a server says of a payload that arrived as it should.
pub(super) const SAME: &str = "same";

/// Who answered, and what it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Name of the server.
    pub name: String,
    /// The server's own address, as it stands on its socket.
    pub local: SocketAddr,
    /// The client's address, as the server sees it.
    pub peer: SocketAddr,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.local, self.peer)
    }
}

impl FromStr for Answer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split_whitespace();
        let mut next = || words.next().with_context(|| format!("no answer: {text:?}"));
        Ok(Self {
            name: next()?.to_owned(),
            local: next()?.parse()?,
            peer: next()?.parse()?,
        })
    }
}

/// Endless bytes that follow from a seed; two parties that know it can tell every wrong byte.
///
/// A repeated block, and not fresh numbers, for an unoptimised build has to keep up with the
/// network. Its length has no factor in common with sizes of segments and buffers, so that what
/// is lost, doubled or swapped does not match.
#[derive(Debug)]
pub(super) struct Payload {
    block: Vec<u8>,
}

impl Payload {
    /// The bytes of this seed.
    pub(super) fn new(seed: u64) -> Self {
        let mut state = seed.wrapping_mul(2) | 1;
        let mut block = Vec::with_capacity(PERIOD + PIECE + 8);
        while block.len() < PERIOD {
            // xorshift
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            block.extend_from_slice(&state.to_le_bytes());
        }
        block.truncate(PERIOD);
        // Once more from the start: a piece may begin anywhere and is never in two parts.
        block.extend_from_within(..PIECE);
        Self { block }
    }

    /// Sends the first `length` bytes.
    pub(super) fn send(&self, to: &mut impl Write, length: usize) -> io::Result<()> {
        self.pieces(length)
            .try_for_each(|piece| to.write_all(piece))?;
        to.flush()
    }

    /// Receives `length` bytes and fails unless they are the first.
    pub(super) fn receive(&self, from: &mut impl Read, length: usize) -> io::Result<()> {
        let mut buffer = [0; PIECE];
        let mut position = 0;
        for piece in self.pieces(length) {
            let (received, _) = buffer.split_at_mut(piece.len());
            from.read_exact(received)?;
            if received != piece {
                let text = format!("payload differs after byte {position} of {length}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            position += piece.len();
        }
        Ok(())
    }

    fn pieces(&self, length: usize) -> impl Iterator<Item = &[u8]> {
        (0..length).step_by(PIECE).map(move |position| {
            let (_, from) = self.block.split_at(position % PERIOD);
            let (piece, _) = from.split_at(PIECE.min(length - position));
            piece
        })
    }
}

const PIECE: usize = 16 << 10;
/// A prime number.
const PERIOD: usize = 65_521;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let answer = Answer {
            name: "web-1".to_owned(),
            local: "10.244.1.11:8080".parse().unwrap(),
            peer: "[fd00::1]:4000".parse().unwrap(),
        };
        assert_eq!(answer, answer.to_string().parse().unwrap());
        assert!("web-1".parse::<Answer>().is_err());
    }

    #[test]
    fn every_wrong_byte_is_noticed() {
        let payload = Payload::new(7);
        let mut sent = Vec::new();
        payload.send(&mut sent, 200_001).unwrap();
        assert_eq!(200_001, sent.len());
        payload.receive(&mut sent.as_slice(), 200_001).unwrap();
        for position in [0, 65_521, 200_000] {
            let mut changed = sent.clone();
            changed[position] ^= 1;
            assert!(payload.receive(&mut changed.as_slice(), 200_001).is_err());
        }
        assert!(payload.receive(&mut sent.as_slice(), 200_002).is_err());
    }

    #[test]
    fn seeds_make_different_payloads() {
        let mut sent = Vec::new();
        Payload::new(1).send(&mut sent, 1000).unwrap();
        assert!(Payload::new(2).receive(&mut sent.as_slice(), 1000).is_err());
    }
}
