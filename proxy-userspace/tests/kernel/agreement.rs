//! Kernel and host say the same of every packet, and leave the same tables behind.

use std::net::Ipv4Addr;

use proxy_common::abi::{
    Counter, Empty, EndpointFlags, EndpointSet, Frontend, FrontendFlags, Origin, Settings, Tier,
    V4, V6,
};
use proxy_common::datapath::memory::{
    FamilyMaps, Fib, MemoryPacket, MemoryRoom, MemoryTables, Stored,
};
use proxy_common::datapath::{Seat, Verdict, egress, ingress, port_ingress};
use proxy_common::net::{Proto, eth};

use super::events;
use super::generate::Packets;
use super::object::{MARKED, Object, Run};
use super::ports::{self, PORT, PORT_MAC};
use super::{is_emulated, is_long, is_root};
use proxy_common::datapath::memory::world::{World, client_addr, endpoint_addr, vip};

/// Two families, all protocols, sets of 0, 1, 2, 3, 10, 14 endpoints, endpoints shared by
/// Services; every property that a frontend may have; time and draws as the test sets them.
pub(super) fn mixed_world(cascade_limit: u32) -> World {
    let mut settings = Settings::with_hz(250);
    settings.test_sources = 1;
    settings.cascade_limit = cascade_limit;
    let mut world = World::new(settings);
    for is_v6 in [false, true] {
        for (n, count) in [(1, 1), (2, 2), (3, 3), (4, 10), (5, 14), (6, 0)] {
            let endpoints = |port| {
                (1..=count)
                    .map(|id| (endpoint_addr(is_v6, id), port))
                    .collect::<Vec<_>>()
            };
            world.service((vip(is_v6, n), 80), Proto::TCP, &endpoints(8080));
            world.service((vip(is_v6, n), 53), Proto::UDP, &endpoints(5353));
            world.service((vip(is_v6, n), 53), Proto::TCP, &endpoints(5353));
            world.service((vip(is_v6, n), 80), Proto::SCTP, &endpoints(8080));
            world.service((vip(is_v6, n), 53), Proto::SCTP, &endpoints(5354));
        }
        diversify(&mut world, is_v6);
    }
    // The second and third client; endpoints are elsewhere.
    world.detect(
        (Ipv4Addr::new(10, 244, 1, 2), 31),
        ("fd00:10:244:1::2".parse().unwrap(), 127),
    );
    world
}

/// Gives the frontends properties of their own, and endpoints places.
fn diversify(world: &mut World, is_v6: bool) {
    for id in (1..=14).filter(|id| id % 3 == 0) {
        world.flag(endpoint_addr(is_v6, id), |flags| {
            *flags = flags
                .with(EndpointFlags::LOCAL)
                .with(EndpointFlags::IN_LOCAL_SET);
        });
    }
    let [inside, outside] = [Origin::Inside, Origin::Outside];
    for (port, proto) in [
        (80, Proto::TCP),
        (53, Proto::UDP),
        (53, Proto::TCP),
        (53, Proto::SCTP),
    ] {
        let mut change = |n, change: &dyn Fn(&mut Frontend)| {
            world.change((vip(is_v6, n), port), proto, change);
        };
        change(2, &|frontend| {
            frontend.flags = FrontendFlags::masquerade(outside);
            frontend.affinity_timeout = 2;
        });
        change(3, &|frontend| {
            frontend.flags = FrontendFlags::masquerade(inside).with(FrontendFlags::FILTERED);
        });
        change(4, &|frontend| frontend.affinity_timeout = 60);
        // Outside, only the third endpoint is near.
        change(5, &|frontend| {
            frontend.outside = EndpointSet::new(frontend.inside.base() + 2, 1);
            frontend.flags = FrontendFlags::local(outside).with(FrontendFlags::masquerade(inside));
            frontend.affinity_timeout = 10_800;
        });
        let elsewhere = if proto == Proto::UDP {
            Empty::Pass
        } else {
            Empty::Drop
        };
        change(6, &|frontend| {
            frontend.flags = FrontendFlags::if_empty(outside, Empty::Reject)
                .with(FrontendFlags::if_empty(inside, elsewhere));
        });
    }
    // One address is the node's own.
    for (port, proto) in [
        (80, Proto::TCP),
        (53, Proto::UDP),
        (53, Proto::TCP),
        (80, Proto::SCTP),
    ] {
        world.own((vip(is_v6, 4), port), proto);
    }
    let (first, second) = (client_addr(is_v6, 1), client_addr(is_v6, 2));
    let mut third = 0;
    world.change((vip(is_v6, 3), 53), Proto::UDP, |frontend| {
        third = frontend.service;
    });
    let bits = if is_v6 { 128 } else { 32 };
    world.source(third, first, bits);
    world.source(third, second, bits - 1);
    // The next service port, the same over TCP.
    world.source(third + 1, first, bits - 8);
    world.whole(
        vip(is_v6, 1),
        FrontendFlags::if_empty(outside, Empty::Reject),
    );
    world.whole(
        vip(is_v6, 7),
        FrontendFlags::if_empty(inside, Empty::Reject)
            .with(FrontendFlags::if_empty(outside, Empty::Pass)),
    );
}

