//! ICMP errors as bytes, and the bytes that have to come out, on host and kernel alike. They were
//! put together by a script of a few lines that shares nothing with this repository.

use std::net::SocketAddr;

use proxy_common::abi::Settings;
use proxy_common::datapath::memory::MemoryTables;
use proxy_common::datapath::memory::world::{World, client_addr, endpoint_addr, vip};
use proxy_common::net::Proto;

use super::agreement::{Place, on_host};
use super::frames::{Tcp, frame};
use super::is_root;
use super::object::{MARKED, Object, Run};

/// An error about a packet of the flows that [`open`] opens.
struct Golden {
    what: &'static str,
    program: &'static str,
    before: &'static str,
    after: &'static str,
}

const ERRORS4: [Golden; 4] = [
    Golden {
        what: "too big, about a segment",
        program: "tc_eg",
        before: "00 00 00 00 00 00 02 00 00 00 00 09 08 00 45 c0 00 4c ab cd 00 00 3f 01 01 2e \
         c0 00 02 01 0a f4 01 01 03 04 11 08 00 00 05 00 45 00 00 30 12 34 40 00 3d 06 \
         12 ab 0a f4 01 01 0a f4 02 01 9c 40 1f 90 00 00 03 e9 00 00 13 89 50 18 01 f4 \
         30 0f 00 00 61 62 63 64 65 66 67 68",
        after: "00 00 00 00 00 00 02 00 00 00 00 09 08 00 45 c0 00 4c ab cd 00 00 3f 01 01 2e \
         c0 00 02 01 0a f4 01 01 03 04 0e 74 00 00 05 00 45 00 00 30 12 34 40 00 3d 06 \
         15 3f 0a f4 01 01 0a 60 00 01 9c 40 00 50 00 00 03 e9 00 00 13 89 50 18 01 f4 \
         51 e3 00 00 61 62 63 64 65 66 67 68",
    },
    Golden {
        what: "nobody listens, says the endpoint",
        program: "tc_eg",
        before: "00 00 00 00 00 00 02 00 00 00 00 09 08 00 45 c0 00 40 ab cd 00 00 3f 01 b6 46 \
         0a f4 02 01 0a f4 01 01 03 03 16 08 00 00 00 00 45 00 00 24 12 34 40 00 3d 11 \
         12 ac 0a f4 01 01 0a f4 02 01 9c 42 14 e9 00 10 a4 23 61 62 63 64 65 66 67 68",
        after: "00 00 00 00 00 00 02 00 00 00 00 09 08 00 45 c0 00 40 ab cd 00 00 3f 01 b8 da \
         0a 60 00 01 0a f4 01 01 03 03 13 74 00 00 00 00 45 00 00 24 12 34 40 00 3d 11 \
         15 40 0a f4 01 01 0a 60 00 01 9c 42 00 35 00 10 bb 6b 61 62 63 64 65 66 67 68",
    },
    Golden {
        what: "too big, about an answer, of which eight bytes are left",
        program: "tc_in",
        before: "00 00 00 00 00 00 02 00 00 00 00 09 08 00 45 c0 00 38 ab cd 00 00 3f 01 02 d6 \
         c0 00 02 01 0a 60 00 01 03 04 57 82 00 00 05 00 45 00 00 30 12 34 40 00 3d 06 \
         15 3f 0a 60 00 01 0a f4 01 01 00 50 9c 40 00 00 03 e9",
        after: "00 00 00 00 00 00 02 00 00 00 00 09 08 00 45 c0 00 38 ab cd 00 00 3f 01 00 42 \
         c0 00 02 01 0a f4 02 01 03 04 38 42 00 00 05 00 45 00 00 30 12 34 40 00 3d 06 \
         12 ab 0a f4 02 01 0a f4 01 01 1f 90 9c 40 00 00 03 e9",
    },
    Golden {
        what: "nobody listens, says the client",
        program: "tc_in",
        before: "00 00 00 00 00 00 02 00 00 00 00 09 08 00 45 c0 00 40 ab cd 00 00 3f 01 b8 da \
         0a f4 01 01 0a 60 00 01 03 03 13 74 00 00 00 00 45 00 00 24 12 34 40 00 3d 11 \
         15 40 0a 60 00 01 0a f4 01 01 00 35 9c 42 00 10 bb 6b 61 62 63 64 65 66 67 68",
        after: "00 00 00 00 00 00 02 00 00 00 00 09 08 00 45 c0 00 40 ab cd 00 00 3f 01 b6 46 \
         0a f4 01 01 0a f4 02 01 03 03 16 08 00 00 00 00 45 00 00 24 12 34 40 00 3d 11 \
         12 ac 0a f4 02 01 0a f4 01 01 14 e9 9c 42 00 10 a4 23 61 62 63 64 65 66 67 68",
    },
];

