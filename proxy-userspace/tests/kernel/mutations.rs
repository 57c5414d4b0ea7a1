//! Packets of every rare kind, changed at random: kernel and host must say the same of each, and no
//! checksum may be further off afterwards than it was before, however broken the packet is.
//!
//! The first would not show what is wrong in the code that both share. The second does: it follows
//! from what a rewrite is, and is computed from the bytes alone.

mod kinds;
mod residue;

use std::net::IpAddr;

use proxy_common::datapath::memory::MemoryTables;
use proxy_common::datapath::memory::world::{client_addr, endpoint_addr, vip};
use proxy_common::lottery::{Random as _, XorShift, below};

use super::agreement::{Place, assert_same_tables, mixed_world, on_host};
use super::object::{Object, Run};
use super::{is_emulated, is_long, is_root};
use kinds::{Kind, Shot, opening};

/// What changes a packet.
struct Mutator(XorShift);

/// Bytes that mean something: limits, protocols and extension headers, types and flags.
const TELLING: [u8; 24] = [
    0, 1, 2, 3, 4, 6, 8, 11, 12, 0x11, 0x14, 0x20, 0x2b, 0x2c, 0x33, 0x3a, 0x3b, 0x3c, 0x45, 0x4f,
    0x7f, 0x80, 0x84, 0xff,
];

impl Mutator {
    fn below(&mut self, n: usize) -> usize {
        below(&mut self.0, n as u32) as usize
    }

    /// A position, mostly among the headers.
    fn position(&mut self, len: usize) -> usize {
        let end = if self.below(4) == 0 { len } else { len.min(90) };
        12 + self.below(end.saturating_sub(12).max(1))
    }

    /// An address that some packet has.
    fn addr(&mut self, is_v6: bool) -> IpAddr {
        match self.below(4) {
            0 => client_addr(is_v6, 1 + self.below(3) as u32),
            1 => endpoint_addr(is_v6, 1 + self.below(3) as u32),
            _ => vip(is_v6, 1 + self.below(7) as u32),
        }
    }

    /// Puts another packet's address where one may stand, in the header or in what it quotes.
    fn readdress(&mut self, bytes: &mut [u8]) {
        let is_v6 = bytes.get(12) == Some(&0x86);
        let places = if is_v6 {
            [22, 38, 70, 86]
        } else {
            [26, 30, 54, 58]
        };
        let at = places[self.below(places.len())];
        let octets = match self.addr(is_v6) {
            IpAddr::V4(addr) => addr.octets().to_vec(),
            IpAddr::V6(addr) => addr.octets().to_vec(),
        };
        if let Some(target) = bytes.get_mut(at..at + octets.len()) {
            target.copy_from_slice(&octets);
        }
    }

