//! Where the sets of one service port stand: one for each list that has an endpoint, and one for
//! both where they have the same.

use std::net::SocketAddr;
use std::time::Duration;

use proxy_common::abi::{EndpointSet, Slot};

use super::super::diff::Held;
use super::super::drawn::DrawnSet;
use super::super::op::Op;
use super::super::sets::{Region, Regions};
use super::super::wanted::List;

/// The lists that have sets.
pub(super) const LISTS: [List; 2] = [List::Cluster, List::Local];

/// The regions of a service port's sets; empty ones where there is nothing to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    cluster: Region,
    local: Region,
}

impl Windows {
    pub(super) const EMPTY: Self = Self {
        cluster: Region::EMPTY,
        local: Region::EMPTY,
    };

    const fn region(&self, list: List) -> Region {
        match list {
            List::Nobody => Region::EMPTY,
            List::Cluster => self.cluster,
            List::Local => self.local,
        }
    }

    /// What a frontend says of the set of this list.
    pub(super) fn set(&self, list: List) -> EndpointSet {
        self.region(list).into()
    }

    pub(super) const fn place(&mut self, list: List, region: Region) {
        match list {
            List::Nobody => {}
            List::Cluster => self.cluster = region,
            List::Local => self.local = region,
        }
    }

    /// The list whose set begins there.
    pub(super) fn at(&self, base: u32) -> Option<List> {
        let begins = |list: &List| {
            let region = self.region(*list);
            region.len > 0 && region.base == base
        };
        LISTS.into_iter().find(begins)
    }

    /// What clients draw from: each set once, with the names of all lists that it is.
    pub(super) fn drawn(&self, endpoints: &[Held]) -> Vec<DrawnSet> {
        let mut all: Vec<DrawnSet> = Vec::new();
        for (list, name) in LISTS.into_iter().zip(["cluster", "local"]) {
            let Region { base, len } = self.region(list);
            if len == 0 {
                continue;
            }
            if let Some(same) = all.iter_mut().find(|set| set.base == base) {
                same.lists.push(name);
                continue;
            }
            let listed = endpoints.iter().filter(|held| held.is_in(list));
            all.push(DrawnSet {
                base,
                lists: vec![name],
                endpoints: listed
                    .map(|held| SocketAddr::new(held.addr, held.port))
                    .collect(),
            });
        }
        all
    }

    /// Each of its regions once.
    pub(super) fn regions(&self) -> impl Iterator<Item = Region> {
        let local = (self.local != self.cluster).then_some(self.local);
        let all = [Some(self.cluster), local].into_iter().flatten();
        all.filter(|region| region.len > 0)
    }
}

/// The slots of those endpoints that are in a list.
pub(super) fn listed(endpoints: &[Held], list: List) -> Vec<u32> {
    let listed = endpoints.iter().filter(|held| held.is_in(list));
    listed.map(|held| held.slot).collect()
}

/// The slots of a set.
pub(super) fn slots(endpoints: &[Held], list: List, service: u32) -> Vec<Slot> {
    let listed = listed(endpoints, list).into_iter();
    listed.map(|endpoint| Slot { endpoint, service }).collect()
}

/// Other windows for other endpoints, and what is to be written there. A set that stands somewhere
/// already stays there; the others are written beside. `None` where there is no room for one of
/// this length.
pub(super) fn moved(
    windows: &Windows,
    (old, new): (&[Held], &[Held]),
    service: u32,
    regions: &mut Regions,
    now: Duration,
) -> Result<(Windows, Vec<Op>), usize> {
    let mut known: Vec<_> = LISTS
        .iter()
        .map(|list| (slots(old, *list, service), windows.region(*list)))
        // Where a former run was cut short, a set may not stand anywhere.
        .filter(|(slots, region)| slots.len() == region.len as usize)
        .collect();
    let (mut moved, mut ops, mut taken) = (Windows::EMPTY, Vec::new(), Vec::new());
    for list in LISTS {
        let slots = slots(new, list, service);
        if slots.is_empty() {
            continue;
        }
        if let Some((_, region)) = known.iter().find(|(other, _)| *other == slots) {
            moved.place(list, *region);
            continue;
        }
        let len = u32::try_from(slots.len()).ok();
        let Some(region) = len.and_then(|len| regions.take(len, now)) else {
            for region in taken {
                regions.put_back(region);
            }
            return Err(slots.len());
        };
        taken.push(region);
        moved.place(list, region);
        let base = region.base;
        known.push((slots.clone(), region));
        // What another set counted here is none of this one's.
        ops.push(Op::ResetDraws {
            base,
            len: region.len,
        });
        ops.push(Op::Set { base, slots });
    }
    Ok((moved, ops))
}
