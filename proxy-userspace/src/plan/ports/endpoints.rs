//! The endpoints of one service port: their slots, records and sets.

use std::time::Duration;

use proxy_common::abi::EndpointFlags;

use super::super::diff::{Held, diff, flags, listing};
use super::super::drawn::Left;
use super::super::ids::Taken;
use super::super::op::{Op, Record};
use super::super::reverse::doors;
use super::super::sets::Region;
use super::super::wanted::{List, Wanted, WantedEndpoint, WantedFrontend};
use super::super::{MAX_ENDPOINTS, Notice};
use super::windows::{LISTS, moved};
use super::{Port, Ports};
use crate::model::Family;

impl Ports {
    /// Gives a service port the endpoints that are wanted, as far as there is room.
    pub(super) fn set_endpoints(
        &mut self,
        number: u32,
        wanted: &mut Wanted,
        now: Duration,
        notices: &mut Vec<Notice>,
    ) {
        let Some(mut port) = self.by_number.remove(&number) else {
            return;
        };
        let had = std::mem::replace(&mut port.affinity_timeout, wanted.affinity_timeout);
        if had != 0 && wanted.affinity_timeout == 0 {
            let family = port.key.family;
            let op = Op::ForgetClients {
                family,
                service: number,
            };
            self.steps.farewells.push(op);
        }
        keep_used(&mut wanted.endpoints, &port.frontends);
        let surplus = limit_listed(&mut wanted.endpoints);
        if surplus > 0 {
            notices.push(Notice::TooManyEndpoints {
                port: port.key.name.to_string(),
                proto: port.key.proto,
                family: port.key.family,
                missing: surplus,
            });
        }
        self.change_endpoints(number, &mut port, &wanted.endpoints, now, notices);
        self.by_number.insert(number, port);
    }

    fn change_endpoints(
        &mut self,
        number: u32,
        port: &mut Port,
        wanted: &[WantedEndpoint],
        now: Duration,
        notices: &mut Vec<Notice>,
    ) {
        let diff = diff(&port.endpoints, wanted);
        let taken = self.take_slots(number, port, &diff.new, now, notices);
        let kept = diff
            .kept
            .iter()
            .map(|&(held, flags)| Held { flags, ..held });
        let mut endpoints: Vec<_> = kept.chain(taken.iter().map(|&(held, _)| held)).collect();
        endpoints.sort_unstable_by_key(|endpoint| (endpoint.addr, endpoint.port));

        let change = (&*port.endpoints, &*endpoints);
        match moved(&port.windows, change, number, &mut self.regions, now) {
            Ok((windows, mut sets)) => {
                self.steps.sets.append(&mut sets);
                let former = std::mem::replace(&mut port.windows, windows);
                let is_left = |old: &Region| !windows.regions().any(|new| new == *old);
                let left: Vec<_> = former.regions().filter(is_left).collect();
                self.leave(number, &left, false);
                for stray in port.strays.drain(..) {
                    self.regions.give_up(stray);
                }
            }
            Err(len) => {
                notices.push(Notice::SetsFull {
                    port: port.key.name.to_string(),
                    proto: port.key.proto,
                    family: port.key.family,
                    len,
                });
                let slots = self.slots.of_mut(port.key.family);
                for (_, taken) in taken {
                    slots.put_back(taken);
                }
                return;
            }
        }
        for (held, taken) in taken {
            self.welcome(port, held, taken);
        }
        for (held, flags) in diff.kept {
            self.mark(port.key.family, held, flags);
        }
        self.give_up(&diff.gone, port);
        port.endpoints = endpoints;
    }

    fn take_slots(
        &mut self,
        number: u32,
        port: &Port,
        new: &[WantedEndpoint],
        now: Duration,
        notices: &mut Vec<Notice>,
    ) -> Vec<(Held, Taken)> {
        let slots = self.slots.of_mut(port.key.family);
        let mut all = Vec::with_capacity(new.len());
        for endpoint in new {
            let (addr, flags) = (endpoint.addr, flags(endpoint));
            let Some(taken) = slots.take((number, addr, endpoint.port), flags, now) else {
                notices.push(Notice::EndpointsFull {
                    port: port.key.name.to_string(),
                    proto: port.key.proto,
                    family: port.key.family,
                    missing: new.len() - all.len(),
                    capacity: self.limits.endpoints,
                });
                break;
            };
            let held = Held {
                addr,
                port: endpoint.port,
                slot: taken.slot,
                flags,
            };
            all.push((held, taken));
        }
        all
    }