const ERRORS6: [Golden; 4] = [
    Golden {
        what: "too big, about a segment",
        program: "tc_eg",
        before: "00 00 00 00 00 00 02 00 00 00 00 09 86 dd 60 00 00 00 00 4c 3a 3f 20 01 0d b8 \
         00 00 00 00 00 00 00 00 00 00 00 01 fd 00 00 10 02 44 00 01 00 00 00 00 00 00 \
         00 01 02 00 65 31 00 00 05 00 60 00 00 00 00 1c 06 3d fd 00 00 10 02 44 00 01 \
         00 00 00 00 00 00 00 01 fd 00 00 10 02 44 00 02 00 00 00 00 00 00 00 01 9c 40 \
         1f 90 00 00 03 e9 00 00 13 89 50 18 01 f4 4a 4a 00 00 61 62 63 64 65 66 67 68",
        after: "00 00 00 00 00 00 02 00 00 00 00 09 86 dd 60 00 00 00 00 4c 3a 3f 20 01 0d b8 \
         00 00 00 00 00 00 00 00 00 00 00 01 fd 00 00 10 02 44 00 01 00 00 00 00 00 00 \
         00 01 02 00 65 31 00 00 05 00 60 00 00 00 00 1c 06 3d fd 00 00 10 02 44 00 01 \
         00 00 00 00 00 00 00 01 fd 00 00 10 00 96 00 00 00 00 00 00 00 00 00 01 9c 40 \
         00 50 00 00 03 e9 00 00 13 89 50 18 01 f4 6b 3a 00 00 61 62 63 64 65 66 67 68",
    },
    Golden {
        what: "nobody listens, says the endpoint",
        program: "tc_eg",
        before: "00 00 00 00 00 00 02 00 00 00 00 09 86 dd 60 00 00 00 00 40 3a 3f fd 00 00 10 \
         02 44 00 02 00 00 00 00 00 00 00 01 fd 00 00 10 02 44 00 01 00 00 00 00 00 00 \
         00 01 01 04 8e a6 00 00 00 00 60 00 00 00 00 10 11 3d fd 00 00 10 02 44 00 01 \
         00 00 00 00 00 00 00 01 fd 00 00 10 02 44 00 02 00 00 00 00 00 00 00 01 9c 42 \
         14 e9 00 10 be 5e 61 62 63 64 65 66 67 68",
        after: "00 00 00 00 00 00 02 00 00 00 00 09 86 dd 60 00 00 00 00 40 3a 3f fd 00 00 10 \
         00 96 00 00 00 00 00 00 00 00 00 01 fd 00 00 10 02 44 00 01 00 00 00 00 00 00 \
         00 01 01 04 90 56 00 00 00 00 60 00 00 00 00 10 11 3d fd 00 00 10 02 44 00 01 \
         00 00 00 00 00 00 00 01 fd 00 00 10 00 96 00 00 00 00 00 00 00 00 00 01 9c 42 \
         00 35 00 10 d4 c2 61 62 63 64 65 66 67 68",
    },
    Golden {
        what: "too big, about an answer",
        program: "tc_in",
        before: "00 00 00 00 00 00 02 00 00 00 00 09 86 dd 60 00 00 00 00 4c 3a 3f 20 01 0d b8 \
         00 00 00 00 00 00 00 00 00 00 00 01 fd 00 00 10 00 96 00 00 00 00 00 00 00 00 \
         00 01 02 00 66 e0 00 00 05 00 60 00 00 00 00 1c 06 3d fd 00 00 10 00 96 00 00 \
         00 00 00 00 00 00 00 01 fd 00 00 10 02 44 00 01 00 00 00 00 00 00 00 01 00 50 \
         9c 40 00 00 03 e9 00 00 13 89 50 18 01 f4 6b 3a 00 00 61 62 63 64 65 66 67 68",
        after: "00 00 00 00 00 00 02 00 00 00 00 09 86 dd 60 00 00 00 00 4c 3a 3f 20 01 0d b8 \
         00 00 00 00 00 00 00 00 00 00 00 01 fd 00 00 10 02 44 00 02 00 00 00 00 00 00 \
         00 01 02 00 65 30 00 00 05 00 60 00 00 00 00 1c 06 3d fd 00 00 10 02 44 00 02 \
         00 00 00 00 00 00 00 01 fd 00 00 10 02 44 00 01 00 00 00 00 00 00 00 01 1f 90 \
         9c 40 00 00 03 e9 00 00 13 89 50 18 01 f4 4a 4a 00 00 61 62 63 64 65 66 67 68",
    },
    Golden {
        what: "nobody listens, says the client",
        program: "tc_in",
        before: "00 00 00 00 00 00 02 00 00 00 00 09 86 dd 60 00 00 00 00 40 3a 3f fd 00 00 10 \
         02 44 00 01 00 00 00 00 00 00 00 01 fd 00 00 10 00 96 00 00 00 00 00 00 00 00 \
         00 01 01 04 90 56 00 00 00 00 60 00 00 00 00 10 11 3d fd 00 00 10 00 96 00 00 \
         00 00 00 00 00 00 00 01 fd 00 00 10 02 44 00 01 00 00 00 00 00 00 00 01 00 35 \
         9c 42 00 10 d4 c2 61 62 63 64 65 66 67 68",
        after: "00 00 00 00 00 00 02 00 00 00 00 09 86 dd 60 00 00 00 00 40 3a 3f fd 00 00 10 \
         02 44 00 01 00 00 00 00 00 00 00 01 fd 00 00 10 02 44 00 02 00 00 00 00 00 00 \
         00 01 01 04 8e a6 00 00 00 00 60 00 00 00 00 10 11 3d fd 00 00 10 02 44 00 02 \
         00 00 00 00 00 00 00 01 fd 00 00 10 02 44 00 01 00 00 00 00 00 00 00 01 14 e9 \
         9c 42 00 10 be 5e 61 62 63 64 65 66 67 68",
    },
];

