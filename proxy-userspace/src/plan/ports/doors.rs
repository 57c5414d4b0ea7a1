//! The frontends of service ports: who has which, and what they say.

use std::collections::{HashMap, HashSet};

use proxy_common::abi::FrontendFlags;

use super::super::Notice;
use super::super::op::Socket;
use super::super::reverse::doors;
use super::super::wanted::{PortKey, Wanted, WantedFrontend};
use super::{Port, Ports};
use crate::model::ObjectName;

impl Ports {
    /// Gives up the ports of a Service that are not wanted any more, and the frontends that are not
    /// or that another claim comes first for.
    pub(super) fn release(&mut self, name: &ObjectName, wanted: &[Wanted]) {
        let own: Vec<_> = self
            .by_service
            .get(name)
            .into_iter()
            .flatten()
            .map(|(key, number)| (key.clone(), *number))
            .collect();
        for (key, number) in own {
            match wanted.iter().find(|wanted| wanted.key == key) {
                None => self.end(name, &key),
                Some(wanted) => {
                    let mut kept = wanted.sockets();
                    kept.retain(|at| self.claims.is_first(*at, name, &key));
                    self.release_frontends(number, &kept);
                }
            }
        }
    }

    /// Takes from a service port all frontends but these.
    ///
    /// UDP flows that lead to one of them stay with their endpoint by its generation, for most
    /// flows of the service port lead elsewhere: a flow looks its frontend up every few seconds,
    /// and finds none there or another service port's.
    pub(super) fn release_frontends(&mut self, number: u32, kept: &HashSet<Socket>) {
        let Some(port) = self.by_number.get_mut(&number) else {
            return;
        };
        let is_kept = |frontend: &&WantedFrontend| kept.contains(&frontend.at);
        let (kept, gone): (_, Vec<_>) = port.frontends.iter().partition(is_kept);
        port.frontends = kept;
        for WantedFrontend { at, .. } in gone {
            self.frontends.release(at);
            let reverse = self.reverse.of_mut(port.key.family);
            for endpoint in &port.endpoints {
                reverse.remove(
                    port.key.socket(endpoint.addr, endpoint.port),
                    (at.addr, at.port),
                );
            }
        }
    }

    /// The frontends that a service port can have, and its number, which is fresh if it is new.
    pub(super) fn claim(
        &mut self,
        name: &ObjectName,
        wanted: &Wanted,
        notices: &mut Vec<Notice>,
    ) -> (Option<u32>, Vec<WantedFrontend>) {
        let own = self.by_service.get(name);
        let mut number = own.and_then(|own| own.get(&wanted.key)).copied();
        let mut granted = Vec::with_capacity(wanted.frontends.len());
        let mut seen = HashSet::new();
        for frontend in &wanted.frontends {
            let at = frontend.at;
            if !seen.insert(at) {
                continue;
            }
            let first = self.claims.first(at);
            if let Some(first) = first.filter(|first| !first.is_by(name, &wanted.key)) {
                let (frontend, owner) = (at, first.service().clone());
                notices.push(Notice::FrontendTaken { frontend, owner });
                continue;
            }
            self.take_from_former(at);
            if !self.frontends.has_room(at) {
                let (frontend, capacity) = (at, self.limits.frontends);
                notices.push(Notice::FrontendsFull { frontend, capacity });
                continue;
            }
            number = number.or_else(|| self.numbers.take());
            let Some(number) = number else {
                notices.push(Notice::NumbersEnded);
                break;
            };
            self.frontends.grant(at, number);
            granted.push(*frontend);
        }
        if let Some(number) = number {
            let own = self.by_service.entry(name.clone()).or_default();
            own.insert(wanted.key.clone(), number);
        }
        (number, granted)
    }

    /// Gives a service port the frontends that it was granted.
    pub(super) fn set_frontends(
        &mut self,
        number: u32,
        key: &PortKey,
        frontends: Vec<WantedFrontend>,
    ) {
        let entry = self.by_number.entry(number);
        let port = entry.or_insert_with(|| Port::new(key.clone()));
        let old: HashSet<_> = doors(&port.frontends).map(|(_, door)| door).collect();
        let new: Vec<_> = doors(&frontends).collect();
        let kept: HashSet<_> = new.iter().map(|(_, door)| *door).collect();
        let added: Vec<_> = new.iter().filter(|(_, door)| !old.contains(door)).collect();
        let gone: Vec<_> = old.difference(&kept).collect();
        let reverse = self.reverse.of_mut(key.family);
        for endpoint in &port.endpoints {
            let at = key.socket(endpoint.addr, endpoint.port);
            for door in &gone {
                reverse.remove(at, **door);
            }
            for (rank, door) in &added {
                reverse.add(at, *rank, *door);
            }
        }
        for frontend in &frontends {
            self.frontend_bits.set(frontend.at.addr);
            // What leaves from there may be the node's own, and is looked at where endpoints'
            // answers are.
            if frontend.flags.has(FrontendFlags::OWN_ADDRESS) {
                self.endpoint_bits.set_socket(frontend.at);
            }
        }
        port.frontends = frontends;
    }

    /// Lets these use the filtered frontends of a service port, if it has any.
    pub(super) fn set_sources(&mut self, number: u32, wanted: &Wanted, notices: &mut Vec<Notice>) {
        let Some(port) = self.by_number.get(&number) else {
            return;
        };
        let mut frontends = port.frontends.iter();
        let is_filtered = frontends.any(|own| own.flags.has(FrontendFlags::FILTERED));
        let ranges = if is_filtered { &*wanted.sources } else { &[] };
        let missing = self.sources.of_mut(port.key.family).set(number, ranges);
        if missing > 0 {
            notices.push(Notice::SourcesFull {
                port: port.key.name.to_string(),
                proto: port.key.proto,
                family: port.key.family,
                missing,
                capacity: self.limits.sources,
            });
        }
    }

    /// Says what the frontends of a service port lead to.
    pub(super) fn publish(&mut self, number: u32) {
        let Some(port) = self.by_number.get(&number) else {
            return;
        };
        for frontend in &port.frontends {
            // Without room for the sets, frontends of a former run lead on to where they led.
            if port.strays.is_empty() || self.frontends.value(frontend.at).is_none() {
                self.frontends
                    .set(frontend.at, port.value(number, frontend));
            }
        }
    }

    /// Ends a service port; its number is never used again.
    pub(super) fn end(&mut self, name: &ObjectName, key: &PortKey) {
        let own = self.by_service.get_mut(name);
        let Some(number) = own.and_then(|own| own.remove(key)) else {
            return;
        };
        if self.by_service.get(name).is_some_and(HashMap::is_empty) {
            self.by_service.remove(name);
        }
        self.end_number(number);
    }

    /// Ends the service port of this number.
    pub(super) fn end_number(&mut self, number: u32) {
        self.release_frontends(number, &HashSet::new());
        let Some(port) = self.by_number.remove(&number) else {
            return;
        };
        self.give_up(&port.endpoints, &port);
        let sets: Vec<_> = port.windows.regions().collect();
        self.leave(number, &sets, true);
        for stray in port.strays {
            self.regions.give_up(stray);
        }
        self.sources.of_mut(port.key.family).set(number, &[]);
    }
}

impl Wanted {
    /// The sockets of its frontends.
    pub(super) fn sockets(&self) -> HashSet<Socket> {
        self.frontends.iter().map(|frontend| frontend.at).collect()
    }
}
