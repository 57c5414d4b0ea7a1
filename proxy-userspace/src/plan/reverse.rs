//! The way back from endpoints to frontends, by which a lost flow half is rebuilt.
//!
//! An entry outlives its endpoint, as the flows of the endpoint may: it goes only when its place is
//! needed. Of an endpoint's frontends those in force come first, as many as a record holds.
//! Endpoints that find no place are served all the same; only a lost reply half of theirs is
//! rebuilt later, by the client's next packet.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

use proxy_common::abi::endpoint::FRONTENDS_PER_ENDPOINT;

use super::op::{Op, Socket};

type Door = (IpAddr, u16);

/// The frontends of one endpoint: the first `live` of them are in force.
#[derive(Debug, Default)]
struct Doors {
    doors: Vec<Door>,
    live: usize,
}

#[derive(Debug)]
pub(super) struct Reverse {
    capacity: usize,
    entries: HashMap<Socket, Doors>,
    /// Entries without any frontend in force, oldest first; void where one came into force again.
    stale: VecDeque<Socket>,
    changed: BTreeSet<Socket>,
}

impl Reverse {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            capacity: capacity as usize,
            entries: HashMap::new(),
            stale: VecDeque::new(),
            changed: BTreeSet::new(),
        }
    }

    /// Begins with the entries that the table holds; `live` are the frontends in force.
    pub(super) fn adopt(
        &mut self,
        table: Vec<(Socket, Vec<Door>)>,
        mut live: HashMap<Socket, Vec<Door>>,
    ) {
        for (endpoint, known) in table {
            let in_force = live.remove(&endpoint).unwrap_or_default();
            let (mut doors, rest): (Vec<_>, Vec<_>) =
                known.iter().partition(|door| in_force.contains(door));
            let new = in_force.into_iter().filter(|door| !known.contains(door));
            doors.extend(new);
            let live = doors.len();
            doors.extend(rest);
            doors.truncate(live.max(FRONTENDS_PER_ENDPOINT));
            let mut shown = doors.iter().take(FRONTENDS_PER_ENDPOINT);
            if !shown.all(|door| known.contains(door)) {
                self.changed.insert(endpoint);
            }
            if live == 0 {
                self.stale.push_back(endpoint);
            }
            self.entries.insert(endpoint, Doors { doors, live });
        }
        for (endpoint, doors) in live {
            for door in doors {
                self.add(endpoint, door);
            }
        }
    }

    /// Notes that `frontend` leads to `endpoint`, if there is a place for it.
    pub(super) fn add(&mut self, endpoint: Socket, frontend: Door) {
        if self.entries.len() >= self.capacity && !self.entries.contains_key(&endpoint) {
            self.evict();
            if self.entries.len() >= self.capacity {
                return;
            }
        }
        let entry = self.entries.entry(endpoint).or_default();
        let known = entry.doors.iter().position(|door| *door == frontend);
        if known.is_some_and(|at| at < entry.live) {
            return;
        }
        if let Some(at) = known {
            entry.doors.remove(at);
        }
        entry.doors.insert(entry.live, frontend);
        entry.live += 1;
        // One too many that is out of force has no use.
        entry.doors.truncate(entry.live.max(FRONTENDS_PER_ENDPOINT));
        self.changed.insert(endpoint);
    }

    /// Notes that `frontend` leads to `endpoint` no more.
    pub(super) fn remove(&mut self, endpoint: Socket, frontend: Door) {
        let Some(entry) = self.entries.get_mut(&endpoint) else {
            return;
        };
        let Some(at) = entry.doors.iter().position(|door| *door == frontend) else {
            return;
        };
        if at >= entry.live {
            return;
        }
        let is_crowded = entry.doors.len() > FRONTENDS_PER_ENDPOINT;
        let door = entry.doors.remove(at);
        entry.live -= 1;
        entry.doors.insert(entry.live, door);
        entry.doors.truncate(entry.live.max(FRONTENDS_PER_ENDPOINT));
        if entry.live == 0 {
            self.stale.push_back(endpoint);
        }
        // The order among those that fit says nothing to the data path.
        if is_crowded {
            self.changed.insert(endpoint);
        }
    }

    fn evict(&mut self) {
        while let Some(oldest) = self.stale.pop_front() {
            if let Entry::Occupied(entry) = self.entries.entry(oldest)
                && entry.get().live == 0
            {
                entry.remove();
                self.changed.insert(oldest);
                return;
            }
        }
    }

    /// Operations for the entries that changed since the last call, removals first to make room.
    pub(super) fn drain(&mut self) -> Vec<Op> {
        let changed = std::mem::take(&mut self.changed);
        let mut ops: Vec<_> = changed
            .into_iter()
            .map(|endpoint| self.op(endpoint))
            .collect();
        ops.sort_by_key(|op| !matches!(op, Op::ReverseGone { .. }));
        ops
    }

    /// What an entry should be.
    pub(super) fn op(&self, endpoint: Socket) -> Op {
        match self.entries.get(&endpoint) {
            Some(entry) => {
                let frontends = entry.doors.iter().take(FRONTENDS_PER_ENDPOINT);
                Op::Reverse {
                    endpoint,
                    frontends: frontends.copied().collect(),
                }
            }
            None => Op::ReverseGone { endpoint },
        }
    }
}

