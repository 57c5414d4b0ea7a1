//! Services that lead to one another in a circle.
//!
//! A run that is repeated hands each packet, as the last one left it, to the next. Where every
//! Service's endpoints are the next Service, that is a packet of another flow: repeated as often
//! as there are Services, an opening packet opens as many new flows, and none is measured twice.
//! Answers run the circle backwards.

use std::net::IpAddr;

use proxy_common::abi::Frontend;
use proxy_common::datapath::memory::world::{World, vip};
use proxy_common::net::Proto;

use super::frame::Peer;

/// Services in a circle.
pub(crate) const LEN: u32 = 8;

/// A circle of Services.
pub(crate) struct Cycle {
    pub(crate) proto: Proto,
    is_v6: bool,
    number: u32,
}

impl Cycle {
    /// The `number`th circle, with `n` endpoints for each Service, which are all the same one: many
    /// large Services at once would measure the caches.
    pub(crate) fn declare(
        world: &mut World,
        is_v6: bool,
        proto: Proto,
        number: u32,
        n: usize,
    ) -> Self {
        let cycle = Self {
            proto,
            is_v6,
            number,
        };
        for at in 0..LEN {
            world.service(cycle.at(at), proto, &vec![cycle.at(at + 1); n]);
        }
        cycle
    }

    /// Changes the frontends of all its Services.
    pub(crate) fn change(&self, world: &mut World, mut change: impl FnMut(&mut Frontend)) {
        for place in self.places() {
            world.change(place, self.proto, &mut change);
        }
    }

    /// Where a packet enters the circle, and leaves it.
    pub(crate) fn door(&self) -> Peer {
        self.at(0)
    }

    /// All places of the circle.
    pub(crate) fn places(&self) -> impl Iterator<Item = Peer> {
        (0..LEN).map(|at| self.at(at))
    }

    /// Address and port change from one to the next.
    fn at(&self, at: u32) -> Peer {
        let at = at % LEN;
        let addr: IpAddr = vip(self.is_v6, 1 + self.number * LEN + at);
        (addr, 8000 + at as u16)
    }
}
