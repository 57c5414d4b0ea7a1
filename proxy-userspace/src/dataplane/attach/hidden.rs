//! Finds out whether programs of others keep packets from ours.
//!
//! Ours are last at ingress, and a program before them that ends the chain (`TC_ACT_OK`) hides
//! packets from them. Whether one does, its code does not tell, and the kernel counts the runs of
//! programs only where an administrator has it do so, at a cost for all of them. So where there are
//! others before ours, and only there and then, two programs count what may be for a Service: one
//! before all, one right before ours.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::maps::{HashMap as BpfHashMap, MapData};
use proxy_common::abi::Seen;
use tracing::debug;

use crate::dataplane::plain::Plain;
use crate::dataplane::syscall::link::{self, Direction, Position};

/// A chain in which none of so many packets arrives hides them.
const ENOUGH: u64 = 3;
/// A chain that lets packets through is looked into again after so long: its programs may have
/// changed their mind.
const AGAIN: Duration = Duration::from_hours(1);
/// So many are looked into at a time, for each attachment costs the kernel milliseconds.
const AT_ONCE: usize = 16;
/// One of those that wait gets the place of a device that has had it for so long.
const TURN: Duration = Duration::from_mins(1);

/// What is known of chains, by the index of the device.
#[derive(Debug, Default)]
pub(super) struct Watch {
    cases: HashMap<u32, Case>,
    /// Programs that hide packets.
    hiding: HashMap<u32, Others>,
}

/// Programs before ours, by their numbers.
type Others = Vec<u32>;

#[derive(Debug)]
enum Case {
    /// Being looked into.
    Open {
        others: Others,
        witnesses: [(OwnedFd, u32); 2],
        since: Instant,
    },
    /// Packets come through.
    Closed { others: Others, at: Instant },
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nothing yet, or nothing wrong.
    Nothing,
    /// Packets do not arrive.
    Hidden,
}

/// The two witnesses, and the link of ours.
pub(super) struct Witnesses<'a> {
    pub(super) first: BorrowedFd<'a>,
    pub(super) last: BorrowedFd<'a>,
    pub(super) own: BorrowedFd<'a>,
}

impl Watch {
    /// Numbers of the links of a device's witnesses.
    pub(super) fn witnesses(&self, device: u32) -> Vec<u32> {
        match self.cases.get(&device) {
            Some(Case::Open { witnesses, .. }) => witnesses.iter().map(|(_, id)| *id).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether there is something to look into: these programs are before ours.
    pub(super) fn concerns(&self, device: u32, others: &[u32], now: Instant) -> bool {
        match self.cases.get(&device) {
            None => true,
            Some(Case::Open { others: known, .. }) => known != others,
            Some(Case::Closed { others: known, at }) => {
                known != others || now.saturating_duration_since(*at) >= AGAIN
            }
        }
    }

    /// Makes room for another one to be looked into; whether there is.
    pub(super) fn has_room(&mut self, ebpf: &mut Ebpf, now: Instant) -> bool {
        let open = self.cases.iter().filter_map(|(device, case)| match case {
            Case::Open { since, .. } => Some((*since, *device)),
            Case::Closed { .. } => None,
        });
        let open: Vec<_> = open.collect();
        if open.len() < AT_ONCE {
            return true;
        }
        let oldest = open.into_iter().min();
        let over = oldest.filter(|(since, _)| now.saturating_duration_since(*since) >= TURN);
        if let Some((_, device)) = over {
            self.end(ebpf, device);
        }
        over.is_some()
    }

    /// Begins to look into the chain of a device.
    pub(super) fn begin(
        &mut self,
        ebpf: &mut Ebpf,
        device: u32,
        others: Others,
        programs: &Witnesses<'_>,
    ) -> std::io::Result<()> {
        self.end(ebpf, device);
        let mut seen = map(ebpf)?;
        seen.insert(device, Plain(Seen::default()), 0)
            .map_err(std::io::Error::other)?;
        // The later one first: what the first counts must be able to reach it.
        let create = |program, position| {
            let fd = link::create(program, device, Direction::Ingress, position)?;
            let id = link::info(&fd)?.id;
            Ok::<_, std::io::Error>((fd, id))
        };
        let last = create(programs.last, Position::Before(programs.own))?;
        let first = create(programs.first, Position::First)?;
        debug!(device, ?others, "looking whether packets come through");
        let case = Case::Open {
            others,
            witnesses: [first, last],
            since: Instant::now(),
        };
        self.cases.insert(device, case);
        Ok(())
    }

    /// What was found so far.
    pub(super) fn ask(&mut self, ebpf: &mut Ebpf, device: u32, now: Instant) -> Finding {
        let Some(Case::Open { others, .. }) = self.cases.get(&device) else {
            return Finding::Nothing;
        };
        let others = others.clone();
        let seen = map(ebpf).ok().and_then(|seen| seen.get(&device, 0).ok());
        let Some(Plain(seen)) = seen else {
            return Finding::Nothing;
        };
        let finding = match (seen.first, seen.last) {
            (_, 1..) => Finding::Nothing,
            (ENOUGH.., 0) => Finding::Hidden,
            _ => return Finding::Nothing,
        };
        self.end(ebpf, device);
        if finding == Finding::Nothing {
            self.cases.insert(device, Case::Closed { others, at: now });
        }
        finding
    }

    /// Programs were found to hide packets.
    pub(super) fn found(&mut self, device: u32, others: Others) {
        self.hiding.insert(device, others);
    }

    /// Whether one of these programs was found to hide packets. Where ours came before others in a
    /// former run all of them are suspects.
    pub(super) fn is_hiding(&mut self, device: u32, others: &[u32]) -> bool {
        let known = self.hiding.entry(device);
        let known = known.or_insert_with(|| others.to_vec());
        known.iter().any(|hiding| others.contains(hiding))
    }

    /// A device is not attached to any more.
    pub(super) fn forget(&mut self, ebpf: &mut Ebpf, device: u32) {
        self.end(ebpf, device);
        self.hiding.remove(&device);
    }

    /// There is nothing to look into.
    pub(super) fn end(&mut self, ebpf: &mut Ebpf, device: u32) {
        if let Some(Case::Open { witnesses, .. }) = self.cases.remove(&device) {
            for (link, _) in witnesses {
                link::detach(&link).ok();
            }
            if let Ok(mut seen) = map(ebpf) {
                seen.remove(&device).ok();
            }
        }
    }
}

fn map(ebpf: &mut Ebpf) -> std::io::Result<BpfHashMap<&mut MapData, u32, Plain<Seen>>> {
    let map = ebpf.map_mut("SEEN").ok_or(std::io::ErrorKind::NotFound)?;
    map.try_into().map_err(std::io::Error::other)
}