fn bytes(text: &str) -> Vec<u8> {
    text.split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

/// Runs a packet in the kernel and on the host, which have to agree.
fn run(object: &Object, tables: &mut MemoryTables, program: &'static str, packet: &[u8]) -> Run {
    let kernel = object.run(program, packet).unwrap();
    let host = on_host(tables, program, packet, &Place::default());
    assert_eq!(host, kernel);
    kernel
}

/// A connection to port 80 from port 40000, and a datagram to port 53 from port 40002.
fn open(object: &Object, tables: &mut MemoryTables, is_v6: bool) {
    let [client, vip] = [client_addr(is_v6, 1), vip(is_v6, 1)];
    for (proto, from, to) in [(Proto::TCP, 40_000, 80), (Proto::UDP, 40_002, 53)] {
        let (from, to) = (SocketAddr::new(client, from), SocketAddr::new(vip, to));
        let packet = frame(proto, from, to, Tcp::SYN);
        assert_ne!(packet, run(object, tables, "tc_in", &packet).bytes);
    }
}

#[test]
fn errors_come_out_as_they_have_to() {
    if !is_root() {
        return;
    }
    let mut settings = Settings::with_hz(250);
    settings.test_sources = 1;
    let mut world = World::new(settings);
    for is_v6 in [false, true] {
        let (vip, endpoint) = (vip(is_v6, 1), endpoint_addr(is_v6, 1));
        world.service((vip, 80), Proto::TCP, &[(endpoint, 8080)]);
        world.service((vip, 53), Proto::UDP, &[(endpoint, 5353)]);
    }
    let tables = &mut world.tables;
    let mut object = Object::load(tables.settings);
    object.write(tables);
    object.set_sources(tables.now, tables.random.0);
    for (is_v6, all) in [(false, &ERRORS4), (true, &ERRORS6)] {
        // As long as there is no flow they are left alone.
        for one in all {
            let before = bytes(one.before);
            assert_eq!(before, run(&object, tables, one.program, &before).bytes);
        }
        open(&object, tables, is_v6);
        for one in all {
            let expected = Run {
                action: -1,
                bytes: bytes(one.after),
                mark: MARKED,
            };
            let run = run(&object, tables, one.program, &bytes(one.before));
            assert_eq!(expected, run, "{}, IPv6: {is_v6}", one.what);
        }
    }
    assert_eq!(tables.counters, object.counters());
    for one in ERRORS4.iter().chain(&ERRORS6) {
        object.keeps_the_sum(one.program, &bytes(one.before));
    }
}
