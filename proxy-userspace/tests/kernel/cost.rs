//! What the programs cost: figures for people, not assertions, since a shared machine's clock
//! proves nothing.

use std::net::IpAddr;

use aya::util::KernelVersion;
use etherparse::{IpHeaders, PacketBuilder, PacketBuilderStep};
use proxy_common::abi::Settings;
use proxy_common::net::Proto;

use super::is_root;
use super::object::{Object, PROGRAMS};
use proxy_common::datapath::memory::world::{World, client_addr, endpoint_addr, vip};

#[test]
fn every_program_loads_and_its_size_is_printed() {
    if !is_root() {
        return;
    }
    let mut settings = Settings::with_hz(250);
    settings.cascade_limit = Settings::MAX_CASCADE_LIMIT;
    let object = Object::load_all(settings);
    for name in PROGRAMS {
        let info = object.program(name).info().unwrap();
        let verified = info.verified_instruction_count().unwrap_or_default();
        println!(
            "{name:8} {verified:7} instructions verified, {:6} bytes of bytecode, {:6} of machine code",
            info.size_translated().unwrap_or_default(),
            info.size_jitted(),
        );
        // Told since 5.16.
        let is_told = KernelVersion::current().unwrap() >= KernelVersion::new(5, 16, 0);
        // A third of the verifier's limit: room for what is to come.
        let sane = u32::from(is_told)..333_000;
        assert!(sane.contains(&verified), "{name}: {verified}");
    }
}

/// A TCP segment between two peers.
fn segment(src: (IpAddr, u16), dst: (IpAddr, u16), flags: &str, ack: u32) -> Vec<u8> {
    let mut tcp = frame(src, dst).tcp(src.1, dst.1, 1000, 64_000);
    if flags.contains('S') {
        tcp = tcp.syn();
    }
    if flags.contains('A') {
        tcp = tcp.ack(ack);
    }
    let mut bytes = Vec::new();
    tcp.write(&mut bytes, &[0; 32]).unwrap();
    bytes
}

/// A UDP datagram between two peers.
fn datagram(src: (IpAddr, u16), dst: (IpAddr, u16)) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame(src, dst)
        .udp(src.1, dst.1)
        .write(&mut bytes, &[0; 32])
        .unwrap();
    bytes
}

fn frame(src: (IpAddr, u16), dst: (IpAddr, u16)) -> PacketBuilderStep<IpHeaders> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], [0; 6]);
    match (src.0, dst.0) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => builder.ipv4(src.octets(), dst.octets(), 64),
        (IpAddr::V6(src), IpAddr::V6(dst)) => builder.ipv6(src.octets(), dst.octets(), 64),
        _ => unreachable!("both addresses are of one family"),
    }
}

/// The best of a few timings: whatever else the machine does only adds.
fn best(object: &Object, name: &str, packet: &[u8]) -> f64 {
    (0..7)
        .map(|_| object.time(name, packet, 300_000))
        .fold(f64::INFINITY, f64::min)
}

#[test]
fn the_cost_of_known_flows_and_of_packets_of_no_service_is_printed() {
    if !is_root() {
        return;
    }
    for is_v6 in [false, true] {
        // Two Services that lead to each other's port: the packet that a run leaves behind is the
        // next run's packet of the other flow, so that repeated runs measure known flows.
        let mut world = World::new(Settings::with_hz(250));
        let (client, addr) = ((client_addr(is_v6, 1), 40_000), vip(is_v6, 1));
        world.service((addr, 80), Proto::TCP, &[(addr, 8080)]);
        world.service((addr, 8080), Proto::TCP, &[(addr, 80)]);
        let mut object = Object::load(world.tables.settings);
        object.write(&world.tables);
        for (door, endpoint) in [(80, 8080), (8080, 80)] {
            for (program, packet) in [
                ("tc_in", segment(client, (addr, door), "S", 0)),
                ("tc_eg", segment((addr, endpoint), client, "SA", 1001)),
                ("tc_in", segment(client, (addr, door), "A", 1001)),
            ] {
                let run = object.run(program, &packet).unwrap();
                assert_ne!(packet, run.bytes, "{program} translates");
            }
        }
        let other = (vip(is_v6, 240), 80);
        let known_in = segment(client, (addr, 80), "A", 1001);
        let known_eg = segment((addr, 8080), client, "A", 1001);
        let foreign = segment(client, other, "A", 1);
        let empty = best(&object, "noop", &foreign);
        println!(
            "IPv{}: net of the empty program's {empty} ns: known flow {} ns in, {} ns out; no service {} ns in, {} ns out",
            if is_v6 { 6 } else { 4 },
            best(&object, "tc_in", &known_in) - empty,
            best(&object, "tc_eg", &known_eg) - empty,
            best(&object, "tc_in", &foreign) - empty,
            best(&object, "tc_eg", &foreign) - empty,
        );
    }
}

#[test]
fn the_cost_of_packets_straight_to_and_from_endpoints_is_printed() {
    if !is_root() {
        return;
    }
    for is_v6 in [false, true] {
        let mut world = World::new(Settings::with_hz(250));
        let pod = endpoint_addr(is_v6, 1);
        world.service((vip(is_v6, 1), 80), Proto::TCP, &[(pod, 8080)]);
        world.service((vip(is_v6, 1), 53), Proto::UDP, &[(pod, 5353)]);
        let mut object = Object::load(world.tables.settings);
        object.write(&world.tables);
        let (client, tcp, udp) = ((client_addr(is_v6, 1), 40_000), (pod, 8080), (pod, 5353));
        let other = ((pod, 50_000), (client_addr(is_v6, 1), 5432));
        let (question, answer) = (datagram(client, udp), datagram(udp, client));
        for (program, packet) in [
            ("tc_in", segment(client, tcp, "S", 0)),
            ("tc_eg", segment(tcp, client, "SA", 1001)),
            ("tc_eg", segment(tcp, client, "A", 1001)),
            ("tc_in", question.clone()),
            ("tc_eg", answer.clone()),
        ] {
            let run = object.run(program, &packet).unwrap();
            assert_eq!(packet, run.bytes, "{program} leaves it alone");
        }
        let empty = best(&object, "noop", &question);
        let net = |program, packet: &[u8]| best(&object, program, packet) - empty;
        println!(
            "IPv{}: straight to an endpoint {:.0} ns in, {:.0} ns out; UDP {:.0} ns in, {:.0} ns out; an endpoint's pod as a client {:.0} ns out, its answers {:.0} ns in",
            if is_v6 { 6 } else { 4 },
            net("tc_in", &segment(client, tcp, "A", 1001)),
            net("tc_eg", &segment(tcp, client, "A", 1001)),
            net("tc_in", &question),
            net("tc_eg", &answer),
            net("tc_eg", &segment(other.0, other.1, "A", 1001)),
            net("tc_in", &segment(other.1, other.0, "A", 1001)),
        );
    }
}
