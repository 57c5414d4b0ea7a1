//! The lottery as the kernel draws it, from its own generator.

use std::net::IpAddr;

use etherparse::PacketBuilder;
use proxy_common::abi::Settings;
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
    let IpAddr::V4(vip) = vip(false, 1) else {
        unreachable!("asked for IPv4")
    };
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], [0; 6])
        .ipv4([10, 0, 0, 0], vip.octets(), 64)
        .udp(0, 53)
        .write(&mut frame, &[0; 8])
        .unwrap();
    let before = object.picks(false, n + 1);
    let program = object.program("tc_in");
    for draw in 0..draws {
        // 10.(draw / 2^16).x.x and a fixed port: every packet is the first of a flow. Checksums
        // need not be right for that.
        frame[27..30].copy_from_slice(&draw.to_be_bytes()[1..]);
        frame[26] = 10 + (draw >> 24) as u8;
        frame[34..36].copy_from_slice(&40_000u16.to_be_bytes());
        assert_eq!(-1, Object::poke(program, &frame));
    }
    let after = object.picks(false, n + 1);
    // Element 0 of the endpoint array is not used.
    after[1..]
        .iter()
        .zip(&before[1..])
        .map(|(a, b)| a - b)
        .collect()
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
