//! Quotes of every form: cut short, with options, of fragments.

use super::*;
use std::vec;

/// Both ways of a flow with this quote of its packets: as it comes and as it has to come out.
fn both_ways(is_v6: bool, flow: &mut Flow, limit: usize, form: impl Fn(Quote) -> Quote) {
    let mut message = too_big(router(is_v6), &flow.request());
    message.limit = limit;
    let [before, after] = [flow.request(), flow.sent()].map(|quote| form(quote).bytes());
    flow.node
        .becomes(false, &message.frame(&before), &message.frame(&after));
    let mut message = too_big(router(is_v6), &flow.received());
    message.limit = limit;
    let there = to(&message, flow.endpoint);
    let [before, after] = [flow.received(), flow.answer()].map(|quote| form(quote).bytes());
    flow.node
        .becomes(true, &message.frame(&before), &there.frame(&after));
}

fn neither_way(is_v6: bool, flow: &mut Flow, limit: usize, form: impl Fn(Quote) -> Quote) {
    for quote in [flow.request(), flow.received()] {
        let mut message = too_big(router(is_v6), &quote);
        message.limit = limit;
        flow.node.leaves_alone(&message.frame(&form(quote).bytes()));
    }
}

fn each(mut check: impl FnMut(bool, Flow)) {
    for (is_v6, proto) in ALL {
        check(is_v6, Flow::with_another_port(is_v6, proto));
    }
}

const fn header(is_v6: bool) -> usize {
    if is_v6 { 40 } else { 20 }
}

/// Bytes of the transport header that its checksum takes.
fn checksum(proto: Proto) -> std::ops::Range<usize> {
    match proto {
        Proto::TCP => 16..18,
        Proto::UDP => 6..8,
        _ => 8..12,
    }
}

/// At least eight bytes of the transport header are there (RFC 792); a checksum may not be.
#[test]
fn a_quote_may_end_anywhere_behind_the_ports() {
    each(|is_v6, mut flow| {
        let check = checksum(flow.node.proto);
        let is_half = |bytes: &usize| check.start < *bytes && *bytes < check.end;
        for bytes in (4..40).filter(|bytes| !is_half(bytes)) {
            both_ways(is_v6, &mut flow, header(is_v6) + bytes, |quote| quote);
        }
        // A piece of a checksum stays as it is.
        for bytes in (4..40).filter(is_half) {
            let (start, end) = (header(is_v6) + check.start, header(is_v6) + bytes);
            let message = too_big(router(is_v6), &flow.request());
            let before = &flow.request().bytes()[..end];
            let after = [&flow.sent().bytes()[..start], &before[start..]].concat();
            flow.node
                .becomes(false, &message.frame(before), &message.frame(&after));
        }
        assert_eq!(0, flow.node.counted(Counter::PassIcmpError));
    });
}

#[test]
fn a_quote_that_ends_before_is_left_alone_and_counted() {
    each(|is_v6, mut flow| {
        for bytes in 0..4 {
            let counted = flow.node.counted(Counter::PassIcmpError);
            neither_way(is_v6, &mut flow, header(is_v6) + bytes, |quote| quote);
            assert_eq!(counted + 2, flow.node.counted(Counter::PassIcmpError));
        }
        for bytes in 0..header(is_v6) {
            neither_way(is_v6, &mut flow, bytes, |quote| quote);
        }
    });
}

/// What a link adds to a short frame is none of the message.
#[test]
fn what_follows_the_message_is_not_touched() {
    each(|is_v6, mut flow| {
        let mut message = too_big(router(is_v6), &flow.request());
        let pad = [0x77; 24];
        let check = checksum(flow.node.proto);
        for bytes in [4, check.start, check.end, 40] {
            message.limit = header(is_v6) + bytes;
            let before = [message.frame(&flow.request().bytes()), pad.to_vec()].concat();
            let after = [message.frame(&flow.sent().bytes()), pad.to_vec()].concat();
            flow.node.becomes(false, &before, &after);
        }
    });
}

#[test]
fn ports_that_are_none_of_the_message_are_none() {
    each(|is_v6, mut flow| {
        let quote = flow.request();
        let mut message = too_big(router(is_v6), &quote);
        message.limit = header(is_v6) + 2;
        let rest = quote.bytes().split_off(message.limit);
        let frame = [message.frame(&quote.bytes()), rest].concat();
        flow.node.leaves_alone(&frame);
        assert_eq!(1, flow.node.counted(Counter::PassIcmpError));
    });
}

/// In UDP it would say that there is none, and stands as its complement.
#[test]
fn a_checksum_may_come_out_as_zero() {
    for (is_v6, proto) in ALL.into_iter().filter(|(_, proto)| *proto != Proto::SCTP) {
        let mut flow = Flow::with_another_port(is_v6, proto);
        let at = header(is_v6) + checksum(proto).start;
        let sum = |quote: &Quote| quote.bytes()[at..at + 2].to_vec();
        let mut quote = flow.request();
        quote.payload = vec![0; 2];
        let sent = |quote: &Quote| quote.between(flow.client, flow.service);
        // What is missing to zero.
        quote.payload = sum(&sent(&quote));
        let zero = if proto == Proto::UDP { 0xff } else { 0 };
        assert_eq!([zero; 2], *sum(&sent(&quote)));
        let (before, after) = (quote.bytes(), sent(&quote).bytes());
        let message = too_big(router(is_v6), &quote);
        flow.node
            .becomes(false, &message.frame(&before), &message.frame(&after));
    }
}

