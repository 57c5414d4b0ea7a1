//! Numbers of service ports and slots of endpoints: stable while they are in use, and never handed
//! to another while a packet or a flow may still mean the former owner.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use proxy_common::abi::EndpointFlags;

use super::GRACE;
use super::op::Record;

/// Hands out service port numbers: never 0, never one twice.
#[derive(Debug)]
pub(super) struct Numbers {
    next: u32,
}

impl Numbers {
    pub(super) const fn new() -> Self {
        Self { next: 1 }
    }

    /// Never hands out a number below `next`.
    pub(super) const fn skip_to(&mut self, next: u32) {
        if next > self.next {
            self.next = next;
        }
    }

    /// The number that is handed out next.
    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    /// A fresh number; after four thousand million there are none left.
    pub(super) const fn take(&mut self) -> Option<u32> {
        let number = self.next;
        match number.checked_add(1) {
            Some(next) => {
                self.next = next;
                Some(number)
            }
            None => None,
        }
    }
}

/// Who owns a slot: a service port's number and the endpoint's address and port.
pub(super) type Owner = (u32, IpAddr, u16);

/// A slot that was just handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) slot: u32,
    /// Somebody else's picks may be counted there.
    pub(super) is_used: bool,
}

/// The endpoint slots of one family.
///
/// A slot that is given up rests for [`GRACE`] before another endpoint may have it. The endpoint
/// that gave it up gets it back at any time until then, with the raised generation.
#[derive(Debug)]
pub(super) struct Slots {
    capacity: u32,
    records: Vec<Record>,
    /// Slots at rest, by the endpoint they held last.
    at_rest: HashMap<Owner, u32>,
    /// Given up since the tables were last known to follow.
    given_up: Vec<Rest>,
    /// Slots at rest and since when, oldest first. An entry is void if its slot was taken back.
    resting: VecDeque<(Rest, Duration)>,
    /// Handed out and returned before any table knew.
    unused: Vec<u32>,
    /// Generation of slots that were never used.
    generation: u32,
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    slot: u32,
    generation: u32,
}

impl Slots {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            capacity,
            records: Vec::new(),
            at_rest: HashMap::new(),
            given_up: Vec::new(),
            resting: VecDeque::new(),
            unused: Vec::new(),
            generation: 0,
        }
    }

    /// Has slots that were never used begin with this generation.
    pub(super) const fn begin_at(&mut self, generation: u32) {
        self.generation = generation;
    }

    /// Begins with the records that the tables hold. Slots that are not in use rest once more:
    /// when they were given up is not known.
    pub(super) fn adopt(&mut self, records: impl Iterator<Item = (u32, Record)>) {
        let mut known: Vec<_> = records.filter(|(slot, _)| *slot < self.capacity).collect();
        known.sort_unstable_by_key(|(slot, _)| *slot);
        for (slot, record) in known {
            while self.records.len() < slot as usize {
                self.unused.push(self.records.len() as u32);
                self.records.push(self.blank());
            }
            self.records.push(record);
            if record.flags.has(EndpointFlags::HELD) {
                continue;
            }
            let owner = (record.service, record.addr, record.port);
            match self.at_rest.entry(owner) {
                Entry::Vacant(entry) => {
                    entry.insert(slot);
                    let generation = record.generation;
                    self.resting.push_back((Rest { slot, generation }, BEGIN));
                }
                // It had another slot as well, long ago.
                Entry::Occupied(_) => self.unused.push(slot),
            }
        }
    }

    const fn blank(&self) -> Record {
        Record {
            addr: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            port: 0,
            flags: EndpointFlags::NONE,
            generation: self.generation,
            service: 0,
        }
    }

    /// What a slot holds.
    pub(super) fn record(&self, slot: u32) -> Option<Record> {
        self.records.get(slot as usize).copied()
    }

    /// A slot for this endpoint, its own if it has one at rest; `None` if all are in use.
    pub(super) fn take(
        &mut self,
        owner: Owner,
        flags: EndpointFlags,
        now: Duration,
    ) -> Option<Taken> {
        let own = self.at_rest.remove(&owner).map(|slot| Taken {
            slot,
            is_used: false,
        });
        let taken = own.or_else(|| self.take_any(now))?;
        let (service, addr, port) = owner;
        let record = self.records.get_mut(taken.slot as usize)?;
        *record = Record {
            addr,
            port,
            flags,
            generation: record.generation,
            service,
        };
        Some(taken)
    }

    /// Changes the properties of a slot in use; returns the new record.
    pub(super) fn mark(&mut self, slot: u32, flags: EndpointFlags) -> Option<Record> {
        let record = self.records.get_mut(slot as usize)?;
        record.flags = flags;
        Some(*record)
    }

    /// Ends the use of a slot; returns the record that says so, with the generation raised.
    pub(super) fn give_up(&mut self, slot: u32) -> Option<Record> {
        let record = self.records.get_mut(slot as usize)?;
        record.flags = EndpointFlags::NONE;
        record.generation = record.generation.wrapping_add(1);
        let owner = (record.service, record.addr, record.port);
        self.at_rest.insert(owner, slot);
        self.given_up.push(Rest {
            slot,
            generation: record.generation,
        });
        Some(*record)
    }

    /// Takes back a slot that no table has heard of.
    pub(super) fn put_back(&mut self, taken: Taken) {
        self.mark(taken.slot, EndpointFlags::NONE);
        self.unused.push(taken.slot);
    }

    /// The tables followed all that was planned: rest begins.
    pub(super) fn applied(&mut self, now: Duration) {
        let resting = self.given_up.drain(..).map(|rest| (rest, now));
        self.resting.extend(resting);
        // Endpoints that come and go leave void entries; they must not pile up.
        if self.resting.len() > 2 * self.records.len() {
            let mut resting = std::mem::take(&mut self.resting);
            resting.retain(|(rest, _)| !self.is_void(*rest));
            self.resting = resting;
        }
    }

    /// Whether the slot of this rest was taken back.
    fn is_void(&self, rest: Rest) -> bool {
        let Some(record) = self.record(rest.slot) else {
            return true;
        };
        let owner = (record.service, record.addr, record.port);
        record.generation != rest.generation || self.at_rest.get(&owner) != Some(&rest.slot)
    }

    fn take_any(&mut self, now: Duration) -> Option<Taken> {
        if let Some(slot) = self.unused.pop() {
            return Some(Taken {
                slot,
                is_used: true,
            });
        }
        if let Some(slot) = self.take_rested(now) {
            return Some(Taken {
                slot,
                is_used: true,
            });
        }
        let slot = u32::try_from(self.records.len()).ok()?;
        if slot >= self.capacity {
            return None;
        }
        self.records.push(self.blank());
        Some(Taken {
            slot,
            is_used: false,
        })
    }

    fn take_rested(&mut self, now: Duration) -> Option<u32> {
        while let Some(&(rest, since)) = self.resting.front() {
            let is_void = self.is_void(rest);
            if !is_void && since + GRACE > now {
                return None;
            }
            self.resting.pop_front();
            if !is_void {
                let record = self.record(rest.slot)?;
                self.at_rest
                    .remove(&(record.service, record.addr, record.port));
                return Some(rest.slot);
            }
        }
        None
    }
}

