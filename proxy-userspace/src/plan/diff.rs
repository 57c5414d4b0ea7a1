//! What changes between the endpoints that a service port has and those it should have.

use std::cmp::Ordering;
use std::net::IpAddr;

use proxy_common::abi::EndpointFlags;

use super::wanted::{List, WantedEndpoint};

/// An endpoint that has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) addr: IpAddr,
    pub(super) port: u16,
    pub(super) slot: u32,
    pub(super) flags: EndpointFlags,
}

impl Held {
    /// Whether it stands in some set.
    pub(super) const fn is_listed(&self) -> bool {
        self.flags.has(EndpointFlags::ALIVE)
    }

    /// Whether it stands in the set of this list.
    pub(super) const fn is_in(&self, list: List) -> bool {
        match list {
            List::Nobody => false,
            List::Cluster => self.flags.has(EndpointFlags::IN_CLUSTER_SET),
            List::Local => self.flags.has(EndpointFlags::IN_LOCAL_SET),
        }
    }
}

/// The properties that an endpoint's record should show.
pub(super) const fn flags(endpoint: &WantedEndpoint) -> EndpointFlags {
    let mut flags = EndpointFlags::HELD;
    if endpoint.is_listed() {
        flags = flags.with(EndpointFlags::ALIVE);
    }
    if endpoint.is_local {
        flags = flags.with(EndpointFlags::LOCAL);
    }
    if endpoint.in_cluster {
        flags = flags.with(EndpointFlags::IN_CLUSTER_SET);
    }
    if endpoint.in_local {
        flags = flags.with(EndpointFlags::IN_LOCAL_SET);
    }
    flags
}

/// Those of these properties that let an endpoint have new flows: a record gets them before a set
/// lists it, and loses them after.
pub(super) const fn listing(flags: EndpointFlags) -> EndpointFlags {
    let all = EndpointFlags::ALIVE
        .with(EndpointFlags::IN_CLUSTER_SET)
        .with(EndpointFlags::IN_LOCAL_SET);
    EndpointFlags(flags.0 & all.0)
}

/// The difference between two lists of endpoints.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Diff {
    /// Endpoints in both, with the properties they should have.
    pub(super) kept: Vec<(Held, EndpointFlags)>,
    /// Endpoints that serve no more.
    pub(super) gone: Vec<Held>,
    /// Endpoints without a slot that should be listed. One that should not be has no flows that a
    /// slot could keep.
    pub(super) new: Vec<WantedEndpoint>,
}

/// Compares two lists, both in order of address and port.
pub(super) fn diff(held: &[Held], wanted: &[WantedEndpoint]) -> Diff {
    let mut diff = Diff::default();
    let mut held = held.iter().peekable();
    let mut wanted = wanted.iter().peekable();
    loop {
        let order = match (held.peek(), wanted.peek()) {
            (None, None) => return diff,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(held), Some(wanted)) => (held.addr, held.port).cmp(&(wanted.addr, wanted.port)),
        };
        match order {
            Ordering::Less => diff.gone.extend(held.next()),
            Ordering::Greater => {
                diff.new
                    .extend(wanted.next().filter(|endpoint| endpoint.is_listed()));
            }
            Ordering::Equal => {
                let pair = held.next().zip(wanted.next());
                diff.kept
                    .extend(pair.map(|(held, wanted)| (*held, flags(wanted))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_merged_in_order() {
        let held = |last: u8| Held {
            addr: IpAddr::from([10, 0, 0, last]),
            port: 80,
            slot: last.into(),
            flags: EndpointFlags::ALIVE,
        };
        let wanted = |last: u8, in_cluster, in_local| WantedEndpoint {
            addr: IpAddr::from([10, 0, 0, last]),
            port: 80,
            is_local: last == 2,
            in_cluster,
            in_local,
        };
        let held_only = EndpointFlags::HELD;
        let both = held_only
            .with(EndpointFlags::ALIVE)
            .with(EndpointFlags::LOCAL)
            .with(EndpointFlags::IN_CLUSTER_SET)
            .with(EndpointFlags::IN_LOCAL_SET);
        let expected = Diff {
            kept: vec![(held(2), both), (held(3), held_only)],
            gone: vec![held(1), held(5)],
            new: vec![wanted(4, false, true), wanted(7, true, false)],
        };
        let before = [held(1), held(2), held(3), held(5)];
        let after = [
            wanted(2, true, true),
            wanted(3, false, false),
            wanted(4, false, true),
            wanted(6, false, false),
            wanted(7, true, false),
        ];
        assert_eq!(expected, diff(&before, &after));
    }
}
