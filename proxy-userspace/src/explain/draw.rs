//! One draw: what becomes of the first packet of one flow.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

use proxy_common::abi::Counter;
use proxy_common::datapath::memory::MemoryTables;
use thiserror::Error;

use super::frame::{FrameError, ends, first};
use super::host;
use super::question::{Entry, Verdict};
use crate::dataplane::Trial;
use crate::model::Protocol;
use crate::netfilter::{self, Judgement, Path, Rules};

/// `TC_ACT_UNSPEC`: the packet goes on. `TC_ACT_SHOT`: it does not.
pub(super) const GOES_ON: i32 = -1;
pub(super) const SHOT: i32 = 2;

/// Where the data path runs.
pub trait DataPath {
    /// What is made of an Ethernet frame that comes in by the loopback device.
    fn ingress(&mut self, frame: &[u8]) -> io::Result<Trial>;
    /// What is made of one that leaves by it.
    fn egress(&mut self, frame: &[u8]) -> io::Result<Trial>;
    /// The tables as the node's own sockets meet them.
    fn host(&mut self) -> &mut MemoryTables;
}

/// The first packet of a flow, and who else has a say in what becomes of it.
#[derive(Clone, Copy, Debug)]
pub struct Shot<'a> {
    /// Its protocol.
    pub proto: Protocol,
    /// Where it comes from.
    pub from: SocketAddr,
    /// Where it goes.
    pub to: SocketAddr,
    /// How it comes.
    pub entry: Entry,
    /// The addresses of the node's interfaces.
    pub own: &'a BTreeSet<IpAddr>,
    /// What nftables does.
    pub rules: &'a Rules,
}

impl Shot<'_> {
    /// Whether an address is the node's.
    pub(super) fn is_local(&self, addr: IpAddr) -> bool {
        addr.is_loopback() || self.own.contains(&addr)
    }

    /// What nftables does with the packet, with this destination and mark.
    pub(super) fn judge(&self, destination: SocketAddr, mark: u32) -> Judgement {
        let is_local = self.is_local(destination.ip());
        self.rules.judge(&netfilter::Packet {
            path: match self.entry {
                Entry::Host => Path::Output,
                _ if is_local => Path::Input,
                _ => Path::Forward,
            },
            destination: destination.ip(),
            is_local,
            proto: self.proto.into(),
            port: destination.port(),
            mark,
        })
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// What was done with it.
    pub verdict: Verdict,
    /// Where it comes from once it is translated, before any masquerade.
    pub from: SocketAddr,
    /// Where it was forwarded to.
    pub to: Option<SocketAddr>,
    /// Whether it got another source.
    pub is_masqueraded: bool,
    /// Whether it goes back to where it came from.
    pub is_hairpin: bool,
    /// The mark that the data path left it with.
    pub mark: u32,
    /// What was counted when it was dropped, where the data path itself tells.
    pub counter: Option<Counter>,
    /// What nftables did, if it got there.
    pub judged: Option<Judgement>,
}

impl Fate {
    /// A packet from here that goes nowhere, or on as it was.
    pub(super) const fn of(verdict: Verdict, from: SocketAddr) -> Self {
        Self {
            verdict,
            from,
            to: None,
            is_masqueraded: false,
            is_hairpin: false,
            mark: 0,
            counter: None,
            judged: None,
        }
    }
}

/// Why a packet cannot be drawn for.
#[derive(Debug, Error)]
pub enum DrawError {
    /// The program cannot be run.
    #[error("cannot run the data path")]
    Run(#[from] io::Error),
    /// The packet cannot be made, or what came of it cannot be read.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The data path did what it never should.
    #[error("{0}")]
    Odd(String),
}

impl DrawError {
    pub(super) fn odd<T>(text: impl Into<String>) -> Result<T, Self> {
        Err(Self::Odd(text.into()))
    }
}

/// Sends a packet through the data path and nftables.
pub fn draw(path: &mut impl DataPath, shot: &Shot<'_>) -> Result<Fate, DrawError> {
    match shot.entry {
        Entry::Host => host::call(path.host(), shot),
        Entry::Pod | Entry::External => wire(path, shot),
    }
}

/// A packet that comes in by a device.
fn wire(path: &mut impl DataPath, shot: &Shot<'_>) -> Result<Fate, DrawError> {
    let frame = first(shot.proto, shot.from, shot.to)?;
    let seen = path.ingress(&frame)?;
    match seen.action {
        SHOT => return Ok(Fate::of(Verdict::Drop, shot.from)),
        GOES_ON => {}
        other => return DrawError::odd(format!("tc_in has returned {other}")),
    }
    let (from, destination) = ends(&seen.packet)?;
    if from.ip() != shot.from.ip() {
        return DrawError::odd(format!("tc_in has changed the source to {from}"));
    }
    let judged = shot.judge(destination, seen.mark);
    let mut fate = Fate {
        mark: seen.mark,
        judged: Some(judged),
        ..Fate::of(Verdict::Forward, from)
    };
    if destination == shot.to {
        if frame != seen.packet {
            return DrawError::odd("tc_in has changed something else than the destination");
        }
        fate.verdict = untranslated(judged)?;
        return Ok(fate);
    }
    match judged {
        Judgement::Masquerade(_) => fate.is_masqueraded = true,
        Judgement::Pass(_) => {}
        Judgement::Drop(_) => {
            fate.verdict = Verdict::Drop;
            return Ok(fate);
        }
        Judgement::Reject => return DrawError::odd("a packet that was forwarded is rejected"),
    }
    fate.to = Some(destination);
    if !shot.is_local(destination.ip()) {
        fate.is_hairpin = is_hairpin(path, &seen.packet)?;
        fate.is_masqueraded |= fate.is_hairpin;
    }
    Ok(fate)
}

/// What becomes of a packet that no program has translated.
pub(super) fn untranslated(judged: Judgement) -> Result<Verdict, DrawError> {
    match judged {
        Judgement::Reject => Ok(Verdict::Reject),
        Judgement::Drop(_) => Ok(Verdict::Drop),
        Judgement::Pass(_) => Ok(Verdict::Pass),
        Judgement::Masquerade(_) => DrawError::odd("a packet that was left alone is masqueraded"),
    }
}

/// Whether the packet gets another source where it leaves.
fn is_hairpin(path: &mut impl DataPath, frame: &[u8]) -> Result<bool, DrawError> {
    let (source, destination) = ends(frame)?;
    let left = path.egress(frame)?;
    if left.action != GOES_ON {
        return DrawError::odd("tc_eg has dropped the packet");
    }
    let (source_after, destination_after) = ends(&left.packet)?;
    if destination_after != destination {
        let text = format!("tc_eg has changed the destination to {destination_after}");
        return DrawError::odd(text);
    }
    Ok(source_after.ip() != source.ip())
}