    /// Writes the record of an endpoint that got a slot, and the ways to it.
    fn welcome(&mut self, port: &Port, held: Held, taken: Taken) {
        let family = port.key.family;
        let slot = held.slot;
        if taken.is_used {
            self.steps.records.push(Op::ResetPicks { family, slot });
        }
        if let Some(record) = self.slots.of(family).record(slot) {
            self.steps.records.push(Op::Endpoint { slot, record });
        }
        self.endpoint_bits
            .set_socket(port.key.socket(held.addr, held.port));
        let reverse = self.reverse.of_mut(family);
        for (rank, door) in doors(&port.frontends) {
            reverse.add(port.key.socket(held.addr, held.port), rank, door);
        }
    }

    /// Gives the record of an endpoint that stays the properties it should have: before the sets
    /// what they need, after them what they need no more.
    fn mark(&mut self, family: Family, held: Held, flags: EndpointFlags) {
        if held.flags == flags {
            return;
        }
        let slot = held.slot;
        let Some(record) = self.slots.of_mut(family).mark(slot, flags) else {
            return;
        };
        let between = flags.with(listing(held.flags));
        if between != held.flags {
            let flags = between;
            let record = Record { flags, ..record };
            self.steps.records.push(Op::Endpoint { slot, record });
        }
        if between != flags {
            self.steps.farewells.push(Op::Endpoint { slot, record });
        }
    }

    /// Ends the use of these endpoints' slots.
    pub(super) fn give_up(&mut self, gone: &[Held], port: &Port) {
        for held in gone {
            self.give_up_slot(port.key.family, held.slot);
            let reverse = self.reverse.of_mut(port.key.family);
            for (_, door) in doors(&port.frontends) {
                reverse.remove(port.key.socket(held.addr, held.port), door);
            }
        }
    }

    /// Ends the use of sets that were drawn from.
    pub(super) fn leave(&mut self, service: u32, sets: &[Region], is_last: bool) {
        for region in sets {
            self.regions.give_up(*region);
        }
        if is_last || !sets.is_empty() {
            self.left.push(Left {
                service,
                sets: sets
                    .iter()
                    .map(|region| (region.base, region.len))
                    .collect(),
                is_last,
            });
        }
    }

    /// Ends the use of a slot.
    pub(super) fn give_up_slot(&mut self, family: Family, slot: u32) {
        if let Some(record) = self.slots.of_mut(family).give_up(slot) {
            self.steps.farewells.push(Op::Endpoint { slot, record });
        }
    }
}

/// Takes endpoints from the lists that no frontend uses: they need no set there, and a slot only if
/// they are in another.
fn keep_used(wanted: &mut [WantedEndpoint], frontends: &[WantedFrontend]) {
    let is_used = |list| frontends.iter().any(|frontend| frontend.uses(list));
    let (cluster, local) = (is_used(List::Cluster), is_used(List::Local));
    for endpoint in wanted {
        endpoint.in_cluster &= cluster;
        endpoint.in_local &= local;
    }
}

/// Keeps as many endpoints listed as a set may have; returns how many that leaves out.
fn limit_listed(wanted: &mut [WantedEndpoint]) -> usize {
    let mut counts = LISTS.map(|_| 0);
    let mut surplus = 0;
    for endpoint in wanted {
        let mut is_left_out = false;
        let lists = [&mut endpoint.in_cluster, &mut endpoint.in_local];
        for (is_in, count) in lists.into_iter().zip(&mut counts) {
            *count += usize::from(*is_in);
            is_left_out |= *is_in && *count > MAX_ENDPOINTS;
            *is_in &= *count <= MAX_ENDPOINTS;
        }
        surplus += usize::from(is_left_out);
    }
    surplus
}
