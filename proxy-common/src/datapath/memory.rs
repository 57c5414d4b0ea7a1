//! The data path over plain memory: for tests, and to answer questions offline.

use std::collections::HashMap;
use std::vec;
use std::vec::Vec;

use bytemuck::Pod;

pub mod message;
mod packet;
pub mod pieces;
pub mod world;

pub use packet::{Fib, MemoryPacket};

use super::flow::Path;
use super::tables::{Insert, Past, Tables, Touch};
use super::verdict::Step;
use super::work::{self, Part, Room, Work};
use crate::abi::Marks;
use crate::abi::bits::{TRACES, WORDS, bit_of, socket_bit_of};
use crate::abi::flow::Flow;
use crate::abi::{
    Affinity, Counter, Detector, Device, Event, Family, Frontend, Hop, Kind, Meter, Settings, Slot,
    Tier, V4, V6, Watch,
};
use crate::lottery::{self, Random, XorShift};
use crate::net::{Port, Proto};

/// The maps of one family.
#[derive(Clone)]
pub struct FamilyMaps<F: Family> {
    /// The frontends.
    pub frontends: HashMap<F::FrontendKey, Frontend>,
    /// The endpoint array; indices that are missing read as zero.
    pub endpoints: HashMap<u32, F::Endpoint>,
    /// From endpoints back to their frontends.
    pub reverse: HashMap<F::EndpointKey, F::Frontends>,
    /// Clients and what they had last.
    pub affinity: HashMap<F::AffinityKey, Affinity>,
    /// Source ranges: a prefix length, which counts the bits of the service port's number as well,
    /// and the lowest source of the range.
    pub sources: Vec<(u32, F::Source)>,
    /// Established flow halves.
    pub flows: HashMap<F::FlowKey, F::Flow>,
    /// Half-open flow halves.
    pub half_open: HashMap<F::FlowKey, F::Flow>,
    /// What became of the first fragments of datagrams.
    pub fragments: HashMap<F::FragmentKey, F::Fragment>,
    /// New flows per element of the endpoint array.
    pub picks: HashMap<u32, u64>,
}

impl<F: Family> Default for FamilyMaps<F> {
    fn default() -> Self {
        Self {
            frontends: HashMap::new(),
            endpoints: HashMap::new(),
            reverse: HashMap::new(),
            affinity: HashMap::new(),
            sources: Vec::new(),
            flows: HashMap::new(),
            half_open: HashMap::new(),
            fragments: HashMap::new(),
            picks: HashMap::new(),
        }
    }
}

/// All maps, a clock that stands still and a generator that starts where one likes.
#[derive(Clone)]
pub struct MemoryTables {
    /// IPv4.
    pub v4: FamilyMaps<V4>,
    /// IPv6.
    pub v6: FamilyMaps<V6>,
    /// The set array.
    pub sets: Vec<Slot>,
    /// Draws per element of the set array.
    pub draws: HashMap<u32, u64>,
    /// Bitmap of frontend addresses.
    pub frontend_bits: Vec<u64>,
    /// Bitmap of endpoint addresses.
    pub endpoint_bits: Vec<u64>,
    /// Who is inside.
    pub detector: Detector,
    /// The devices.
    pub devices: HashMap<u32, Device>,
    /// When flows were last noted.
    pub traces: Vec<u32>,
    /// The counters.
    pub counters: Vec<u64>,
    /// The settings.
    pub settings: Settings,
    /// The generator.
    pub random: XorShift,
    /// The time, in seconds.
    pub now: u32,
    /// What is listened for.
    pub watch: Watch,
    /// How much was told.
    pub meter: Meter,
    /// What was told.
    pub events: Vec<Event>,
    /// How many events there is room for.
    pub events_room: usize,
}

