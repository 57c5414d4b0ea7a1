//! Which service port has which frontend, and what the tables were last told about each.

use std::collections::{BTreeSet, HashMap};

use proxy_common::abi::Frontend;

use super::op::{Op, Socket};
use crate::model::{Family, ObjectName};

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
    service: ObjectName,
    /// Services that want the frontend as well.
    others: BTreeSet<ObjectName>,
    /// What the frontend should be.
    value: Option<Frontend>,
}

/// Why a frontend cannot be had.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It belongs to another service port.
    Taken(ObjectName),
    /// The table is full.
    Full,
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

    /// Why this service port, if it has a number yet, cannot have a frontend: the first one that
    /// asks has it until it releases it.
    pub(super) fn refusal(
        &mut self,
        at: Socket,
        number: Option<u32>,
        service: &ObjectName,
    ) -> Option<Refusal> {
        if let Some(owner) = self.owners.get_mut(&at) {
            if number == Some(owner.number) {
                return None;
            }
            owner.others.insert(service.clone());
            return Some(Refusal::Taken(owner.service.clone()));
        }
        (*self.used_mut(at.family()) >= self.capacity).then_some(Refusal::Full)
    }

    /// Gives a frontend that was not refused to a service port.
    pub(super) fn grant(&mut self, at: Socket, number: u32, service: &ObjectName) {
        if self.owners.contains_key(&at) {
            return;
        }
        *self.used_mut(at.family()) += 1;
        let owner = Owner {
            number,
            service: service.clone(),
            others: BTreeSet::new(),
            value: None,
        };
        self.owners.insert(at, owner);
        self.changed.insert(at);
    }

    /// Begins with a frontend that the tables hold, whose owner has no name yet.
    pub(super) fn adopt(&mut self, at: Socket, value: Frontend) {
        *self.used_mut(at.family()) += 1;
        self.told.insert(at, value);
        let owner = Owner {
            number: value.service,
            service: ObjectName::new("", ""),
            others: BTreeSet::new(),
            value: Some(value),
        };
        self.owners.insert(at, owner);
    }

    /// Names the Service of an adopted frontend.
    pub(super) fn rename(&mut self, at: Socket, service: &ObjectName) {
        if let Some(owner) = self.owners.get_mut(&at) {
            owner.service = service.clone();
        }
    }

    /// Takes a frontend from its owner; returns the Services that were refused it.
    pub(super) fn release(&mut self, at: Socket) -> BTreeSet<ObjectName> {
        let Some(owner) = self.owners.remove(&at) else {
            return BTreeSet::new();
        };
        *self.used_mut(at.family()) -= 1;
        self.changed.insert(at);
        owner.others
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
