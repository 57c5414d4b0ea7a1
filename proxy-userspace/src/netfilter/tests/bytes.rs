//! The bytes of a batch, each message as the kernel has to be told it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use netlink_packet_core::NetlinkBuffer;
use proxy_common::net::Proto;

use super::super::batch::{Batch, append};
use super::super::counter::Counter;
use super::super::destination::Destination;
use super::super::events::{Foreign, foreign};
use super::super::found::Found;
use super::super::message::Request;
use super::super::table::{Set, Statement, Table};
use super::super::wanted::CLUSTER_IPS;
use super::{address, of_addresses, replace, wanted};
use crate::config::Mode;
use crate::model::Family;

/// Each with the headers of netlink and netfilter first, then an attribute a line. Lengths and
/// kinds are in the machine's order, values in the network's; but for the bits of the mark and the
/// `RTN_LOCAL` of `cmp`, which `meta` and `fib` load in the machine's.
#[cfg(target_endian = "little")]
const MESSAGES: [(&str, &str); 12] = [
    (
        "head of the batch",
        "\
         14000000 10000100 00010000 00000000 0000000a",
    ),
    (
        "table",
        "\
         30000000 000a0104 01010000 00000000 02000000
           11000100 6b756265 2d6c6f74 74657279 00000000
           08000200 00000000",
    ),
    (
        "set",
        "\
         58000000 090a0104 02010000 00000000 02000000
           11000100 6b756265 2d6c6f74 74657279 00000000
           10000200 636c7573 7465722d 69707300
           08000300 00000000
           08000400 00000007
           08000500 00000004
           08000a00 00000001",
    ),
    (
        "counter",
        "\
         60000000 120a0104 03010000 00000000 02000000
           11000100 6b756265 2d6c6f74 74657279 00000000
           11000200 756e7472 616e736c 61746564 00000000
           08000300 00000001
           1c000480 0c000100 00000000 00000000 0c000200 00000000 00000000",
    ),
    (
        "chain prerouting",
        "\
         60000000 030a0104 04010000 00000000 02000000
           11000100 6b756265 2d6c6f74 74657279 00000000
           0f000300 70726572 6f757469 6e670000
           14000480 08000100 00000000 08000200 000000c8
           08000500 00000001
           0b000700 66696c74 65720000",
    ),
    (
        "its rule",
        "\
         e4010000 060a010c 05010000 00000000 02000000
           11000100 6b756265 2d6c6f74 74657279 00000000
           0f000200 70726572 6f757469 6e670000
           ac010480
             24000180
               09000100 6d657461 00000000
               14000280 08000200 00000003 08000100 00000001
             44000180
               0c000100 62697477 69736500
               34000280 08000100 00000001 08000200 00000001 08000300 00000004
                 0c000580 08000100 00000000 0c000480 08000100 00800000
             2c000180
               08000100 636d7000
               20000280 08000100 00000001 08000200 00000000 0c000380 08000100 00000000
             34000180
               0c000100 7061796c 6f616400
               24000280 08000100 00000001 08000200 00000001 08000300 00000010 08000400 00000004
             2c000180
               0b000100 6c6f6f6b 75700000
               1c000280 10000100 636c7573 7465722d 69707300 08000200 00000001
             28000180
               08000100 66696200
               1c000280 08000100 00000001 08000200 00000003 08000300 00000002
             2c000180
               08000100 636d7000
               20000280 08000100 00000001 08000200 00000001 0c000380 08000100 02000000
             30000180
               0b000100 6f626a72 65660000
               20000280 08000100 00000001 11000200 756e7472 616e736c 61746564 00000000
             30000180
               0e000100 696d6d65 64696174 65000000
               1c000280 08000100 00000000 10000280 0c000280 08000100 00000000",
    ),
    (
        "chain output",
        "\
         5c000000 030a0104 06010000 00000000 02000000
           11000100 6b756265 2d6c6f74 74657279 00000000
           0b000300 6f757470 75740000
           14000480 08000100 00000003 08000200 000000c8
           08000500 00000001
           0b000700 66696c74 65720000",
    ),
    (
        "its rule",
        "\
         e0010000 060a010c 07010000 00000000 02000000
           11000100 6b756265 2d6c6f74 74657279 00000000
           0b000200 6f757470 75740000
           ac010480
             24000180
               09000100 6d657461 00000000
               14000280 08000200 00000003 08000100 00000001
             44000180
               0c000100 62697477 69736500
               34000280 08000100 00000001 08000200 00000001 08000300 00000004
                 0c000580 08000100 00000000 0c000480 08000100 00800000
             2c000180
               08000100 636d7000
               20000280 08000100 00000001 08000200 00000000 0c000380 08000100 00000000
             34000180
               0c000100 7061796c 6f616400
               24000280 08000100 00000001 08000200 00000001 08000300 00000010 08000400 00000004
             2c000180
               0b000100 6c6f6f6b 75700000
               1c000280 10000100 636c7573 7465722d 69707300 08000200 00000001
             28000180
               08000100 66696200
               1c000280 08000100 00000001 08000200 00000003 08000300 00000002
             2c000180
               08000100 636d7000
               20000280 08000100 00000001 08000200 00000001 0c000380 08000100 02000000
             30000180
               0b000100 6f626a72 65660000
               20000280 08000100 00000001 11000200 756e7472 616e736c 61746564 00000000
             30000180
               0e000100 696d6d65 64696174 65000000
               1c000280 08000100 00000000 10000280 0c000280 08000100 00000000",
    ),
    (
        "two elements",
        "\
         5c000000 0c0a0104 08010000 00000000 02000000
           11000100 6b756265 2d6c6f74 74657279 00000000
           10000200 636c7573 7465722d 69707300
           24000380 10000180 0c000180 08000100 0a60000a 10000180 0c000180 08000100 0a60000b",
    ),
    (
        "one of them gone",
        "\
         4c000000 0e0a0100 09010000 00000000 02000000
           11000100 6b756265 2d6c6f74 74657279 00000000
           10000200 636c7573 7465722d 69707300
           14000380 10000180 0c000180 08000100 0a60000a",
    ),
    (
        "the table gone",
        "\
         28000000 020a0500 0a010000 00000000 02000000
           11000100 6b756265 2d6c6f74 74657279 00000000",
    ),
    (
        "end of the batch",
        "\
         14000000 11000100 0b010000 00000000 0000000a",
    ),
];