impl MemoryTables {
    /// Empty maps.
    pub fn new(settings: Settings) -> Self {
        Self {
            v4: FamilyMaps::default(),
            v6: FamilyMaps::default(),
            sets: Vec::new(),
            draws: HashMap::new(),
            frontend_bits: vec![0; WORDS as usize],
            endpoint_bits: vec![0; WORDS as usize],
            detector: bytemuck::Zeroable::zeroed(),
            devices: HashMap::new(),
            traces: vec![0; TRACES as usize],
            counters: vec![0; Counter::COUNT as usize],
            settings,
            random: XorShift(0x9e37_79b9_7f4a_7c15),
            now: 1_000,
            watch: Watch::default(),
            meter: Meter::default(),
            events: Vec::new(),
            events_room: usize::MAX,
        }
    }

    /// How often an event was counted.
    pub fn counted(&self, counter: Counter) -> u64 {
        self.counters
            .get(counter as usize)
            .copied()
            .unwrap_or_default()
    }

    fn has_bit(words: &[u64], (word, mask): (u32, u64)) -> bool {
        words
            .get(word as usize)
            .is_some_and(|bits| bits & mask != 0)
    }
}

/// Families whose maps [`MemoryTables`] holds.
pub trait Stored: Family {
    /// This family's maps.
    fn maps(tables: &MemoryTables) -> &FamilyMaps<Self>;
    /// This family's maps, to change.
    fn maps_mut(tables: &mut MemoryTables) -> &mut FamilyMaps<Self>;
}

impl Stored for V4 {
    fn maps(tables: &MemoryTables) -> &FamilyMaps<Self> {
        &tables.v4
    }

    fn maps_mut(tables: &mut MemoryTables) -> &mut FamilyMaps<Self> {
        &mut tables.v4
    }
}

impl Stored for V6 {
    fn maps(tables: &MemoryTables) -> &FamilyMaps<Self> {
        &tables.v6
    }

    fn maps_mut(tables: &mut MemoryTables) -> &mut FamilyMaps<Self> {
        &mut tables.v6
    }
}

impl<F: Family> FamilyMaps<F> {
    /// The flow map of a tier.
    pub const fn tier(&self, tier: Tier) -> &HashMap<F::FlowKey, F::Flow> {
        match tier {
            Tier::Established => &self.flows,
            Tier::HalfOpen | Tier::Renewal => &self.half_open,
        }
    }

    const fn tier_mut(&mut self, tier: Tier) -> &mut HashMap<F::FlowKey, F::Flow> {
        match tier {
            Tier::Established => &mut self.flows,
            Tier::HalfOpen | Tier::Renewal => &mut self.half_open,
        }
    }
}

impl<F: Stored> Tables<F> for MemoryTables {
    fn may_be_frontend(&self, addr: F::Addr) -> bool {
        Self::has_bit(&self.frontend_bits, bit_of(addr))
    }

    fn may_be_endpoint(&self, addr: F::Addr) -> bool {
        Self::has_bit(&self.endpoint_bits, bit_of(addr))
    }

    fn may_be_served(&self, addr: F::Addr, port: Port, proto: Proto) -> bool {
        Self::has_bit(&self.endpoint_bits, socket_bit_of(addr, port, proto))
    }

    fn trace(&self, index: u32) -> u32 {
        self.traces.get(index as usize).copied().unwrap_or_default()
    }

    fn leave_trace(&mut self, index: u32, now: u32) {
        if let Some(trace) = self.traces.get_mut(index as usize) {
            *trace = now;
        }
    }

    fn frontend(&self, key: &F::FrontendKey) -> Option<Frontend> {
        F::maps(self).frontends.get(key).copied()
    }

    fn slot(&self, index: u32) -> Option<Slot> {
        self.sets.get(index as usize).copied()
    }

    fn endpoint(&self, index: u32) -> Option<F::Endpoint> {
        let stored = F::maps(self).endpoints.get(&index).copied();
        // An array element that was never written reads as zero.
        Some(stored.unwrap_or_else(bytemuck::Zeroable::zeroed))
    }