    /// Changes a packet in one way.
    fn change(&mut self, bytes: &mut Vec<u8>) {
        let at = self.position(bytes.len());
        match self.below(16) {
            0..4 => {
                let bit = self.below(8);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
            4..8 => {
                let value = TELLING[self.below(TELLING.len())];
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            8 => bytes.truncate(at),
            // As a device does with a frame that is too short.
            9 | 10 => {
                let (len, value) = (bytes.len() + 1 + self.below(60), self.0.draw() as u8);
                bytes.resize(len, value);
            }
            11 | 12 => self.readdress(bytes),
            13 => {
                let field = if bytes.get(12) == Some(&0x86) { 18 } else { 16 };
                let len = (self.below(bytes.len() + 8) as u16).to_be_bytes();
                if let Some(target) = bytes.get_mut(field..field + 2) {
                    target.copy_from_slice(&len);
                }
            }
            14 => {
                let from = self.position(bytes.len()) & !1;
                let at = at & !1;
                if from + 2 <= bytes.len() && at + 2 <= bytes.len() {
                    bytes.copy_within(from..from + 2, at);
                }
            }
            _ => {
                let (at, len) = (at.min(bytes.len()), 4 * (1 + self.below(3)));
                if self.below(2) == 0 {
                    let end = (at + len).min(bytes.len());
                    bytes.drain(at..end);
                } else {
                    bytes.splice(at..at, vec![0; len]);
                }
            }
        }
    }

    /// One of these, or one to three changes away from it.
    fn shot(&mut self, golden: &[Shot]) -> Shot {
        let mut shot = golden[self.below(golden.len())].clone();
        // What others have changed is put right by those that are as they should be.
        let changes = [0, 1, 1, 1, 2, 2, 3][self.below(7)];
        for _ in 0..changes {
            self.change(&mut shot.bytes);
        }
        if self.below(16) == 0 {
            shot.program = ["tc_in", "tc_eg"][self.below(2)];
        }
        shot
    }
}

/// Both places that a packet is sent through.
struct Both {
    object: Object,
    tables: MemoryTables,
}

impl Both {
    fn new() -> Self {
        let tables = mixed_world(16).tables;
        let mut object = Object::load(tables.settings);
        object.write(&tables);
        object.set_sources(tables.now, tables.random.0);
        Self { object, tables }
    }

    fn later(&mut self, seconds: u32) {
        self.tables.now += seconds;
        let random = self.tables.random.0;
        self.object.set_sources(self.tables.now, random);
    }

    /// What becomes of a packet, the same in both; none where the kernel's test run refuses it.
    fn run(&mut self, shot: &Shot) -> Option<Run> {
        let Shot { bytes, program } = shot;
        let kernel = self.object.run(program, bytes).ok()?;
        let host = on_host(&mut self.tables, program, bytes, &Place::default());
        assert_eq!(host, kernel, "at {program}: {bytes:02x?}");
        if kernel.action != 2 {
            residue::assert_unchanged(program, bytes, &kernel.bytes);
        }
        Some(kernel)
    }
}

/// Passed, rewritten and dropped.
fn mutate(both: &mut Both, kind: Kind, count: u32) -> [u32; 3] {
    let opening = opening();
    let golden = kind.golden();
    let mut mutator = Mutator(XorShift(0x5eed_0010 + kind as u64));
    let mut tally = [0; 3];
    for round in 0..count {
        // Flows end, and begin again.
        if round % 200 == 0 {
            both.later(2);
            for shot in &opening {
                both.run(shot).unwrap();
            }
        }
        if mutator.below(2_000) == 0 {
            both.later(130);
        }
        let shot = mutator.shot(&golden);
        let Some(run) = both.run(&shot) else {
            continue;
        };
        let index = match run.action {
            2 => 2,
            _ => usize::from(run.bytes != shot.bytes),
        };
        tally[index] += 1;
    }
    assert_same_tables(&mut both.object, &both.tables);
    tally
}

#[test]
fn changed_packets_of_every_kind_fare_alike_and_leave_no_sum_further_off() {
    if !is_root() {
        return;
    }
    let count = match (is_emulated(), is_long()) {
        (true, _) => 500,
        (false, false) => 10_000,
        (false, true) => 100_000,
    };
    let mut both = Both::new();
    for kind in Kind::ALL {
        let [passed, rewritten, dropped] = mutate(&mut both, kind, count);
        println!("{kind:?}: {passed} passed, {rewritten} rewritten, {dropped} dropped");
        // A comparison of packets that are all left alone would show nothing.
        assert!(rewritten > count / 10, "{kind:?}");
    }
}

/// Packets that nothing has changed are what the kinds stand for: each is translated, or left alone
/// or dropped for what it is.
#[test]
fn a_golden_packet_of_each_kind_is_translated() {
    if !is_root() {
        return;
    }
    let mut both = Both::new();
    for kind in Kind::ALL {
        for shot in opening() {
            assert_ne!(shot.bytes, both.run(&shot).unwrap().bytes, "{shot:02x?}");
        }
        let mut changed = 0;
        for shot in kind.golden() {
            changed += u32::from(both.run(&shot).unwrap().bytes != shot.bytes);
        }
        println!("{kind:?}: {changed} of {}", kind.golden().len());
        assert!(changed >= 8, "{kind:?}: {changed}");
    }
}
