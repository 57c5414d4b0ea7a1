//! The lottery as the kernel draws it, from its own generator.

use std::net::IpAddr;

use etherparse::PacketBuilder;
use proxy_common::abi::{EndpointSet, Settings};
use proxy_common::net::Proto;
use xtask::stats::evenness;

use super::object::Object;
use super::{is_emulated, is_root};
use proxy_common::datapath::memory::world::{World, endpoint_addr, vip};

/// How many draws stand for `usual` ones on this machine.
fn draws(usual: u32) -> u32 {
    if is_emulated() { usual / 10 } else { usual }
}

/// Opens `draws` UDP flows from as many client ports and addresses, and returns where they went.
fn draw(object: &mut Object, n: u32, draws: u32) -> Vec<u64> {
    let before = object.picks(false, n + 1);
    open(object, 0, draws);
    let after = object.picks(false, n + 1);
    // Element 0 of the endpoint array is not used.
    after[1..]
        .iter()
        .zip(&before[1..])
        .map(|(a, b)| a - b)
        .collect()
}

fn open(object: &mut Object, first: u32, draws: u32) {
    open_from(object, first, draws, 40_000);
}

/// Opens UDP flows from so many client addresses, beginning with the `first`, and one port.
fn open_from(object: &mut Object, first: u32, count: u32, port: u16) {
    let IpAddr::V4(vip) = vip(false, 1) else {
        unreachable!("asked for IPv4")
    };
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], [0; 6])
        .ipv4([10, 0, 0, 0], vip.octets(), 64)
        .udp(0, 53)
        .write(&mut frame, &[0; 8])
        .unwrap();
    let program = object.program("tc_in");
    for draw in first..first + count {
        // 10.(draw / 2^16).x.x and a fixed port: every packet is the first of a flow. Checksums
        // need not be right for that.
        frame[27..30].copy_from_slice(&draw.to_be_bytes()[1..]);
        frame[26] = 10 + (draw >> 24) as u8;
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        assert_eq!(-1, Object::poke(program, &frame));
    }
}

#[test]
fn a_million_kernel_draws_are_spread_evenly_for_every_size_of_set() {
    if !is_root() {
        return;
    }
    let draws = draws(1_000_000);
    for n in [2u32, 3, 10, 16, 17, 100, 1000] {
        let mut world = World::new(Settings::with_hz(250));
        let endpoints: Vec<_> = (1..=n).map(|id| (endpoint_addr(false, id), 5353)).collect();
        world.service((vip(false, 1), 53), Proto::UDP, &endpoints);
        let mut object = Object::load(world.tables.settings);
        object.write(&world.tables);
        let counts = draw(&mut object, n, draws);
        assert_eq!(
            u64::from(draws),
            counts.iter().sum::<u64>(),
            "every flow was drawn once"
        );
        let p = evenness(&counts).unwrap();
        println!("n {n}: p {p:.4}");
        // Seven tests a run: a fair lottery fails once in some 140,000 runs.
        assert!(p > 1e-6, "n {n}: p {p}, {counts:?}");
    }
}

#[test]
fn the_literal_cascade_is_as_even_at_its_highest_limit() {
    if !is_root() {
        return;
    }
    let n = 1000;
    let mut settings = Settings::with_hz(250);
    settings.cascade_limit = Settings::MAX_CASCADE_LIMIT;
    let mut world = World::new(settings);
    let endpoints: Vec<_> = (1..=n).map(|id| (endpoint_addr(false, id), 5353)).collect();
    world.service((vip(false, 1), 53), Proto::UDP, &endpoints);
    let mut object = Object::load(world.tables.settings);
    object.write(&world.tables);
    let counts = draw(&mut object, n, draws(200_000));
    let p = evenness(&counts).unwrap();
    println!("n {n}, literal: p {p:.4}");
    assert!(p > 1e-6, "p {p}");
}

#[test]
fn the_largest_service_is_drawn_from_end_to_end() {
    if !is_root() {
        return;
    }
    let (n, draws) = (65_535, draws(300_000));
    let mut world = World::new(Settings::with_hz(250));
    let endpoints: Vec<_> = (1..=n).map(|id| (endpoint_addr(false, id), 5353)).collect();
    world.service((vip(false, 1), 53), Proto::UDP, &endpoints);
    let mut object = Object::load(world.tables.settings);
    object.write(&world.tables);
    let counts = draw(&mut object, n, draws);
    // Sixteen bins of neighbours: of single endpoints so few draws say little.
    let mut bins = vec![0; 16];
    for (index, count) in counts.iter().enumerate() {
        bins[index * 16 / counts.len()] += count;
    }
    let p = evenness(&bins).unwrap();
    println!("n {n}: p {p:.4}");
    assert_eq!(u64::from(draws), counts.iter().sum::<u64>());
    assert!(p > 1e-6, "p {p}: {bins:?}");
}

/// What the sets at `regions` counted since they were asked last, which `before` keeps.
fn drawn(object: &mut Object, before: &mut Vec<u64>, regions: &[(u32, u32)]) -> Vec<Vec<u64>> {
    let draws = object.draws();
    let now = |index: u32| draws.get(&index).copied().unwrap_or_default();
    let counts = regions.iter().map(|&(base, len)| {
        let own = (base..base + len).map(|index| now(index) - before[index as usize]);
        own.collect()
    });
    let counts = counts.collect();
    *before = (0..before.len() as u32).map(now).collect();
    counts
}

#[test]
fn draws_are_counted_by_set_and_clients_that_come_back_draw_nothing() {
    if !is_root() {
        return;
    }
    let count = draws(20_000);
    let mut world = World::new(Settings::with_hz(250));
    let endpoints =
        |n: u32| -> Vec<_> { (1..=n).map(|id| (endpoint_addr(false, id), 5353)).collect() };
    // Another service port stands before it, so that its set is not at the beginning.
    world.service((vip(false, 2), 53), Proto::UDP, &endpoints(3));
    world.service((vip(false, 1), 53), Proto::UDP, &endpoints(10));
    let mut object = Object::load(world.tables.settings);
    object.write(&world.tables);
    let mut before = vec![0; 13];
    // All but the first are in another set as well, as those of a node are in that of the cluster.
    for base in [3, 4] {
        world.change((vip(false, 1), 53), Proto::UDP, |frontend| {
            let set = EndpointSet::new(base, 13 - base);
            (frontend.inside, frontend.outside) = (set, set);
        });
        object.write(&world.tables);
        open(&mut object, base << 20, count);
        let [other, own]: [_; 2] = drawn(&mut object, &mut before, &[(0, base), (base, 13 - base)])
            .try_into()
            .unwrap();
        assert_eq!(vec![0; base as usize], other);
        assert_eq!(u64::from(count), own.iter().sum::<u64>());
        let p = evenness(&own).unwrap();
        assert!(p > 1e-6, "p {p}: {own:?}");
    }

    // The same clients again, from other ports: each draws once.
    world.change((vip(false, 1), 53), Proto::UDP, |frontend| {
        frontend.affinity_timeout = 10_800;
    });
    object.write(&world.tables);
    let clients = 2_000;
    for port in [41_000, 41_001, 41_002] {
        open_from(&mut object, 7 << 20, clients, port);
    }
    let own = drawn(&mut object, &mut before, &[(4, 9)]).remove(0);
    assert_eq!(u64::from(clients), own.iter().sum::<u64>(), "{own:?}");
    let p = evenness(&own).unwrap();
    assert!(p > 1e-6, "p {p}: {own:?}");
}