/// Where packets come in: the loopback device of the test run, or a port of a bridge.
#[derive(Clone, Default)]
pub(super) struct Place {
    device: u32,
    mac: [u8; 6],
    fib: Fib,
}

/// What the host makes of a packet.
pub(super) fn on_host(tables: &mut MemoryTables, name: &str, bytes: &[u8], place: &Place) -> Run {
    let mut packet = if name.ends_with("_l3") {
        MemoryPacket::bare(bytes)
    } else {
        MemoryPacket::frame(bytes)
            .seen_by(place.mac)
            .at(place.device, &place.fib)
    };
    packet = packet.marked(MARKED);
    let room = &mut MemoryRoom::default();
    let verdict = match name {
        "tc_in" => ingress(&mut packet, tables, room, eth::LEN),
        "tc_in_port" => port_ingress(&mut packet, tables, room, Seat::PodPort),
        "tc_in_uplink_port" => port_ingress(&mut packet, tables, room, Seat::UplinkPort),
        "tc_eg" => egress(&mut packet, tables, room, eth::LEN),
        "tc_in_l3" => ingress(&mut packet, tables, room, 0),
        _ => egress(&mut packet, tables, room, 0),
    };
    Run {
        action: if matches!(verdict, Verdict::Drop(_)) {
            2
        } else {
            -1
        },
        bytes: packet.bytes().to_vec(),
        mark: packet.mark_of(),
    }
}

pub(super) fn assert_same_tables(object: &mut Object, tables: &MemoryTables) {
    assert_eq!(tables.counters, object.counters());
    assert_eq!(tables.draws, object.draws());
    assert!(tables.traces == object.traces(), "the traces differ");
    assert_eq!(tables.v4.affinity, object.affinity::<V4>());
    assert_eq!(tables.v6.affinity, object.affinity::<V6>());
    assert_eq!(tables.v4.fragments, object.fragments::<V4>());
    assert_eq!(tables.v6.fragments, object.fragments::<V6>());
    for tier in [Tier::Established, Tier::HalfOpen] {
        assert_eq!(*tables.v4.tier(tier), object.flows::<V4>(tier), "{tier:?}");
        assert_eq!(*tables.v6.tier(tier), object.flows::<V6>(tier), "{tier:?}");
    }
}