#[cfg(test)]
mod tests {
    use proxy_common::net::Proto;

    use super::*;

    fn endpoint(last: u8) -> Socket {
        Socket {
            addr: IpAddr::from([10, 1, 0, last]),
            port: 80,
            proto: Proto::TCP,
        }
    }

    fn door(last: u8) -> Door {
        (IpAddr::from([10, 96, 0, last]), 80)
    }

    fn doors(reverse: &Reverse, of: Socket) -> Vec<Door> {
        match reverse.op(of) {
            Op::Reverse { frontends, .. } => frontends,
            _ => Vec::new(),
        }
    }

    #[test]
    fn an_entry_outlives_its_endpoint_until_its_place_is_needed() {
        let mut reverse = Reverse::new(2);
        reverse.add(endpoint(1), door(1));
        reverse.add(endpoint(2), door(1));
        reverse.drain();
        reverse.remove(endpoint(1), door(1));
        assert_eq!(Vec::<Op>::new(), reverse.drain());
        assert_eq!([door(1)], *doors(&reverse, endpoint(1)));

        reverse.add(endpoint(3), door(1));
        let ops = reverse.drain();
        assert_eq!(
            Op::ReverseGone {
                endpoint: endpoint(1)
            },
            ops[0]
        );
        assert_eq!(2, ops.len());
    }

    #[test]
    fn an_entry_in_force_again_is_not_evicted() {
        let mut reverse = Reverse::new(2);
        reverse.add(endpoint(1), door(1));
        reverse.remove(endpoint(1), door(1));
        reverse.add(endpoint(1), door(1));
        reverse.add(endpoint(2), door(1));
        reverse.remove(endpoint(2), door(1));
        reverse.add(endpoint(3), door(1));
        assert_eq!([door(1)], *doors(&reverse, endpoint(1)));
        assert!(doors(&reverse, endpoint(2)).is_empty());
    }

    #[test]
    fn entries_in_force_are_never_displaced() {
        let mut reverse = Reverse::new(2);
        for last in 1..4 {
            reverse.add(endpoint(last), door(1));
        }
        assert_eq!(
            [1, 1, 0],
            [1, 2, 3].map(|last| doors(&reverse, endpoint(last)).len())
        );
        reverse.remove(endpoint(3), door(1));
    }

    #[test]
    fn frontends_in_force_displace_the_others() {
        let mut reverse = Reverse::new(2);
        for last in 0..10 {
            reverse.add(endpoint(1), door(last));
        }
        assert_eq!(8, doors(&reverse, endpoint(1)).len());
        for last in 0..9 {
            reverse.remove(endpoint(1), door(last));
        }
        assert_eq!(door(9), doors(&reverse, endpoint(1))[0]);
        assert_eq!(8, doors(&reverse, endpoint(1)).len());
        reverse.add(endpoint(1), door(20));
        assert_eq!([door(9), door(20)], doors(&reverse, endpoint(1))[..2]);
    }
}