#[test]
fn datagrams_without_a_checksum_stay_without() {
    let mut flow = Flow::with_another_port(false, Proto::UDP);
    both_ways(false, &mut flow, 500, |quote| Quote {
        is_unchecked: true,
        ..quote
    });
}

#[test]
fn quoted_headers_may_have_options() {
    each(|is_v6, mut flow| {
        if is_v6 {
            return;
        }
        for words in 1..=10 {
            both_ways(is_v6, &mut flow, 500, |quote| Quote {
                options: vec![1; words * 4],
                ..quote
            });
        }
    });
}

/// An extension header of this type, followed by one of the next, `words` of 8 bytes longer than
/// the shortest.
fn extension(next: u8, words: u8) -> Vec<u8> {
    let mut bytes = vec![next, words];
    bytes.resize(8 + usize::from(words) * 8, 0);
    bytes
}

#[test]
fn quoted_packets_may_have_extension_headers() {
    for proto in [Proto::TCP, Proto::UDP, Proto::SCTP] {
        let mut flow = Flow::with_another_port(true, proto);
        let last = proto.0;
        // An authentication header counts in words of four bytes, and two less.
        let chains: [(u8, Vec<u8>); 6] = [
            (0, extension(last, 0)),
            (60, extension(last, 5)),
            (43, extension(last, 255)),
            (44, extension(last, 0)),
            (51, [vec![last, 4], vec![9; 22]].concat()),
            (
                0,
                [
                    extension(60, 1),
                    extension(43, 0),
                    extension(44, 2),
                    extension(last, 0),
                ]
                .concat(),
            ),
        ];
        for (option, options) in chains {
            both_ways(true, &mut flow, 5_000, |quote| Quote {
                option,
                options: options.clone(),
                ..quote
            });
        }
    }
}

#[test]
fn too_many_or_unknown_extension_headers_are_left_alone_and_counted() {
    let mut flow = Flow::new(true, Proto::UDP);
    let last = Proto::UDP.0;
    let many = [[60, 0, 0, 0, 0, 0, 0, 0]; 6].concat();
    for (option, options) in [
        (60, [many, extension(last, 0)].concat()),
        (50, vec![0; 16]),
        (135, extension(last, 0)),
        (59, vec![0; 8]),
        // The second piece of a datagram.
        (44, vec![last, 0, 0, 8, 0, 0, 0, 1]),
    ] {
        let counted = flow.node.counted(Counter::PassIcmpError);
        neither_way(true, &mut flow, 500, |quote| Quote {
            option,
            options: options.clone(),
            ..quote
        });
        assert_eq!(counted + 2, flow.node.counted(Counter::PassIcmpError));
    }
}

/// Only the first has ports.
#[test]
fn quotes_of_a_first_fragment_are_translated_and_of_others_not() {
    for proto in [Proto::UDP, Proto::TCP] {
        let mut flow = Flow::new(false, proto);
        for fragment in [0x2000, 0x4000] {
            both_ways(false, &mut flow, 500, |quote| Quote { fragment, ..quote });
        }
        for fragment in [0x2001, 0x00b9, 0x1fff] {
            let counted = flow.node.counted(Counter::PassIcmpError);
            neither_way(false, &mut flow, 500, |quote| Quote { fragment, ..quote });
            assert_eq!(counted + 2, flow.node.counted(Counter::PassIcmpError));
        }
    }
}

/// An error about an echo is none of ours.
#[test]
fn quotes_of_other_protocols_are_left_alone_and_not_counted() {
    for (is_v6, proto) in [(false, Proto::ICMP), (true, Proto::ICMPV6)] {
        let mut flow = Flow::new(is_v6, Proto::UDP);
        neither_way(is_v6, &mut flow, 500, |quote| Quote { proto, ..quote });
        assert_eq!(0, flow.node.counted(Counter::PassIcmpError));
    }
}

/// A version, a length or a whole header that is none.
#[test]
fn what_is_no_quote_is_left_alone() {
    for (is_v6, proto) in ALL {
        let mut flow = Flow::new(is_v6, proto);
        for first in [0x00, 0x41, 0x4f, 0x54, 0x66] {
            for quote in [flow.request(), flow.received()] {
                let mut bytes = quote.bytes();
                if is_v6 == (first == 0x66) {
                    continue;
                }
                bytes[0] = first;
                bytes.truncate(40);
                let message = too_big(router(is_v6), &quote);
                flow.node.leaves_alone(&message.frame(&bytes));
            }
        }
    }
}
