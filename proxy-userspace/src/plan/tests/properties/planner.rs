//! The tables' half of a plan, without the policy before it.

use super::super::super::ports::Ports;
use super::super::super::wanted::Wanted;
use super::*;

/// Service ports and the Services that wait for room.
pub(super) struct Planner {
    pub(super) ports: Ports,
    waiting: BTreeSet<ObjectName>,
}

impl Planner {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            ports: Ports::new(limits),
            waiting: BTreeSet::new(),
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn update(
        &mut self,
        dirty: BTreeSet<ObjectName>,
        wanted: impl Fn(&ObjectName) -> Vec<Wanted>,
        now: Duration,
    ) -> Vec<Op> {
        let created = |name: &ObjectName| Some(created(name));
        for (name, notices) in self.ports.replan(dirty, wanted, created, now) {
            if notices.iter().any(Notice::is_passing) {
                self.waiting.insert(name);
            } else {
                self.waiting.remove(&name);
            }
        }
        self.ports.drain()
    }

    pub(super) fn retry(
        &mut self,
        wanted: impl Fn(&ObjectName) -> Vec<Wanted>,
        now: Duration,
    ) -> Vec<Op> {
        let dirty = std::mem::take(&mut self.waiting);
        self.update(dirty, wanted, now)
    }

    pub(super) fn complete(
        &mut self,
        mut all: BTreeSet<ObjectName>,
        wanted: impl Fn(&ObjectName) -> Vec<Wanted>,
        now: Duration,
    ) -> Vec<Op> {
        all.append(&mut self.ports.end_keeping());
        let mut ops = self.update(all, wanted, now);
        self.ports.retire();
        ops.append(&mut self.ports.drain());
        ops
    }
}
