//! The way back from endpoints to frontends, by which a lost flow half is rebuilt.
//!
//! An entry outlives its endpoint, as the flows of the endpoint may: it goes only when its place is
//! needed. Of an endpoint's frontends those in force come first, as many as a record holds, and of
//! those the ones that most clients use. Endpoints that find no place are served all the same; only
//! a lost reply half of theirs is rebuilt later, by the client's next packet.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

use proxy_common::abi::FrontendFlags;
use proxy_common::abi::endpoint::FRONTENDS_PER_ENDPOINT;

use super::op::{Op, Socket};
use super::wanted::WantedFrontend;

/// A frontend as an endpoint knows it.
pub(super) type Door = (IpAddr, u16);

/// How useful a frontend is among those of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// An address of its own.
    Own,
    /// An address of the node, of which there may be many.
    Node,
}

/// The frontends of a service port that its endpoints should know, in the same order: not those that
/// lead nowhere, and not loopback addresses, which only the node itself speaks to.
pub(super) fn doors(frontends: &[WantedFrontend]) -> impl Iterator<Item = (Rank, Door)> {
    let useful = frontends
        .iter()
        .filter(|frontend| frontend.leads_somewhere() && !frontend.at.addr.is_loopback());
    useful.map(|frontend| {
        let rank = if frontend.flags.has(FrontendFlags::OWN_ADDRESS) {
            Rank::Node
        } else {
            Rank::Own
        };
        (rank, (frontend.at.addr, frontend.at.port))
    })
}

/// The frontends of one endpoint.
#[derive(Debug, Default)]
struct Doors {
    /// Those in force, the most useful first.
    live: Vec<(Rank, Door)>,
    /// The others, of which there are no more than there is room for; the latest first.
    stale: Vec<Door>,
}

impl Doors {
    /// What a record shows.
    fn shown(&self) -> Vec<Door> {
        let live = self.live.iter().map(|(_, door)| *door);
        let all = live.chain(self.stale.iter().copied());
        all.take(FRONTENDS_PER_ENDPOINT).collect()
    }

    fn add(&mut self, rank: Rank, door: Door) {
        if self.live.iter().any(|(_, known)| *known == door) {
            return;
        }
        self.stale.retain(|known| *known != door);
        let at = self.live.partition_point(|(known, _)| *known <= rank);
        self.live.insert(at, (rank, door));
        self.trim();
    }

    fn remove(&mut self, door: Door) {
        if let Some(at) = self.live.iter().position(|(_, known)| *known == door) {
            self.live.remove(at);
            self.stale.insert(0, door);
            self.trim();
        }
    }

    /// One too many that is out of force has no use.
    fn trim(&mut self) {
        let room = FRONTENDS_PER_ENDPOINT.saturating_sub(self.live.len());
        self.stale.truncate(room);
    }
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
        mut live: HashMap<Socket, Vec<(Rank, Door)>>,
    ) {
        for (endpoint, known) in table {
            let mut in_force = live.remove(&endpoint).unwrap_or_default();
            // Of those that are equally useful the ones that stand there stay.
            in_force.sort_by_key(|(rank, door)| {
                let place = known.iter().position(|known| known == door);
                (*rank, place.unwrap_or(usize::MAX))
            });
            let is_stale = |door: &Door| !in_force.iter().any(|(_, other)| other == door);
            let stale = known.iter().copied().filter(is_stale).collect();
            let mut doors = Doors::default();
            for (rank, door) in in_force {
                doors.add(rank, door);
            }
            doors.stale = stale;
            doors.trim();
            if doors.live.is_empty() {
                self.stale.push_back(endpoint);
            }
            if is_other(&known, &doors.shown()) {
                self.changed.insert(endpoint);
            }
            self.entries.insert(endpoint, doors);
        }
        for (endpoint, doors) in live {
            for (rank, door) in doors {
                self.add(endpoint, rank, door);
            }
        }
    }

    /// Notes that a frontend leads to `endpoint`, if there is a place for it.
    pub(super) fn add(&mut self, endpoint: Socket, rank: Rank, frontend: Door) {
        if self.entries.len() >= self.capacity && !self.entries.contains_key(&endpoint) {
            self.evict();
            if self.entries.len() >= self.capacity {
                return;
            }
        }
        let entry = self.entries.entry(endpoint).or_default();
        let before = entry.shown();
        entry.add(rank, frontend);
        if is_other(&before, &entry.shown()) {
            self.changed.insert(endpoint);
        }
    }

    /// Notes that a frontend leads to `endpoint` no more.
    pub(super) fn remove(&mut self, endpoint: Socket, frontend: Door) {
        let Some(entry) = self.entries.get_mut(&endpoint) else {
            return;
        };
        if entry.live.is_empty() {
            return;
        }
        let before = entry.shown();
        entry.remove(frontend);
        if entry.live.is_empty() {
            self.stale.push_back(endpoint);
        }
        if is_other(&before, &entry.shown()) {
            self.changed.insert(endpoint);
        }
    }

    fn evict(&mut self) {
        while let Some(oldest) = self.stale.pop_front() {
            if let Entry::Occupied(entry) = self.entries.entry(oldest)
                && entry.get().live.is_empty()
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
            Some(entry) => Op::Reverse {
                endpoint,
                frontends: entry.shown(),
            },
            None => Op::ReverseGone { endpoint },
        }
    }
}

