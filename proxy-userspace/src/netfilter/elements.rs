//! Which addresses should be in a set, and which are.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// A set of addresses: what is wanted, and what the kernel has been seen or made to hold.
#[derive(Debug, Default)]
pub(super) struct Elements {
    declared: BTreeSet<IpAddr>,
    /// What a former run left, until all is known that is declared.
    former: Former,
    held: BTreeSet<IpAddr>,
}

#[derive(Debug, Default)]
enum Former {
    /// Nobody has looked yet.
    #[default]
    Unknown,
    Kept(BTreeSet<IpAddr>),
    Over,
}

/// What leads from the addresses that are held to those that are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ElementChange {
    pub(super) add: Vec<IpAddr>,
    pub(super) remove: Vec<IpAddr>,
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

    /// How many addresses are wanted and held.
    pub(super) fn served(&self) -> usize {
        self.held.iter().filter(|held| self.wants(held)).count()
    }

    /// An address is declared.
    pub(super) fn declare(&mut self, address: IpAddr) {
        self.declared.insert(address);
    }

    /// An address is declared no more.
    pub(super) fn withdraw(&mut self, address: IpAddr) {
        self.declared.remove(&address);
        if let Former::Kept(former) = &mut self.former {
            former.remove(&address);
        }
    }

    /// All that is declared is known: what a former run left and nobody declares is not wanted.
    pub(super) fn complete(&mut self) {
        self.former = Former::Over;
    }

    /// Notes what the kernel holds. What is there at first is of a former run; what comes to it
    /// later by anybody else is not wanted.
    pub(super) fn note_held(&mut self, held: BTreeSet<IpAddr>) {
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

    /// What there is to do about these addresses.
    pub(super) fn change_of(&self, touched: &BTreeSet<IpAddr>) -> ElementChange {
        let mut change = ElementChange::default();
        for address in touched {
            match (self.held.contains(address), self.wants(address)) {
                (false, true) => change.add.push(*address),
                (true, false) => change.remove.push(*address),
                _ => {}
            }
        }
        change
    }

    /// Notes that an address was put into the set.
    pub(super) fn note_added(&mut self, address: IpAddr) {
        self.held.insert(address);
    }

    /// Notes that an address was taken out of the set.
    pub(super) fn note_removed(&mut self, address: IpAddr) {
        self.held.remove(&address);
    }

    fn wants(&self, address: &IpAddr) -> bool {
        let is_former = match &self.former {
            Former::Kept(former) => former.contains(address),
            Former::Unknown | Former::Over => false,
        };
        is_former || self.declared.contains(address)
    }
}