/// Returns how many packets were refused by the kernel's test run, passed, rewritten and dropped,
/// and how many of the rewritten were ICMP errors.
fn compare(seed: u64, count: u32, cascade_limit: u32) -> ([u32; 4], u64) {
    let mut world = mixed_world(cascade_limit);
    world.tables.settings.hairpin_anywhere = u32::from(cascade_limit > 2);
    let tables = &mut world.tables;
    let mut object = Object::load(tables.settings);
    object.write(tables);
    object.set_sources(tables.now, tables.random.0);
    events::listen(&mut object, tables);
    // The device of a test run that is told no other.
    let place = Place {
        device: 1,
        ..Place::default()
    };
    let mut packets = Packets::new(seed);
    let mut tally = [0; 4];
    for round in 0..count {
        let (bytes, name) = packets.frame();
        if packets.below(100) == 0 {
            // Time passes: seconds mostly, now and then beyond every timeout.
            tables.now += if packets.below(20) == 0 {
                130
            } else {
                packets.below(5)
            };
            object.set_sources(tables.now, tables.random.0);
        }
        if packets.below(500) == 0 {
            move_an_endpoint(&mut packets, &mut object, tables);
        }
        if packets.below(100) == 0 {
            for tier in [Tier::Established, Tier::HalfOpen] {
                lose_a_half::<V4>(&mut packets, &mut object, &mut tables.v4, tier);
                lose_a_half::<V6>(&mut packets, &mut object, &mut tables.v6, tier);
            }
        }
        let Ok(kernel) = object.run(name, &bytes) else {
            tally[0] += 1;
            continue;
        };
        let host = on_host(tables, name, &bytes, &place);
        assert_eq!(
            host, kernel,
            "packet {round} of seed {seed:#x} at {name}: {bytes:02x?}"
        );
        assert_eq!(
            std::mem::take(&mut tables.events),
            object.events(),
            "events of packet {round} of seed {seed:#x} at {name}: {bytes:02x?}"
        );
        match (kernel.action, kernel.bytes == bytes) {
            (2, _) => tally[3] += 1,
            (_, true) => tally[1] += 1,
            (_, false) => {
                tally[2] += 1;
                packets.rewritten(name, &bytes, &kernel.bytes);
            }
        }
        if round % 10_000 == 0 {
            assert_same_tables(&mut object, tables);
        }
    }
    assert_eq!(tables.random.0, object.random());
    assert_same_tables(&mut object, tables);
    (tally, tables.counted(Counter::IcmpError))
}

/// Takes one half away, as a full table does.
fn lose_a_half<F: Stored>(
    packets: &mut Packets,
    object: &mut Object,
    maps: &mut FamilyMaps<F>,
    tier: Tier,
) {
    let map = match tier {
        Tier::Established => &mut maps.flows,
        Tier::HalfOpen | Tier::Renewal => &mut maps.half_open,
    };
    if map.is_empty() {
        return;
    }
    // The order of a hash map is another one in every run.
    let mut keys: Vec<_> = map.keys().copied().collect();
    keys.sort_unstable_by(|a, b| bytemuck::bytes_of(a).cmp(bytemuck::bytes_of(b)));
    let key = keys[packets.below(keys.len() as u32) as usize];
    map.remove(&key);
    object.lose::<F>(tier, &key);
}

/// Raises the generation of one endpoint, as when its slot changes hands.
fn move_an_endpoint(packets: &mut Packets, object: &mut Object, tables: &mut MemoryTables) {
    let id = 1 + packets.below(40);
    if let Some(endpoint) = tables.v4.endpoints.get_mut(&id) {
        endpoint.generation += 1;
    }
    if let Some(endpoint) = tables.v6.endpoints.get_mut(&id) {
        endpoint.generation += 1;
    }
    object.write(tables);
}

#[test]
fn random_packets_fare_alike_on_host_and_kernel() {
    if !is_root() {
        return;
    }
    let count = match (is_emulated(), is_long()) {
        (true, false) => 5_000,
        (true, true) => 20_000,
        (false, false) => 100_000,
        (false, true) => 1_000_000,
    };
    // The two limits send every set through the single draw and through the cascade.
    for (seed, limit) in [(0x5eed_0001, 16), (0x5eed_0002, 2)] {
        let ([refused, passed, rewritten, dropped], translated) = compare(seed, count / 2, limit);
        println!(
            "limit {limit}: {refused} refused by the test run, {passed} passed, {rewritten} rewritten, {translated} of them errors, {dropped} dropped"
        );
        // A comparison of packets that are all left alone would show nothing.
        assert!(translated > u64::from(count) / 200, "{translated}");
        // The share grows with the flows that are known: emulated runs are short.
        assert!(rewritten > count / 25, "{rewritten}");
        assert!(dropped > count / 400, "{dropped}");
    }
}

