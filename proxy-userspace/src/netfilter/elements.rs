//! Which destinations should be in a set, and which are.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::destination::Destination;

/// A set: what is wanted, and what the kernel has been seen or made to hold.
#[derive(Debug, Default)]
pub(super) struct Elements {
    declared: BTreeSet<Destination>,
    /// What a former run left, until all is known that is declared.
    former: Former,
    held: BTreeSet<Destination>,
}

#[derive(Debug, Default)]
enum Former {
    /// Nobody has looked yet.
    #[default]
    Unknown,
    Kept(BTreeSet<Destination>),
    Over,
}

/// What leads from what is held to what is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ElementChange {
    pub(super) add: Vec<Destination>,
    pub(super) remove: Vec<Destination>,
}

impl ElementChange {
    pub(super) const fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }
}

impl Elements {
    /// Whether anything is declared.
    pub(super) fn is_used(&self) -> bool {
        !self.declared.is_empty()
    }

    /// How many addresses are wanted and held, each with some port at least.
    pub(super) fn served(&self) -> usize {
        let mut last: Option<IpAddr> = None;
        let served = self.held.iter().filter(|held| self.wants(held));
        // Those of an address stand side by side.
        let is_new = |held: &&Destination| last.replace(held.address) != Some(held.address);
        served.filter(is_new).count()
    }

    /// It is declared.
    pub(super) fn declare(&mut self, destination: Destination) {
        self.declared.insert(destination);
    }

    /// It is declared no more.
    pub(super) fn withdraw(&mut self, destination: Destination) {
        self.declared.remove(&destination);
        if let Former::Kept(former) = &mut self.former {
            former.remove(&destination);
        }
    }

    /// All that is declared is known: what a former run left and nobody declares is not wanted.
    pub(super) fn complete(&mut self) {
        self.former = Former::Over;
    }

    /// Notes what the kernel holds. What is there at first is of a former run; what comes to it
    /// later by anybody else is not wanted.
    pub(super) fn note_held(&mut self, held: BTreeSet<Destination>) {
        if let Former::Unknown = self.former {
            self.former = Former::Kept(held.clone());
        }
        self.held = held;
    }

    /// All that there is to do.
    pub(super) fn change(&self) -> ElementChange {
        let all: BTreeSet<_> = match &self.former {
            Former::Kept(former) => self.declared.union(former).copied().collect(),
            Former::Unknown | Former::Over => self.declared.clone(),
        };
        ElementChange {
            add: all.difference(&self.held).copied().collect(),
            remove: self.held.difference(&all).copied().collect(),
        }
    }

    /// What there is to do about these.
    pub(super) fn change_of(&self, touched: &BTreeSet<Destination>) -> ElementChange {
        let mut change = ElementChange::default();
        for destination in touched {
            match (self.held.contains(destination), self.wants(destination)) {
                (false, true) => change.add.push(*destination),
                (true, false) => change.remove.push(*destination),
                _ => {}
            }
        }
        change
    }

    /// Notes that it was put into the set.
    pub(super) fn note_added(&mut self, destination: Destination) {
        self.held.insert(destination);
    }

    /// Notes that it was taken out of the set.
    pub(super) fn note_removed(&mut self, destination: Destination) {
        self.held.remove(&destination);
    }

    fn wants(&self, destination: &Destination) -> bool {
        let is_former = match &self.former {
            Former::Kept(former) => former.contains(destination),
            Former::Unknown | Former::Over => false,
        };
        is_former || self.declared.contains(destination)
    }
}