/// Whether two records differ. The order says nothing to the data path.
fn is_other(before: &[Door], after: &[Door]) -> bool {
    before.len() != after.len() || after.iter().any(|door| !before.contains(door))
}

#[cfg(test)]
mod tests {
    use proxy_common::net::Proto;

    use super::super::wanted::{FrontendKind, List};
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
        reverse.add(endpoint(1), Rank::Own, door(1));
        reverse.add(endpoint(2), Rank::Own, door(1));
        reverse.drain();
        reverse.remove(endpoint(1), door(1));
        assert_eq!(Vec::<Op>::new(), reverse.drain());
        assert_eq!([door(1)], *doors(&reverse, endpoint(1)));

        reverse.add(endpoint(3), Rank::Own, door(1));
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
        reverse.add(endpoint(1), Rank::Own, door(1));
        reverse.remove(endpoint(1), door(1));
        reverse.add(endpoint(1), Rank::Own, door(1));
        reverse.add(endpoint(2), Rank::Own, door(1));
        reverse.remove(endpoint(2), door(1));
        reverse.add(endpoint(3), Rank::Own, door(1));
        assert_eq!([door(1)], *doors(&reverse, endpoint(1)));
        assert!(doors(&reverse, endpoint(2)).is_empty());
    }

    #[test]
    fn entries_in_force_are_never_displaced() {
        let mut reverse = Reverse::new(2);
        for last in 1..4 {
            reverse.add(endpoint(last), Rank::Own, door(1));
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
            reverse.add(endpoint(1), Rank::Own, door(last));
        }
        assert_eq!(8, doors(&reverse, endpoint(1)).len());
        for last in 0..9 {
            reverse.remove(endpoint(1), door(last));
        }
        assert_eq!(door(9), doors(&reverse, endpoint(1))[0]);
        assert_eq!(8, doors(&reverse, endpoint(1)).len());
        reverse.add(endpoint(1), Rank::Own, door(20));
        assert_eq!([door(9), door(20)], doors(&reverse, endpoint(1))[..2]);
    }

    #[test]
    fn addresses_of_nodes_give_way_and_come_back() {
        let mut reverse = Reverse::new(2);
        for last in 10..20 {
            reverse.add(endpoint(1), Rank::Node, door(last));
        }
        reverse.add(endpoint(1), Rank::Own, door(1));
        let expected: Vec<_> = [1].into_iter().chain(10..17).map(door).collect();
        assert_eq!(expected, doors(&reverse, endpoint(1)));
        reverse.drain();
        // One that is not shown changes nothing.
        reverse.remove(endpoint(1), door(19));
        assert_eq!(Vec::<Op>::new(), reverse.drain());
        reverse.remove(endpoint(1), door(10));
        assert_eq!(1, reverse.drain().len());
        let expected: Vec<_> = [1].into_iter().chain(11..18).map(door).collect();
        assert_eq!(expected, doors(&reverse, endpoint(1)));
    }

    #[test]
    fn what_is_shown_of_too_many_stays_over_a_restart() {
        let mut reverse = Reverse::new(2);
        let all: Vec<_> = (0..12)
            .map(|last| {
                (
                    if last % 3 == 0 { Rank::Own } else { Rank::Node },
                    door(last),
                )
            })
            .collect();
        for (rank, door) in all.iter().rev() {
            reverse.add(endpoint(1), *rank, *door);
        }
        let table = vec![(endpoint(1), doors(&reverse, endpoint(1)))];
        let mut again = Reverse::new(2);
        again.adopt(table, HashMap::from([(endpoint(1), all)]));
        assert_eq!(Vec::<Op>::new(), again.drain());
    }

    #[test]
    fn loopback_and_what_leads_nowhere_is_no_way_back() {
        let frontend = |addr: &str, list| WantedFrontend {
            at: Socket {
                addr: addr.parse().unwrap(),
                port: 30080,
                proto: Proto::TCP,
            },
            kind: FrontendKind::NodePort,
            flags: FrontendFlags::OWN_ADDRESS,
            inside: List::Nobody,
            outside: list,
        };
        let all = [
            frontend("127.0.0.1", List::Cluster),
            frontend("10.0.0.1", List::Local),
            frontend("10.0.0.2", List::Nobody),
            frontend("::1", List::Cluster),
        ];
        let found: Vec<_> = super::doors(&all).map(|(_, door)| door.0).collect();
        assert_eq!([IpAddr::from([10, 0, 0, 1])], *found);
    }
}
