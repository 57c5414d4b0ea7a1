//! Source ranges: who may use the filtered frontends of which service port.
//!
//! A range is written before a frontend that it restricts is switched in, and goes after that is
//! gone or free for all. No number of a service port is used twice, so that what is left behind is
//! nobody else's.

use std::collections::{BTreeSet, HashMap};

use super::op::Op;
use crate::model::IpNet;

/// The ranges of one family.
#[derive(Debug)]
pub(super) struct Sources {
    capacity: usize,
    ports: HashMap<u32, Ranges>,
    /// Ranges that the table holds, or is to hold before it lets others go.
    used: usize,
    changed: BTreeSet<u32>,
}

#[derive(Debug, Default)]
struct Ranges {
    wanted: BTreeSet<IpNet>,
    /// What the table holds once the operations so far are carried out.
    told: BTreeSet<IpNet>,
}

impl Sources {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            capacity: capacity as usize,
            ports: HashMap::new(),
            used: 0,
            changed: BTreeSet::new(),
        }
    }

    /// Begins with a range that the table holds.
    pub(super) fn adopt(&mut self, service: u32, range: IpNet) {
        let ranges = self.ports.entry(service).or_default();
        ranges.wanted.insert(range);
        self.used += usize::from(ranges.told.insert(range));
    }

    /// Gives a service port exactly these ranges, as far as there is room; returns how many are
    /// left out.
    pub(super) fn set(&mut self, service: u32, ranges: &[IpNet]) -> usize {
        if ranges.is_empty() && !self.ports.contains_key(&service) {
            return 0;
        }
        let own = self.ports.entry(service).or_default();
        let mut wanted = BTreeSet::new();
        let mut missing = 0;
        for range in ranges {
            if own.told.contains(range) || own.wanted.contains(range) {
                wanted.insert(*range);
            } else if self.used < self.capacity {
                self.used += usize::from(wanted.insert(*range));
            } else {
                missing += 1;
            }
        }
        if own.wanted != wanted {
            own.wanted = wanted;
            self.changed.insert(service);
        }
        missing
    }

    /// The service ports that have ranges.
    pub(super) fn services(&self) -> impl Iterator<Item = u32> {
        self.ports.keys().copied()
    }

    /// Operations for what changed since the last call: those that come before the frontends, and
    /// those that come after.
    pub(super) fn drain(&mut self) -> (Vec<Op>, Vec<Op>) {
        let (mut new, mut gone) = (Vec::new(), Vec::new());
        for service in std::mem::take(&mut self.changed) {
            let Some(own) = self.ports.get_mut(&service) else {
                continue;
            };
            let added = own.wanted.difference(&own.told);
            new.extend(added.map(|&range| Op::Source { service, range }));
            let removed = own.told.difference(&own.wanted);
            gone.extend(removed.map(|&range| Op::SourceGone { service, range }));
            own.told.clone_from(&own.wanted);
            if own.told.is_empty() {
                self.ports.remove(&service);
            }
        }
        // What was wanted for a moment between two calls is counted no more either.
        self.used = self.ports.values().map(|own| own.told.len()).sum();
        (new, gone)
    }

    /// What a range should be.
    pub(super) fn op(&self, service: u32, range: IpNet) -> Op {
        let own = self.ports.get(&service);
        if own.is_some_and(|own| own.told.contains(&range)) {
            Op::Source { service, range }
        } else {
            Op::SourceGone { service, range }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(last: u8) -> IpNet {
        format!("10.0.{last}.0/24").parse().unwrap()
    }

    fn new(service: u32, last: u8) -> Op {
        let range = range(last);
        Op::Source { service, range }
    }

    fn gone(service: u32, last: u8) -> Op {
        let range = range(last);
        Op::SourceGone { service, range }
    }

    #[test]
    fn what_stays_is_not_touched() {
        let mut sources = Sources::new(9);
        sources.set(1, &[range(1), range(2), range(2)]);
        assert_eq!((vec![new(1, 1), new(1, 2)], vec![]), sources.drain());
        sources.set(1, &[range(2), range(1)]);
        assert_eq!((vec![], vec![]), sources.drain());
        sources.set(1, &[range(2), range(3)]);
        assert_eq!((vec![new(1, 3)], vec![gone(1, 1)]), sources.drain());
        assert_eq!(gone(1, 1), sources.op(1, range(1)));
        assert_eq!(new(1, 3), sources.op(1, range(3)));
        sources.set(1, &[]);
        assert_eq!((vec![], vec![gone(1, 2), gone(1, 3)]), sources.drain());
    }

    #[test]
    fn room_is_there_again_when_what_goes_is_gone() {
        let mut sources = Sources::new(2);
        assert_eq!(1, sources.set(1, &[range(1), range(2), range(3)]));
        assert_eq!(1, sources.set(2, &[range(1)]));
        sources.drain();
        // Until the frontends are switched both are needed.
        assert_eq!(1, sources.set(1, &[range(3)]));
        assert_eq!((vec![], vec![gone(1, 1), gone(1, 2)]), sources.drain());
        assert_eq!(0, sources.set(1, &[range(3)]));
        assert_eq!(0, sources.set(2, &[range(1)]));
        assert_eq!((vec![new(1, 3), new(2, 1)], vec![]), sources.drain());
    }

    #[test]
    fn what_the_table_holds_is_gone_on_with() {
        let mut sources = Sources::new(2);
        sources.adopt(1, range(1));
        sources.adopt(7, range(1));
        assert_eq!(0, sources.set(1, &[range(1)]));
        assert_eq!((vec![], vec![]), sources.drain());
        let mut services: Vec<_> = sources.services().collect();
        services.sort_unstable();
        assert_eq!([1, 7], *services);
        sources.set(7, &[]);
        assert_eq!((vec![], vec![gone(7, 1)]), sources.drain());
    }
}
