//! A packet that meets two instances of a program at one hook, as it does while the program moves
//! to another place among the programs there.

use std::net::IpAddr;

use aya::programs::{TestRun as _, TestRunOptions};
use etherparse::PacketBuilder;
use proxy_common::abi::Settings;
use proxy_common::datapath::memory::world::{World, client_addr, endpoint_addr, vip};
use proxy_common::net::Proto;

use super::is_root;
use super::object::{MOVING, Object};

/// Bytes of a `struct __sk_buff`, and where its control block is.
const CONTEXT: usize = 192;
const CONTROL_BLOCK: std::ops::Range<usize> = 48..68;

#[test]
fn a_packet_that_meets_two_instances_is_translated_once() {
    if !is_root() {
        return;
    }
    for is_v6 in [false, true] {
        // A Service whose endpoint is a frontend of the next: each pass finds something to do.
        let (first, second) = ((vip(is_v6, 1), 53), (vip(is_v6, 2), 53));
        let endpoint = (endpoint_addr(is_v6, 1), 53);
        let client = (client_addr(is_v6, 1), 4000);
        let mut world = World::new(Settings::with_hz(250));
        world.service(second, Proto::UDP, &[endpoint]);
        world.service(first, Proto::UDP, &[second]);
        let mut object = Object::load(world.tables.settings);
        object.load_programs(&MOVING);
        object.write(&world.tables);
        let names = |way: &str| [format!("tc_{way}"), format!("tc_{way}_once")];

        let [plain, once] = names("in");
        let (to_second, block) = run(&object, &once, &frame(client, first), [0; 20]);
        assert_eq!(frame(client, second), to_second);
        assert_ne!([0; 20], block);
        let (after, _) = run(&object, &once, &to_second, block);
        assert_eq!(to_second, after, "the second instance translated it again");
        // This is what it would have done without the mark, and what it does at another hook.
        let (after, _) = run(&object, &plain, &to_second, block);
        assert_eq!(frame(client, endpoint), after);
        let [_, other_hook] = names("eg");
        let (after, _) = run(&object, &other_hook, &frame(endpoint, client), block);
        assert_ne!(frame(endpoint, client), after);

        let [plain, once] = names("eg");
        let (from_second, block) = run(&object, &once, &frame(endpoint, client), [0; 20]);
        assert_eq!(frame(second, client), from_second);
        let (after, _) = run(&object, &once, &from_second, block);
        assert_eq!(
            from_second, after,
            "the second instance translated it again"
        );
        let (after, _) = run(&object, &plain, &from_second, block);
        assert_eq!(frame(first, client), after);
    }
}

fn frame(from: (IpAddr, u16), to: (IpAddr, u16)) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], [0; 6]);
    let builder = match (from.0, to.0) {
        (IpAddr::V4(from), IpAddr::V4(to)) => builder.ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => builder.ipv6(from.octets(), to.octets(), 64),
        _ => unreachable!("one family"),
    };
    let mut frame = Vec::new();
    let builder = builder.udp(from.1, to.1);
    builder.write(&mut frame, &[0x5a; 8]).unwrap();
    frame
}

/// Runs a program over a packet with this control block; what both are afterwards.
fn run(object: &Object, name: &str, packet: &[u8], block: [u8; 20]) -> (Vec<u8>, [u8; 20]) {
    let mut context = [0; CONTEXT];
    context[CONTROL_BLOCK].copy_from_slice(&block);
    let (mut out, mut context_out) = (vec![0; packet.len()], [0; CONTEXT]);
    let mut options = TestRunOptions::new();
    options.data_in = Some(packet);
    options.data_out = Some(&mut out);
    options.ctx_in = Some(&context);
    options.ctx_out = Some(&mut context_out);
    let result = object.program(name).test_run(options).unwrap();
    assert_eq!(-1, result.return_value.cast_signed(), "{name}");
    (out, context_out[CONTROL_BLOCK].try_into().unwrap())
}
