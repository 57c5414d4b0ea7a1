//! What clients and servers of a lab say to each other.
//!
//! The server speaks first: it greets a TCP connection with its [`Answer`], as it answers every
//! datagram. After that a TCP client may send commands, one a line:
//! `echo TEXT`, `take BYTES` followed by that many bytes, `give BYTES SEED`.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Error, Result};

/// How long anybody waits for anything.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

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

/// Sends `length` bytes that follow from `seed`, and returns their fingerprint.
pub(super) fn send(to: &mut impl Write, length: u64, seed: u64) -> io::Result<u64> {
    let mut left = length;
    let mut state = seed | 1;
    let mut fingerprint = 0;
    let mut block = [0; BLOCK];
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            // xorshift: every byte depends on its place in the stream.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let (now, _) = block.split_at(left.min(BLOCK as u64) as usize);
        to.write_all(now)?;
        fingerprint = add_to(fingerprint, now);
        left -= now.len() as u64;
    }
    to.flush()?;
    Ok(fingerprint)
}

/// Receives `length` bytes and returns their fingerprint.
pub(super) fn receive(from: &mut impl Read, length: u64) -> io::Result<u64> {
    let mut left = length;
    let mut fingerprint = 0;
    let mut block = [0; BLOCK];
    while left > 0 {
        let (now, _) = block.split_at_mut(left.min(BLOCK as u64) as usize);
        from.read_exact(now)?;
        fingerprint = add_to(fingerprint, now);
        left -= now.len() as u64;
    }
    Ok(fingerprint)
}

// Word by word, for the unoptimised build has to keep up with the network. Both sides cut the
// stream in the same places.
fn add_to(fingerprint: u64, block: &[u8]) -> u64 {
    block.chunks(8).fold(fingerprint, |sum, chunk| {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        (sum.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x517c_c1b7_2722_0a95)
    })
}

const BLOCK: usize = 16 << 10;

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
    fn the_fingerprint_covers_every_byte() {
        let mut sent = Vec::new();
        let fingerprint = send(&mut sent, 100_001, 7).unwrap();
        assert_eq!(100_001, sent.len());
        assert_eq!(fingerprint, receive(&mut sent.as_slice(), 100_001).unwrap());
        sent[100_000] ^= 1;
        assert_ne!(fingerprint, receive(&mut sent.as_slice(), 100_001).unwrap());
    }
}