#[test]
fn packets_without_a_mac_header_fare_as_those_with_one() {
    if !is_root() {
        return;
    }
    // The kernel's test run knows Ethernet frames only, so the host stands in for the device: the
    // programs with and without MAC header are one function, called with another offset.
    let mut world = mixed_world(16);
    let mut bare = world.tables.clone();
    let mut packets = Packets::new(0x5eed_0003);
    let place = Place::default();
    let mut rewritten = 0;
    for _ in 0..20_000 {
        let (mut frame, name) = packets.frame();
        if frame.len() < 15 || frame[..6] != [0; 6] {
            continue;
        }
        // A bare packet's protocol is in its first nibble; frames that lie about it are left out.
        let protocol = [frame[12], frame[13]];
        if !matches!((protocol, frame[14] >> 4), ([8, 0], 4) | ([0x86, 0xdd], 6)) {
            continue;
        }
        let with = on_host(&mut world.tables, name, &frame, &place);
        let payload = frame.split_off(14);
        let without = on_host(&mut bare, &format!("{name}_l3"), &payload, &place);
        assert_eq!(with.action, without.action);
        assert_eq!(with.bytes[14..], without.bytes);
        rewritten += u32::from(without.bytes != payload);
    }
    assert!(rewritten > 2_000, "{rewritten}");
}

/// Returns how many packets were sent across the bridge, rewritten but left to the stack, and left
/// alone, of those that came in.
fn compare_at_port(program: &'static str, seed: u64, count: u32) -> [u32; 3] {
    let mut world = mixed_world(16);
    let tables = &mut world.tables;
    let networks = [("10.244.0.0", 16), ("fd00:10:244::", 48)];
    let networks = networks.map(|(addr, len)| (addr.parse().unwrap(), len));
    // The generator's frames are for it, now and then for somebody else.
    let mut device = ports::device(networks, [0; 6]);
    // At one of the two ports, what comes in is from pods.
    device.inside = u16::from(program == "tc_in_port");
    tables.detector.by_device = 1;
    tables.devices.insert(PORT, device);
    let mut object = Object::load_all(tables.settings);
    object.device = Some(PORT);
    object.write(tables);
    object.set_sources(tables.now, tables.random.0);
    let mut place = Place {
        device: PORT,
        mac: PORT_MAC,
        fib: ports::bridge(["10.244.0.1/16", "fd00:10:244::1/48"]),
    };
    events::listen(&mut object, tables);
    let mut packets = Packets::new(seed);
    let mut tally = [0; 3];
    for round in 0..count {
        let (bytes, name) = packets.frame();
        let name = if name == "tc_in" { program } else { name };
        if packets.below(100) == 0 {
            tables.now += packets.below(5);
            object.set_sources(tables.now, tables.random.0);
        }
        // Endpoints move, or are forgotten.
        if packets.below(400) == 0 {
            let (n, to) = (11 + packets.below(4), 1 + packets.below(3));
            ports::move_to(&mut place.fib, n, to);
            if packets.below(2) == 0 {
                ports::forget(&mut place.fib, n);
            }
        }
        let Ok(kernel) = object.run(name, &bytes) else {
            continue;
        };
        let host = on_host(tables, name, &bytes, &place);
        assert_eq!(
            host, kernel,
            "packet {round} of seed {seed:#x} at {name}: {bytes:02x?}"
        );
        assert_eq!(
            std::mem::take(&mut tables.events),
            object.events(),
            "events of packet {round} of seed {seed:#x} at {name}: {bytes:02x?}"
        );
        if name == program {
            let crosses = kernel.bytes[..6] != bytes[..6];
            let changes = kernel.bytes != bytes;
            if changes {
                packets.rewritten(name, &bytes, &kernel.bytes);
            }
            tally[if crosses { 0 } else { 2 - usize::from(changes) }] += 1;
        }
    }
    assert_same_tables(&mut object, tables);
    tally
}

#[test]
fn packets_at_the_ports_of_a_bridge_fare_alike_on_host_and_kernel() {
    if !is_root() {
        return;
    }
    let count = if is_long() { 200_000 } else { 20_000 };
    for (program, seed) in [
        ("tc_in_port", 0x5eed_0004),
        ("tc_in_uplink_port", 0x5eed_0005),
    ] {
        let tally = ports::alone(|| compare_at_port(program, seed, count));
        let [crossed, by_stack, alone] = tally;
        println!(
            "{program}: {crossed} sent across the bridge, {by_stack} by the stack, {alone} left alone"
        );
        for kind in tally {
            assert!(kind > count / 50, "{tally:?}");
        }
    }
}
