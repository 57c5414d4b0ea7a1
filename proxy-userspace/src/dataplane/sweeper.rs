//! Looks for flows that are over and has the sweeping program remove them.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use aya::Ebpf;
use aya::maps::{Map, MapData, MapError};
use aya::programs::SchedClassifier;
use bytemuck::bytes_of;
use proxy_common::abi::flow::{Flow as _, FlowKey as _};
use proxy_common::abi::{Family, Tier, V4, V6};
use proxy_common::datapath::lifetime::may_go;
use proxy_common::datapath::sweep::{AT_ONCE, Order};
use proxy_common::net::eth;

use super::load::LoadError;
use super::syscall::Batch;
use super::syscall::run::run;

/// Name of the program.
pub(super) const PROGRAM: &str = "sweeper";

/// The flow maps, and the program that removes from them.
#[derive(Debug)]
pub struct Sweeper {
    program: OwnedFd,
    v4: Maps<V4>,
    v6: Maps<V6>,
}

#[derive(Debug)]
struct Maps<F: Family> {
    tiers: [FlowMap<F>; 2],
}

#[derive(Debug)]
struct FlowMap<F: Family> {
    tier: Tier,
    entries: Batch<F::FlowKey, F::Flow>,
    capacity: usize,
}

/// What a round has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Entries of all flow maps.
    pub seen: usize,
    /// How many of them are gone now.
    pub removed: usize,
    /// How full the fullest map was before, in percent.
    pub fullest: usize,
}

impl Sweeper {
    /// Of a loaded object.
    pub fn of(ebpf: &Ebpf) -> Result<Self, LoadError> {
        let program = ebpf.program(PROGRAM);
        let program: &SchedClassifier = program
            .and_then(|program| program.try_into().ok())
            .ok_or(LoadError::NoProgram(PROGRAM))?;
        let refused = |source| LoadError::Program {
            program: PROGRAM,
            source,
        };
        let fd = program.fd().map_err(refused)?;
        Ok(Self {
            program: fd
                .as_fd()
                .try_clone_to_owned()
                .map_err(|error| refused(error.into()))?,
            v4: Maps::of(ebpf, "4")?,
            v6: Maps::of(ebpf, "6")?,
        })
    }

    /// Walks all flow maps once; `now` is the time by the programs' clock. In a `hurry`, what only
    /// seems to have ended goes as well.
    pub fn round(&self, now: u32, hurry: bool) -> io::Result<Swept> {
        let mut swept = Swept::default();
        self.v4.sweep(self, eth::IPV4, (now, hurry), &mut swept)?;
        self.v6.sweep(self, eth::IPV6, (now, hurry), &mut swept)?;
        Ok(swept)
    }
}

impl<F: Family> Maps<F> {
    fn of(ebpf: &Ebpf, suffix: &str) -> Result<Self, LoadError> {
        Ok(Self {
            tiers: [
                FlowMap::of(ebpf, Tier::Established, &format!("FLOWS{suffix}"))?,
                FlowMap::of(ebpf, Tier::HalfOpen, &format!("HALF{suffix}"))?,
            ],
        })
    }

    fn sweep(
        &self,
        sweeper: &Sweeper,
        protocol: u16,
        (now, hurry): (u32, bool),
        swept: &mut Swept,
    ) -> io::Result<()> {
        for map in &self.tiers {
            let mut frame = Frame::new(protocol, map.tier, hurry);
            let mut seen = 0;
            map.entries.walk(|key: F::FlowKey, flow: F::Flow| {
                seen += 1;
                if may_go(key.proto(), map.tier, flow.state(), now, hurry)
                    && frame.push(&key) == AT_ONCE
                {
                    swept.removed += frame.run(sweeper)?;
                }
                Ok(())
            })?;
            swept.removed += frame.run(sweeper)?;
            swept.seen += seen;
            swept.fullest = swept.fullest.max(seen * 100 / map.capacity.max(1));
        }
        Ok(())
    }
}

impl<F: Family> FlowMap<F> {
    fn of(ebpf: &Ebpf, tier: Tier, name: &str) -> Result<Self, LoadError> {
        let wrong = |source| LoadError::Map {
            map: name.to_owned(),
            source,
        };
        let Some(Map::LruHashMap(data)) = ebpf.map(name) else {
            return Err(LoadError::NoMap(name.to_owned()));
        };
        let capacity = capacity(data).map_err(wrong)?;
        Ok(Self {
            tier,
            entries: Batch::new(data).map_err(wrong)?,
            capacity,
        })
    }
}

fn capacity(data: &MapData) -> Result<usize, MapError> {
    Ok(data.info()?.max_entries() as usize)
}

/// Keys for the program, in the form of an Ethernet frame.
struct Frame {
    bytes: Vec<u8>,
    head: usize,
    keys: usize,
}

impl Frame {
    fn new(protocol: u16, tier: Tier, hurry: bool) -> Self {
        let mut bytes = vec![0; eth::LEN - size_of::<u16>()];
        bytes.extend(protocol.to_be_bytes());
        bytes.extend(bytes_of(&Order::new(tier, hurry)));
        Self {
            head: bytes.len(),
            bytes,
            keys: 0,
        }
    }

    /// Adds a key; returns how many there are.
    fn push<K: bytemuck::Pod>(&mut self, key: &K) -> usize {
        self.bytes.extend(bytes_of(key));
        self.keys += 1;
        self.keys
    }

    /// Hands the keys over; returns how many of them the program has removed.
    fn run(&mut self, sweeper: &Sweeper) -> io::Result<usize> {
        if self.keys == 0 {
            return Ok(0);
        }
        let removed = run(&sweeper.program, &self.bytes)?;
        self.bytes.truncate(self.head);
        self.keys = 0;
        Ok(removed as usize)
    }
}
