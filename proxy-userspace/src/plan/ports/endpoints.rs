//! The endpoints of one service port: their slots, records and set.

use std::time::Duration;

use proxy_common::abi::{EndpointFlags, Slot};

use super::super::desired::WantedEndpoint;
use super::super::diff::{Held, diff, flags};
use super::super::ids::Taken;
use super::super::{MAX_ENDPOINTS, Notice, Op};
use super::{Port, Ports, Region, listed};
use crate::model::Family;

impl Ports {
    /// Gives a service port these endpoints, as far as there is room.
    pub(super) fn set_endpoints(
        &mut self,
        number: u32,
        mut wanted: Vec<WantedEndpoint>,
        now: Duration,
        notices: &mut Vec<Notice>,
    ) {
        let Some(mut port) = self.by_number.remove(&number) else {
            return;
        };
        let surplus = limit_listed(&mut wanted);
        if surplus > 0 {
            notices.push(Notice::TooManyEndpoints {
                port: port.key.name.to_string(),
                protocol: port.key.protocol,
                family: port.key.family,
                missing: surplus,
            });
        }
        self.change_endpoints(number, &mut port, &wanted, now, notices);
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

        if !self.change_set(number, port, &endpoints, now) {
            notices.push(Notice::SetsFull {
                port: port.key.name.to_string(),
                protocol: port.key.protocol,
                family: port.key.family,
                len: listed(&endpoints).count(),
            });
            let slots = self.slots.of_mut(port.key.family);
            for (_, taken) in taken {
                slots.put_back(taken);
            }
            return;
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
                    protocol: port.key.protocol,
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

    /// Writes the set of these endpoints beside the old one, if it differs. Returns whether there
    /// was room.
    fn change_set(&mut self, number: u32, port: &mut Port, new: &[Held], now: Duration) -> bool {
        if !port.is_torn && listed(&port.endpoints).eq(listed(new)) {
            // A new frontend is changed already, an old one leads where it led.
            return true;
        }
        let slots: Vec<_> = listed(new)
            .map(|endpoint| Slot {
                endpoint,
                service: number,
            })
            .collect();
        let region = match u32::try_from(slots.len()) {
            Ok(0) => Region { base: 0, len: 0 },
            Ok(len) => match self.regions.take(len, now) {
                Some(region) => region,
                None => return false,
            },
            Err(_) => return false,
        };
        if !slots.is_empty() {
            let base = region.base;
            self.steps.sets.push(Op::Set { base, slots });
        }
        self.regions.give_up(port.region);
        port.region = region;
        port.is_torn = false;
        for &at in &port.frontends {
            self.frontends.touch(at);
        }
        true
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
        for at in &port.frontends {
            reverse.add(port.key.socket(held.addr, held.port), (at.addr, at.port));
        }
    }

    /// Gives the record of an endpoint that stays the properties it should have.
    fn mark(&mut self, family: Family, held: Held, flags: EndpointFlags) {
        if held.flags == flags {
            return;
        }
        let slot = held.slot;
        let Some(record) = self.slots.of_mut(family).mark(slot, flags) else {
            return;
        };
        let stays_listed = flags.has(EndpointFlags::ALIVE);
        let steps = if stays_listed {
            &mut self.steps.records
        } else {
            &mut self.steps.farewells
        };
        steps.push(Op::Endpoint { slot, record });
    }

    /// Ends the use of these endpoints' slots.
    pub(super) fn give_up(&mut self, gone: &[Held], port: &Port) {
        for held in gone {
            self.give_up_slot(port.key.family, held.slot);
            let reverse = self.reverse.of_mut(port.key.family);
            for at in &port.frontends {
                reverse.remove(port.key.socket(held.addr, held.port), (at.addr, at.port));
            }
        }
    }

    /// Ends the use of a slot.
    pub(super) fn give_up_slot(&mut self, family: Family, slot: u32) {
        if let Some(record) = self.slots.of_mut(family).give_up(slot) {
            self.steps.farewells.push(Op::Endpoint { slot, record });
        }
    }
}

/// Keeps as many endpoints listed as a set may have; returns how many that leaves out.
fn limit_listed(wanted: &mut [WantedEndpoint]) -> usize {
    let listed = wanted.iter_mut().filter(|endpoint| endpoint.is_listed);
    let mut surplus = 0;
    for endpoint in listed.skip(MAX_ENDPOINTS) {
        endpoint.is_listed = false;
        surplus += 1;
    }
    surplus
}
