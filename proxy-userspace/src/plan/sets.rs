//! Regions of the set array: each changed set gets a new one, and the old one rests until no
//! reader can still be in it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use proxy_common::abi::EndpointSet;

use super::GRACE;

/// Consecutive elements of the set array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Region {
    pub(super) base: u32,
    pub(super) len: u32,
}

impl Region {
    /// Where an empty set stands.
    pub(super) const EMPTY: Self = Self { base: 0, len: 0 };
}

impl From<EndpointSet> for Region {
    fn from(set: EndpointSet) -> Self {
        Self {
            base: set.base(),
            len: set.count(),
        }
    }
}

impl From<Region> for EndpointSet {
    fn from(region: Region) -> Self {
        Self::new(region.base, region.len)
    }
}

/// The free and the resting parts of the set array.
#[derive(Debug)]
pub(super) struct Regions {
    /// Length of each free part, by its base; neighbours are merged.
    free: BTreeMap<u32, u32>,
    /// The same as (length, base): the smallest that fits is taken, which keeps large parts whole.
    by_len: BTreeSet<(u32, u32)>,
    /// Given up since the tables were last known to follow.
    given_up: Vec<Region>,
    /// At rest and since when, oldest first.
    resting: VecDeque<(Region, Duration)>,
}

impl Regions {
    pub(super) fn new(capacity: u32) -> Self {
        let mut regions = Self {
            free: BTreeMap::new(),
            by_len: BTreeSet::new(),
            given_up: Vec::new(),
            resting: VecDeque::new(),
        };
        regions.insert(Region {
            base: 0,
            len: capacity,
        });
        regions
    }

    /// A free region of this length, if there is one.
    pub(super) fn take(&mut self, len: u32, now: Duration) -> Option<Region> {
        self.wake(now);
        let &(found, base) = self.by_len.range((len, 0)..).next()?;
        self.remove(base, found);
        self.insert(Region {
            base: base + len,
            len: found - len,
        });
        Some(Region { base, len })
    }

    /// Takes this very region, if all of it is free.
    pub(super) fn reserve(&mut self, region: Region) -> bool {
        if region.len == 0 {
            return true;
        }
        let Some((&base, &len)) = self.free.range(..=region.base).next_back() else {
            return false;
        };
        let (end, wanted) = (base + len, region.base.saturating_add(region.len));
        if wanted > end {
            return false;
        }
        self.remove(base, len);
        self.insert(Region {
            base,
            len: region.base - base,
        });
        self.insert(Region {
            base: wanted,
            len: end - wanted,
        });
        true
    }

    /// Takes back a region that no table has heard of.
    pub(super) fn put_back(&mut self, region: Region) {
        self.insert(region);
    }

    /// Ends the use of a region.
    pub(super) fn give_up(&mut self, region: Region) {
        if region.len > 0 {
            self.given_up.push(region);
        }
    }

    /// The tables followed all that was planned: rest begins.
    pub(super) fn applied(&mut self, now: Duration) {
        let resting = self.given_up.drain(..).map(|region| (region, now));
        self.resting.extend(resting);
    }

    fn wake(&mut self, now: Duration) {
        while let Some(&(region, since)) = self.resting.front() {
            if since + GRACE > now {
                break;
            }
            self.resting.pop_front();
            self.insert(region);
        }
    }

    /// Adds a free part, merged with its neighbours.
    fn insert(&mut self, region: Region) {
        let Region { mut base, mut len } = region;
        if len == 0 {
            return;
        }
        if let Some((&before, &before_len)) = self.free.range(..base).next_back()
            && before + before_len == base
        {
            self.remove(before, before_len);
            base = before;
            len += before_len;
        }
        if let Some(&after_len) = self.free.get(&(base + len)) {
            self.remove(base + len, after_len);
            len += after_len;
        }
        self.free.insert(base, len);
        self.by_len.insert((len, base));
    }

    fn remove(&mut self, base: u32, len: u32) {
        self.free.remove(&base);
        self.by_len.remove(&(len, base));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_region_rests_until_the_grace_is_over() {
        let mut regions = Regions::new(10);
        let first = regions.take(6, Duration::ZERO).unwrap();
        regions.give_up(first);
        assert_eq!(None, regions.take(6, GRACE * 9));
        regions.applied(GRACE * 9);
        assert_eq!(None, regions.take(6, GRACE * 9));
        assert_eq!(Some(first), regions.take(6, GRACE * 10));
    }

    #[test]
    fn the_smallest_part_that_fits_is_taken() {
        let mut regions = Regions::new(100);
        let [a, b, c] = [10, 20, 30].map(|len| regions.take(len, Duration::ZERO).unwrap());
        regions.give_up(a);
        regions.give_up(c);
        regions.applied(Duration::ZERO);
        assert_eq!(10, regions.take(5, GRACE).unwrap().len + 5);
        assert_eq!(b.base + b.len, regions.take(40, GRACE).unwrap().base);
    }

    #[test]
    fn a_certain_region_is_had_once() {
        let mut regions = Regions::new(100);
        let certain = Region { base: 40, len: 20 };
        assert!(regions.reserve(certain));
        assert!(!regions.reserve(Region { base: 50, len: 1 }));
        assert!(!regions.reserve(Region { base: 30, len: 11 }));
        assert!(!regions.reserve(Region { base: 90, len: 11 }));
        assert!(regions.reserve(Region { base: 0, len: 40 }));
        assert_eq!(60, regions.take(40, Duration::ZERO).unwrap().base);
        regions.give_up(certain);
        regions.applied(Duration::ZERO);
        assert_eq!(Some(certain), regions.take(20, GRACE));
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn regions_in_use_never_overlap_and_all_comes_back(
            steps in prop::collection::vec((1u32..40, any::<prop::sample::Index>()), 1..200)
        ) {
            let mut regions = Regions::new(256);
            let mut used: Vec<Region> = Vec::new();
            let mut now = Duration::ZERO;
            for (len, index) in steps {
                now += GRACE / 3;
                if let Some(region) = regions.take(len, now) {
                    for other in &used {
                        let apart = region.base + region.len <= other.base
                            || other.base + other.len <= region.base;
                        prop_assert!(apart, "{region:?} {other:?}");
                    }
                    used.push(region);
                } else if !used.is_empty() {
                    regions.give_up(used.swap_remove(index.index(used.len())));
                    regions.applied(now);
                }
            }
            used.drain(..).for_each(|region| regions.give_up(region));
            regions.applied(now);
            prop_assert!(regions.take(256, now + GRACE).is_some());
        }
    }
}