    fn frontend_of(&self, key: &F::EndpointKey, index: usize) -> Option<(F::Addr, Port)> {
        F::frontend_at(F::maps(self).reverse.get(key)?, index)
    }

    fn is_in_ranges(&self, service: u32, source: F::Addr) -> bool {
        let source = F::source(service, source);
        let mut ranges = F::maps(self).sources.iter();
        ranges.any(|(bits, range)| shares_bits(*bits, range, &source))
    }

    fn detector(&self) -> Option<&Detector> {
        Some(&self.detector)
    }

    fn affinity(&self, key: &F::AffinityKey) -> Option<Affinity> {
        F::maps(self).affinity.get(key).copied()
    }

    fn remember(&mut self, key: &F::AffinityKey, affinity: &Affinity) -> Insert {
        insert_new(&mut F::maps_mut(self).affinity, *key, *affinity)
    }

    fn keep(&mut self, key: &F::AffinityKey, now: u32) {
        if let Some(affinity) = F::maps_mut(self).affinity.get_mut(key) {
            affinity.last_used = now;
        }
    }

    fn forget(&mut self, key: &F::AffinityKey) {
        F::maps_mut(self).affinity.remove(key);
    }

    fn flow(&self, tier: Tier, key: &F::FlowKey) -> Option<&F::Flow> {
        F::maps(self).tier(tier).get(key)
    }

    fn half(&self, tier: Tier, path: &Path<F>, kind: Kind) -> Option<&F::Flow> {
        F::maps(self).tier(tier).get(&path.key(tier, kind))
    }

    fn insert(&mut self, tier: Tier, path: &Path<F>, kind: Kind, past: Past) -> Insert {
        let map = F::maps_mut(self).tier_mut(tier);
        insert_new(map, path.key(tier, kind), path.half(kind, past))
    }

    fn replace(&mut self, tier: Tier, path: &Path<F>, kind: Kind, past: Past) -> bool {
        let map = F::maps_mut(self).tier_mut(tier);
        map.insert(path.key(tier, kind), path.half(kind, past));
        true
    }

    fn remove(&mut self, tier: Tier, path: &Path<F>, kind: Kind) {
        Tables::<F>::remove_key(self, tier, &path.key(tier, kind));
    }

    fn remove_key(&mut self, tier: Tier, key: &F::FlowKey) {
        F::maps_mut(self).tier_mut(tier).remove(key);
    }

    fn touch(&mut self, tier: Tier, path: &Path<F>, kind: Kind, touch: Touch) -> bool {
        let map = F::maps_mut(self).tier_mut(tier);
        apply(map.get_mut(&path.key(tier, kind)), touch)
    }

    fn set_hop(&mut self, tier: Tier, key: &F::FlowKey, hop: Hop) -> bool {
        let found = F::maps_mut(self).tier_mut(tier).get_mut(key);
        found.map(|flow| flow.state_mut().hop = hop).is_some()
    }

    fn fragment(&self, key: &F::FragmentKey) -> Option<&F::Fragment> {
        F::maps(self).fragments.get(key)
    }

    fn note_fragment(&mut self, key: &F::FragmentKey, fragment: &F::Fragment) {
        F::maps_mut(self).fragments.insert(*key, *fragment);
    }

    fn forget_fragment(&mut self, key: &F::FragmentKey) {
        F::maps_mut(self).fragments.remove(key);
    }

    fn device(&self, index: u32) -> Option<&Device> {
        self.devices.get(&index)
    }

    fn part(&mut self, part: Part, work: &mut Work<F>) -> Step {
        work::run(self, part, work)
    }

    fn pick(&mut self, n: u32) -> u32 {
        let limit = self.settings.cascade_limit;
        lottery::pick(&mut self.random, n, limit)
    }

