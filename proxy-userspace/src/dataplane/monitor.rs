//! What the programs tell while somebody listens.

use aya::Ebpf;
use aya::maps::{Array, Map, MapData, MapError, PerCpuArray, RingBuf};
use aya::util::online_cpus;
use proxy_common::abi::{Event, Meter, Watch};

use super::load::LoadError;
use super::maps::{Maps, typed};
use super::plain::Plain;

/// The ring buffer, and the word that has the programs write to it.
///
/// None of it is pinned: programs that outlive their controller have nobody to tell anything, and
/// what is listened for ends by itself ([`Watch::until`]).
pub struct Monitor {
    events: RingBuf<MapData>,
    watch: Array<MapData, Plain<Watch>>,
    meter: PerCpuArray<MapData, Plain<Meter>>,
}

/// How many events could not be told, since the programs were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// They were too many in their second.
    pub limited: u64,
    /// The ring buffer was full.
    pub full: u64,
}

impl Monitor {
    /// Takes the maps of a loaded object.
    pub fn take(ebpf: &mut Ebpf) -> Result<Self, LoadError> {
        Ok(Self {
            events: taken(ebpf, "EVENTS", RingBuf::try_from)?,
            watch: taken(ebpf, "WATCH", Array::try_from)?,
            meter: taken(ebpf, "METER", PerCpuArray::try_from)?,
        })
    }

    /// Listens for events of these kinds, a bit each, until a time by the clock of the programs:
    /// `per_second` at most, of which each CPU that is there has its part.
    pub fn listen(&mut self, kinds: u32, until: u32, per_second: u32) -> Result<(), MapError> {
        let cpus = online_cpus().map_or(1, |cpus| cpus.len());
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX).max(1);
        let watch = Watch {
            until,
            kinds,
            per_second: per_second.div_ceil(cpus),
            pad: 0,
        };
        self.watch.set(0, Plain(watch), 0)
    }

    /// Listens no more.
    pub fn silence(&mut self) -> Result<(), MapError> {
        self.watch.set(0, Plain(Watch::default()), 0)
    }

    /// Takes up to `most` events, in their order on each CPU.
    pub fn drain(&mut self, most: usize, mut take: impl FnMut(Event)) {
        for _ in 0..most {
            let Some(item) = self.events.next() else {
                return;
            };
            if let Ok(event) = bytemuck::try_pod_read_unaligned(&item) {
                take(event);
            }
        }
    }

    /// How many events could not be told.
    pub fn lost(&self) -> Result<Lost, MapError> {
        let mut lost = Lost::default();
        for Plain(meter) in self.meter.get(&0, 0)?.iter() {
            lost.limited += meter.limited;
            lost.full += meter.full;
        }
        Ok(lost)
    }
}

fn taken<T>(
    ebpf: &mut Ebpf,
    name: &str,
    convert: impl FnOnce(Map) -> Result<T, MapError>,
) -> Result<T, LoadError> {
    typed(Maps::take(ebpf, name)?, name, convert)
}
