//! Which service port has which frontend, and what the tables were last told about each.

use std::collections::{BTreeSet, HashMap};

use proxy_common::abi::Frontend;

use super::op::{Op, Socket};
use crate::model::Family;

#[derive(Debug)]
pub(super) struct Frontends {
    capacity: u32,
    /// Frontends in use, of each family.
    used: [u32; 2],
    owners: HashMap<Socket, Owner>,
    /// What the tables hold once the operations so far are carried out.
    told: HashMap<Socket, Frontend>,
    changed: BTreeSet<Socket>,
}

#[derive(Debug)]
struct Owner {
    /// Number of the service port.
    number: u32,
    /// What the frontend should be.
    value: Option<Frontend>,
}

impl Frontends {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            capacity,
            used: [0; 2],
            owners: HashMap::new(),
            told: HashMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// Whether there is room for this frontend, or it has its place already.
    pub(super) fn has_room(&mut self, at: Socket) -> bool {
        self.owners.contains_key(&at) || *self.used_mut(at.family()) < self.capacity
    }

    /// Gives a frontend that there is room for to a service port.
    pub(super) fn grant(&mut self, at: Socket, number: u32) {
        if self.owners.contains_key(&at) {
            return;
        }
        *self.used_mut(at.family()) += 1;
        let value = None;
        self.owners.insert(at, Owner { number, value });
        self.changed.insert(at);
    }

    /// Begins with a frontend that the tables hold.
    pub(super) fn adopt(&mut self, at: Socket, value: Frontend) {
        *self.used_mut(at.family()) += 1;
        self.told.insert(at, value);
        let owner = Owner {
            number: value.service,
            value: Some(value),
        };
        self.owners.insert(at, owner);
    }

    /// Takes a frontend from its owner.
    pub(super) fn release(&mut self, at: Socket) {
        if self.owners.remove(&at).is_some() {
            *self.used_mut(at.family()) -= 1;
            self.changed.insert(at);
        }
    }

    /// Says what a frontend that has an owner should be.
    pub(super) fn set(&mut self, at: Socket, value: Frontend) {
        if let Some(owner) = self.owners.get_mut(&at)
            && owner.value != Some(value)
        {
            owner.value = Some(value);
            self.changed.insert(at);
        }
    }

    /// What a frontend should be, if that was said.
    pub(super) fn value(&self, at: Socket) -> Option<Frontend> {
        self.owners.get(&at).and_then(|owner| owner.value)
    }

    /// Number of the service port that has a frontend.
    pub(super) fn owner(&self, at: Socket) -> Option<u32> {
        self.owners.get(&at).map(|owner| owner.number)
    }

    /// Operations for the frontends that changed since the last call. Removals come first: a full
    /// table has no room before, and a frontend that goes a little earlier hurts nobody.
    pub(super) fn drain(&mut self) -> Vec<Op> {
        let mut ops = Vec::new();
        let mut switched = Vec::new();
        for at in std::mem::take(&mut self.changed) {
            match self.value(at) {
                Some(value) => {
                    if self.told.insert(at, value) != Some(value) {
                        switched.push(Op::Frontend { at, value });
                    }
                }
                None => {
                    if self.told.remove(&at).is_some() {
                        ops.push(Op::FrontendGone { at });
                    }
                }
            }
        }
        ops.extend(switched);
        ops
    }

    /// What the tables should hold at a frontend.
    pub(super) fn op(&self, at: Socket) -> Op {
        match self.told.get(&at) {
            Some(&value) => Op::Frontend { at, value },
            None => Op::FrontendGone { at },
        }
    }

    const fn used_mut(&mut self, family: Family) -> &mut u32 {
        let [v4, v6] = &mut self.used;
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }
}