    fn pick_port(&mut self) -> Port {
        let offset = lottery::below(&mut self.random, self.settings.rewrite_count);
        Port::new((self.settings.rewrite_low + offset) as u16)
    }

    fn count_draw(&mut self, element: u32) {
        *self.draws.entry(element).or_default() += 1;
    }

    fn picked(&mut self, endpoint: u32) {
        *F::maps_mut(self).picks.entry(endpoint).or_default() += 1;
    }

    fn count(&mut self, counter: Counter) {
        if let Some(count) = self.counters.get_mut(counter as usize) {
            *count += 1;
        }
    }

    fn watch(&self) -> Option<&Watch> {
        Some(&self.watch)
    }

    fn meter(&mut self) -> Option<&mut Meter> {
        Some(&mut self.meter)
    }

    fn tell(&mut self, fill: impl FnOnce(&mut Event)) -> bool {
        if self.events.len() >= self.events_room {
            return false;
        }
        let mut event = bytemuck::Zeroable::zeroed();
        fill(&mut event);
        self.events.push(event);
        true
    }

    fn nanos(&self) -> u64 {
        u64::from(self.now) * 1_000_000_000
    }

    fn now(&self) -> u32 {
        self.now
    }

    fn is_tcp_loose(&self) -> bool {
        self.settings.tcp_loose != 0
    }

    fn is_hairpin_anywhere(&self) -> bool {
        self.settings.hairpin_anywhere != 0
    }

    fn masquerade_mark(&self) -> u32 {
        self.settings.masquerade_mark
    }

    fn reject_mark(&self) -> u32 {
        self.settings.reject_mark
    }
}

/// Room for one packet at a time.
pub struct MemoryRoom {
    v4: Work<V4>,
    v6: Work<V6>,
}

impl Default for MemoryRoom {
    fn default() -> Self {
        Self {
            v4: Work::empty(),
            v6: Work::empty(),
        }
    }
}

impl Room<V4> for MemoryRoom {
    fn work(&mut self) -> Option<&mut Work<V4>> {
        Some(&mut self.v4)
    }
}

impl Room<V6> for MemoryRoom {
    fn work(&mut self) -> Option<&mut Work<V6>> {
        Some(&mut self.v6)
    }
}

impl Random for MemoryTables {
    fn draw(&mut self) -> u32 {
        self.random.draw()
    }
}

fn insert_new<K: Eq + core::hash::Hash, V>(map: &mut HashMap<K, V>, key: K, value: V) -> Insert {
    if map.contains_key(&key) {
        return Insert::Exists;
    }
    map.insert(key, value);
    Insert::Done
}

/// Whether the first `bits` of two values are the same.
fn shares_bits<T: Pod>(bits: u32, one: &T, other: &T) -> bool {
    let (whole, rest) = (bits as usize / 8, bits % 8);
    let (one, other) = (bytemuck::bytes_of(one), bytemuck::bytes_of(other));
    let rest_is_same = rest == 0
        || one
            .get(whole)
            .zip(other.get(whole))
            .is_some_and(|(one, other)| (one ^ other) >> (8 - rest) == 0);
    one.get(..whole) == other.get(..whole) && rest_is_same
}

fn apply<L: Flow>(flow: Option<&mut L>, touch: Touch) -> bool {
    let Some(flow) = flow else {
        return false;
    };
    let state = flow.state_mut();
    state.last_seen = touch.now;
    if touch.proof != 0 {
        state.proof = touch.proof;
    }
    let word = bytemuck::cast::<_, u32>(state.marks);
    state.marks = bytemuck::cast((word | Marks::word(touch.set)) & !Marks::word(touch.clear));
    true
}

/// The first bytes of `bytes` as a `T`, wherever they lie in memory.
fn read<T: Pod>(bytes: &[u8], offset: usize) -> Option<T> {
    let end = offset.checked_add(size_of::<T>())?;
    bytes.get(offset..end).map(bytemuck::pod_read_unaligned)
}