/// When the slots began to rest that were found not to be in use.
const BEGIN: Duration = Duration::ZERO;

#[cfg(test)]
mod tests {
    use super::*;

    const ALIVE: EndpointFlags = EndpointFlags::ALIVE;

    fn owner(service: u32, last: u8) -> Owner {
        (service, IpAddr::from([10, 0, 0, last]), 80)
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn numbers_start_at_one_and_end() {
        let mut numbers = Numbers::new();
        assert_eq!([Some(1), Some(2)], [numbers.take(), numbers.take()]);
        let mut last = Numbers { next: u32::MAX };
        assert_eq!(None, last.take());
    }

    #[test]
    fn a_slot_rests_before_another_endpoint_has_it() {
        let mut slots = Slots::new(1);
        let first = slots.take(owner(1, 1), ALIVE, at(0)).unwrap();
        assert_eq!(1, slots.give_up(first.slot).unwrap().generation);
        // Not even long after, as long as the tables have not followed.
        assert_eq!(None, slots.take(owner(1, 2), ALIVE, at(1000)));
        slots.applied(at(1000));
        assert_eq!(None, slots.take(owner(1, 2), ALIVE, at(1000)));
        let second = slots.take(owner(1, 2), ALIVE, at(1000) + GRACE).unwrap();
        assert_eq!((0, true), (second.slot, second.is_used));
        assert_eq!(1, slots.record(0).unwrap().generation);
    }

    #[test]
    fn an_endpoint_that_returns_gets_its_slot_with_the_raised_generation() {
        let mut slots = Slots::new(8);
        let first = slots.take(owner(1, 1), ALIVE, at(0)).unwrap();
        slots.give_up(first.slot);
        slots.applied(at(0));
        let again = slots.take(owner(1, 1), ALIVE, at(0)).unwrap();
        assert_eq!((first.slot, false), (again.slot, again.is_used));
        assert_eq!(1, slots.record(first.slot).unwrap().generation);
        // Its former rest is void: nobody else gets it.
        let other = slots.take(owner(1, 2), ALIVE, at(0) + GRACE * 2).unwrap();
        assert_ne!(first.slot, other.slot);
    }

    #[test]
    fn rested_slots_go_before_fresh_ones() {
        let mut slots = Slots::new(8);
        let first = slots.take(owner(1, 1), ALIVE, at(0)).unwrap();
        slots.give_up(first.slot);
        slots.applied(at(0));
        assert_eq!(
            first.slot,
            slots.take(owner(2, 9), ALIVE, GRACE).unwrap().slot
        );
        assert_eq!(1, slots.take(owner(2, 8), ALIVE, GRACE).unwrap().slot);
    }

    #[test]
    fn endpoints_that_come_and_go_leave_nothing_behind() {
        let mut slots = Slots::new(8);
        for _ in 0..1000 {
            let taken = slots.take(owner(1, 1), ALIVE, at(0)).unwrap();
            slots.give_up(taken.slot);
            slots.applied(at(0));
        }
        assert!(slots.resting.len() < 4);
    }

    #[test]
    fn a_slot_put_back_is_free_at_once() {
        let mut slots = Slots::new(1);
        let first = slots.take(owner(1, 1), ALIVE, at(0)).unwrap();
        slots.put_back(first);
        let second = slots.take(owner(1, 2), ALIVE, at(0)).unwrap();
        assert_eq!(0, slots.record(second.slot).unwrap().generation);
    }
}