/// With nothing but the drop of what nobody translates, in the mode of nftables.
fn smaller() -> Table {
    let mut table = of_addresses(Family::V4);
    table
        .counters
        .retain(|counter| *counter == Counter::Untranslated);
    let names = ["prerouting", "output"];
    table.chains.retain(|chain| names.contains(&chain.name));
    for chain in &mut table.chains {
        chain
            .rules
            .retain(|rule| rule.contains(&Statement::Count(Counter::Untranslated)));
    }
    table
}

#[test]
#[cfg(target_endian = "little")]
fn a_batch_is_these_bytes() {
    let table = smaller();
    let mut requests = replace(&table, &Found::default(), &BTreeMap::new());
    let both = [address(10), address(11)];
    requests.extend(Request::add_elements(&table, &both));
    requests.extend(Request::delete_elements(&table, &both[..1]));
    requests.push(Request::delete_table(Family::V4, table.name));
    let batch = Batch::new(&requests, 0x100);
    assert_eq!((0x100, 0x10a), (batch.first, batch.last));
    let all = messages(&batch.bytes);
    assert_eq!(MESSAGES.len(), all.len());
    for ((name, expected), message) in MESSAGES.iter().zip(all) {
        let expected: Vec<_> = expected.split_whitespace().collect();
        assert_eq!(expected.join(" "), message, "{name}");
    }
}

#[test]
fn ipv6_has_its_own_place_and_length_of_the_destination() {
    for (family, place) in Family::ALL
        .into_iter()
        .zip(["00000010 08000400 00000004", "00000018 08000400 00000010"])
    {
        let table = of_addresses(family);
        let rule = Request::new_rule(&table, &table.chains[0], &table.chains[0].rules[0]);
        let mut bytes = Vec::new();
        append(&mut bytes, &rule, 1);
        let rule = messages(&bytes).remove(0);
        assert!(rule.contains(&format!("08000300 {place} ")), "{rule}");
    }
}

#[test]
fn thousands_of_elements_are_cut_into_attributes_that_can_be_told() {
    let table = wanted(Family::V6, Mode::Iptables);
    let all: Vec<_> = (0..10_000_u128)
        .map(|n| Destination::port(n.to_be_bytes().into(), Proto::TCP, 80))
        .collect();
    let requests = Request::add_elements(&table, &all);
    let batch = Batch::new(&requests, 1);
    let mut found = Found::default();
    for request in &requests {
        assert!(super::attributes(request).len() < 65_535);
        found.note_elements(&super::attributes(request));
    }
    assert!(found.elements.iter().eq(&all));
    assert_eq!(requests.len() + 2, messages(&batch.bytes).len());
}

#[test]
fn only_what_others_do_to_our_tables_is_foreign() {
    let own = Some(77);
    let by = |port: u32, request: &Request| {
        let mut bytes = Vec::new();
        append(&mut bytes, request, 1);
        NetlinkBuffer::new(&mut bytes).set_port_number(port);
        bytes
    };
    let (ours, none) = (
        Foreign {
            ours: true,
            accepts: false,
        },
        Foreign::default(),
    );
    let table = of_addresses(Family::V6);
    let delete_table = |name| Request::delete_table(Family::V6, name);
    let strange = Set {
        name: "strange",
        ..CLUSTER_IPS
    };
    let mut other = table.clone();
    other.name = "kube-proxy";
    let touching = [
        delete_table(table.name),
        Request::delete_chain(&table, "output"),
        Request::delete_rules(&table),
        Request::new_set(&table, strange, 1),
        Request::add_elements(&table, &[address(1)]).remove(0),
        Request::new_counter(&table, Counter::Invalid, super::Count::default()),
    ];
    for request in &touching {
        assert_eq!(ours, foreign(&by(78, request), own), "{request:?}");
        assert_eq!(none, foreign(&by(77, request), own), "{request:?}");
        let both = [by(77, request), by(78, request)].concat();
        assert_eq!(ours, foreign(&both, own), "{request:?}");
    }
    assert_eq!(none, foreign(&by(78, &delete_table(other.name)), own));
    let others = [by(78, &Request::delete_rules(&other)), by(78, &touching[0])].concat();
    assert_eq!(ours, foreign(&others, own));
    // Where rules of ours may be, too.
    let filter = delete_table("filter");
    let accepts = Foreign {
        ours: false,
        accepts: true,
    };
    assert_eq!(accepts, foreign(&by(78, &filter), own));
    assert_eq!(none, foreign(&by(77, &filter), own));
}

/// Each message in words of four bytes.
fn messages(bytes: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let length = NetlinkBuffer::new_checked(rest).unwrap().length() as usize;
        let (message, others) = rest.split_at(length);
        let mut text = String::new();
        for (index, byte) in message.iter().enumerate() {
            let space = if index > 0 && index % 4 == 0 { " " } else { "" };
            write!(text, "{space}{byte:02x}").unwrap();
        }
        all.push(text);
        rest = others;
    }
    all
}
