//! The loaded programs, run with frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use aya::programs::{TestRun as _, TestRunOptions};
use kube_lottery::dataplane::Plain;
use proxy_common::abi::flow::FlowKey as _;
use proxy_common::abi::{Counter, FlowKey4, FlowKey6, Hook, Tier, V4, V6};
use proxy_common::datapath::memory::Stored;
use proxy_common::datapath::memory::world::client_addr;
use proxy_common::net::{Port, Proto};

use super::cycle::{self, Cycle};
use super::frame::Peer;
use super::samples::{Harness, Samples, Subject, Way};
use crate::object::Object;

/// The programs that always do the same.
pub(crate) const NOOP: Subject = Subject::Fixed("noop");
pub(crate) const REFERENCE_KNOWN: Subject = Subject::Fixed("reference_known");
pub(crate) const REFERENCE_NEW: Subject = Subject::Fixed("reference_new");

/// The port of every client.
const PORT: u16 = 40_000;
/// Runs over the same packet where nothing changes.
const STEADY: u32 = 1000;

/// The loaded programs, and what was measured.
pub(crate) struct Runner {
    pub(crate) object: Object,
    pub(crate) samples: Samples,
    clients: u32,
    halves: u32,
    room: u32,
    opened: u64,
}

impl Runner {
    /// `room` flow halves fit each map; what is measured goes to that of former loads.
    pub(crate) const fn new(object: Object, room: u32, samples: Samples) -> Self {
        Self {
            object,
            samples,
            clients: 0,
            halves: 0,
            room,
            opened: 0,
        }
    }

    /// Runs a program and notes what it took.
    pub(crate) fn measure(&mut self, subject: Subject, harness: Harness, frame: &[u8]) {
        let repeat = match harness {
            Harness::Once => 1,
            Harness::Circle => cycle::LEN,
            Harness::Steady => STEADY,
        };
        let mean = self.run(subject.program(), frame, repeat);
        self.samples.add(subject, harness, mean);
    }

    /// Runs a program over each frame once, and notes the median: the first find nothing in the
    /// caches, and a few by luck all they need.
    pub(crate) fn measure_each(&mut self, subject: Subject, frames: &[Vec<u8>]) {
        let mut taken: Vec<_> = frames
            .iter()
            .map(|frame| self.run(subject.program(), frame, 1))
            .collect();
        taken.sort_unstable();
        let median = taken[taken.len() / 2];
        self.samples.add(subject, Harness::Once, median);
    }

    /// Takes a packet once around a circle of Services.
    pub(crate) fn walk(&self, way: Way, frame: &[u8]) {
        self.run(way.program(), frame, cycle::LEN);
    }

    /// Runs a program so many times, each over what the one before has left of the packet. Returns
    /// the mean in nanoseconds, which the kernel tells.
    pub(crate) fn run(&self, program: &str, frame: &[u8], repeat: u32) -> u32 {
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.repeat = repeat;
        let context = self.object.context();
        if program == Way::Port.program() {
            options.ctx_in = Some(&context);
        }
        let result = self.object.program(program).test_run(options).unwrap();
        result.duration.as_nanos() as u32
    }

    /// A client whose flows stay known.
    pub(crate) fn steady_client(is_v6: bool) -> Peer {
        (client_addr(is_v6, 1), PORT)
    }

    /// Another one, outside of the bridge's network.
    pub(crate) fn outside_client(is_v6: bool) -> Peer {
        let addr = if is_v6 { "2001:db8::1" } else { "192.0.2.1" };
        (addr.parse().unwrap(), PORT)
    }

    /// A client that is not known any more, and is about to open `flows`.
    pub(crate) fn fresh_client(&mut self, is_v6: bool, flows: u32) -> Peer {
        self.halves += 2 * flows.max(1);
        self.opened += u64::from(flows);
        self.clients += 1;
        let addr: IpAddr = if is_v6 {
            Ipv6Addr::from(0xfd00_0010_0128_u128 << 80 | u128::from(self.clients)).into()
        } else {
            Ipv4Addr::from(0x0a80_0000 + self.clients).into()
        };
        (addr, PORT)
    }

    /// Opens flows around a circle and forgets them, so that the caches hold what their second
    /// opening touches: how far other processes have emptied them is not to be measured.
    pub(crate) fn warm_up(&mut self, way: Way, cycle: &Cycle, client: Peer, frame: &[u8]) {
        self.walk(way, frame);
        self.opened += u64::from(cycle::LEN);
        for place in cycle.places() {
            self.lose(Tier::HalfOpen, cycle.proto, (client, place), Hook::INGRESS);
            self.lose(Tier::HalfOpen, cycle.proto, (place, client), Hook::EGRESS);
        }
    }

    /// Removes one half of a flow: that of packets between these peers, source first.
    pub(crate) fn lose(&mut self, tier: Tier, proto: Proto, (src, dst): (Peer, Peer), hook: Hook) {
        let ports = (Port::new(src.1), Port::new(dst.1));
        match (src.0, dst.0) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let key = FlowKey4::new(src.into(), dst.into(), ports.0, ports.1, proto, hook);
                self.object.flow_map::<V4>(tier).remove(&Plain(key))
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let key = FlowKey6::new(src.into(), dst.into(), ports.0, ports.1, proto, hook);
                self.object.flow_map::<V6>(tier).remove(&Plain(key))
            }
            _ => unreachable!("both addresses are of one family"),
        }
        .unwrap();
    }

    /// Clears away the flows of clients that are not seen again, before the maps fill.
    pub(crate) fn clear(&mut self) {
        if self.halves < self.room / 2 {
            return;
        }
        self.halves = 0;
        // The next ones have the same addresses: what is kept by address, not by flow, fills no
        // further.
        self.clients = 0;
        for tier in [Tier::Established, Tier::HalfOpen] {
            self.clear_family::<V4>(tier);
            self.clear_family::<V6>(tier);
        }
    }

    fn clear_family<F: Stored>(&mut self, tier: Tier)
    where
        F::Addr: Into<IpAddr>,
    {
        let steady = [Self::steady_client, Self::outside_client].map(|client| client(F::IS_V6).0);
        let mut map = self.object.flow_map::<F>(tier);
        let keys: Vec<_> = map.keys().map(Result::unwrap).collect();
        let is_fresh = |key: &F::FlowKey| {
            !steady.contains(&key.src().into()) && !steady.contains(&key.dst().into())
        };
        for key in keys.iter().filter(|key| is_fresh(&key.0)) {
            map.remove(key).unwrap();
        }
    }

    /// Makes sure that what was to open flows did, and only that.
    pub(crate) fn check(&self, known: u64) {
        let counters = self.object.counters();
        assert_eq!(
            self.opened + known,
            counters[Counter::NewFlow as usize],
            "every opening packet opened a flow"
        );
    }
}
