//! Datagrams in fragments: they must come out as the whole would.

use super::*;
use crate::abi::Empty;
use crate::datapath::memory::pieces::{cut, join, numbered};

const MASQUERADE: u32 = Settings::with_hz(250).masquerade_mark;
const REJECT: u32 = Settings::with_hz(250).reject_mark;

const IN: bool = true;
const OUT: bool = false;

/// A datagram, or a segment, that is long enough for four fragments.
fn whole(proto: Proto, from: SocketAddr, to: SocketAddr, id: u16) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let builder = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => builder.ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => builder.ipv6(from.octets(), to.octets(), 64),
        _ => unreachable!("both addresses are of one family"),
    };
    let payload: Vec<_> = (0..75_u8).map(|byte| byte.wrapping_mul(37)).collect();
    let mut bytes = Vec::new();
    if proto == Proto::UDP {
        let udp = builder.udp(from.port(), to.port());
        udp.write(&mut bytes, &payload).unwrap();
    } else {
        let tcp = builder.tcp(from.port(), to.port(), 100, 64_000).syn();
        tcp.write(&mut bytes, &payload).unwrap();
    }
    numbered(&bytes, id).unwrap()
}

/// Its fragments, in order.
fn pieces(whole: &[u8], id: u16) -> Vec<Vec<u8>> {
    let pieces = cut(whole, id.into(), 24).unwrap();
    assert!(pieces.len() >= 4);
    pieces
}

/// All orders of the numbers from 1 to 3.
const ORDERS: [[usize; 3]; 6] = [
    [1, 2, 3],
    [1, 3, 2],
    [2, 1, 3],
    [2, 3, 1],
    [3, 1, 2],
    [3, 2, 1],
];

impl Node {
    /// Sends a datagram whole and in fragments, whose first one comes first, through the same
    /// tables; what comes out. It is the same, and so is the mark.
    fn fares_alike(&mut self, from: SocketAddr, to: SocketAddr, enters: bool) -> Vec<u8> {
        let id = 0x1234;
        let whole = whole(self.proto, from, to, id);
        let (verdict, expected) = self.take(whole.clone(), enters);
        assert_eq!(Verdict::Rewritten, verdict);
        let mark = self.mark;
        for order in ORDERS {
            let mut pieces = pieces(&whole, id);
            for n in [0].into_iter().chain(order) {
                let (verdict, bytes) = self.take(pieces[n].clone(), enters);
                assert_eq!(Verdict::Rewritten, verdict);
                assert_eq!(mark, self.mark);
                pieces[n] = bytes;
            }
            for piece in pieces.iter_mut().skip(4) {
                *piece = self.take(piece.clone(), enters).1;
            }
            assert_eq!(expected, join(&pieces).unwrap());
        }
        expected
    }

    /// Sends a datagram that has to come out from and to these.
    fn fares_as(
        &mut self,
        (from, to): (SocketAddr, SocketAddr),
        after: (SocketAddr, SocketAddr),
        enters: bool,
    ) {
        let bytes = self.fares_alike(from, to, enters);
        assert_eq!(after, addresses(&bytes));
    }
}

/// Both families, and the protocols that are fragmented in life.
const SHAPES: [(bool, Proto); 4] = [
    (false, Proto::UDP),
    (true, Proto::UDP),
    (false, Proto::TCP),
    (true, Proto::TCP),
];

#[test]
fn fragments_fare_as_the_whole_in_every_order_and_both_ways() {
    for (is_v6, proto) in SHAPES {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        let endpoint = SocketAddr::new(endpoint_addr(is_v6, 1), 8080);
        let client = client(is_v6, 1, 1000);
        node.fares_as((client, service), (client, endpoint), IN);
        node.fares_as((endpoint, client), (service, client), OUT);
        assert_eq!(1, node.counted(Counter::NewFlow));
    }
}

#[test]
fn a_pod_reaches_itself_in_fragments() {
    for (is_v6, proto) in SHAPES {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        let addr = endpoint_addr(is_v6, 1);
        let (client, endpoint) = (SocketAddr::new(addr, 1000), SocketAddr::new(addr, 8080));
        let itself = SocketAddr::new(service.ip(), 1000);
        node.fares_as((client, service), (client, endpoint), IN);
        node.fares_as((client, endpoint), (itself, endpoint), OUT);
        node.fares_as((endpoint, itself), (endpoint, client), IN);
        node.fares_as((endpoint, client), (service, client), OUT);
    }
}

#[test]
fn every_fragment_of_a_masqueraded_flow_is_marked() {
    for (is_v6, proto) in SHAPES {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        node.flag(service, FrontendFlags::masquerade(Origin::Outside));
        let client = client(is_v6, 1, 1000);
        let endpoint = SocketAddr::new(endpoint_addr(is_v6, 1), 8080);
        node.fares_as((client, service), (client, endpoint), IN);
        assert_eq!(MASQUERADE, node.marked());
        node.fares_as((endpoint, client), (service, client), OUT);
        assert_eq!(0, node.marked());
    }
}

#[test]
fn what_is_rejected_or_dropped_is_so_as_a_whole() {
    for (is_v6, proto) in SHAPES {
        for (empty, verdict, mark) in [
            (Empty::Reject, Verdict::Rejected, REJECT),
            (Empty::Drop, Verdict::Drop(Counter::DropNoEndpoint), 0),
            (Empty::Pass, Verdict::Pass, 0),
        ] {
            let mut node = Node::new(proto);
            let service = node.service(is_v6, 1, &[]);
            node.flag(service, FrontendFlags::if_empty(Origin::Outside, empty));
            let whole = whole(proto, client(is_v6, 1, 1000), service, 7);
            for piece in pieces(&whole, 7) {
                assert_eq!((verdict, piece.clone()), node.take(piece, IN));
                assert_eq!(mark, node.marked());
            }
        }
    }
}

/// Its answer finds the way, and the datagram is sent again.
#[test]
fn a_tail_that_comes_first_is_dropped_if_it_is_for_a_service() {
    for (is_v6, proto) in SHAPES {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        let endpoint = SocketAddr::new(endpoint_addr(is_v6, 1), 8080);
        let client = client(is_v6, 1, 1000);
        let whole = whole(proto, client, service, 9);
        let mut pieces = pieces(&whole, 9);
        let tail = pieces.pop().unwrap();
        let lost = Verdict::Drop(Counter::DropFragment);
        assert_eq!((lost, tail.clone()), node.take(tail.clone(), IN));
        assert_eq!(1, node.counted(Counter::DropFragment));
        for piece in pieces {
            assert_eq!(Verdict::Rewritten, node.take(piece, IN).0);
        }
        assert_eq!(Verdict::Rewritten, node.take(tail, IN).0);
        // Another datagram's first one says nothing.
        let other = cut(&whole, 10, 24).unwrap();
        assert_eq!(lost, node.take(other[1].clone(), IN).0);
        node.fares_as((client, service), (client, endpoint), IN);
    }
}

/// It may be the node's own, or belong to a direct exchange.
#[test]
fn a_tail_that_comes_first_passes_if_it_need_not_be_for_a_service() {
    for (is_v6, proto) in SHAPES {
        let mut node = Node::new(proto);
        let door = node.service(is_v6, 1, &[1]);
        node.world.own((door.ip(), door.port()), proto);
        let endpoint = SocketAddr::new(endpoint_addr(is_v6, 1), 8080);
        let client = client(is_v6, 1, 1000);
        for (from, to, enters) in [
            (client, door, IN),
            (client, endpoint, IN),
            (endpoint, client, OUT),
        ] {
            let pieces = pieces(&whole(proto, from, to, 9), 9);
            for piece in pieces.into_iter().skip(1).rev() {
                let passed = (Verdict::Pass, piece.clone());
                assert_eq!(passed, node.take(piece, enters));
            }
        }
        assert_eq!(0, node.counted(Counter::DropFragment));
        assert!(node.counted(Counter::PassFragment) > 0);
        // In order they are served there as well.
        node.fares_as((client, door), (client, endpoint), IN);
    }
}

#[test]
fn direct_exchanges_are_left_alone_in_every_order() {
    for (is_v6, proto) in SHAPES {
        let mut node = Node::new(proto);
        node.service(is_v6, 1, &[1]);
        let endpoint = SocketAddr::new(endpoint_addr(is_v6, 1), 8080);
        // From a port that is served, and from one that is not.
        let other = SocketAddr::new(endpoint.ip(), 9);
        let client = client(is_v6, 1, 1000);
        for (from, to, enters) in [
            (client, endpoint, IN),
            (endpoint, client, OUT),
            (other, client, OUT),
            (client, other, IN),
        ] {
            for order in [[0, 1, 2, 3], [3, 0, 2, 1]] {
                let pieces = pieces(&whole(proto, from, to, 9), 9);
                for n in order {
                    let passed = (Verdict::Pass, pieces[n].clone());
                    assert_eq!(passed, node.take(pieces[n].clone(), enters));
                }
            }
        }
        assert_eq!(0, fragments(&node));
    }
}

/// How many datagrams' first fragments are known.
fn fragments(node: &Node) -> usize {
    let tables = &node.world.tables;
    tables.v4.fragments.len() + tables.v6.fragments.len()
}

/// Identifications are used again, within the time of an entry if a sender is busy.
#[test]
fn a_direct_datagram_is_not_taken_for_an_earlier_one_of_a_service() {
    for (is_v6, proto) in SHAPES {
        for port in [8080, 9] {
            let mut node = Node::new(proto);
            let service = node.service(is_v6, 1, &[1]);
            let endpoint = SocketAddr::new(endpoint_addr(is_v6, 1), 8080);
            let (one, two) = (client(is_v6, 1, 1000), client(is_v6, 1, 1001));
            node.fares_as((one, service), (one, endpoint), IN);
            node.fares_as((endpoint, one), (service, one), OUT);
            let from = SocketAddr::new(endpoint.ip(), port);
            for piece in pieces(&whole(proto, from, two, 0x1234), 0x1234) {
                let passed = (Verdict::Pass, piece.clone());
                assert_eq!(passed, node.take(piece, OUT));
            }
        }
    }
}

#[test]
fn an_identification_that_is_used_again_leads_where_the_new_datagram_goes() {
    for (is_v6, proto) in SHAPES {
        let mut node = Node::new(proto);
        let one = node.service(is_v6, 1, &[1]);
        let other = SocketAddr::new(one.ip(), 81);
        let served = (endpoint_addr(is_v6, 2), 8080);
        node.world.service((other.ip(), 81), proto, &[served]);
        let client = client(is_v6, 1, 1000);
        for (door, endpoint) in [(one, 1), (other, 2), (one, 1)] {
            let endpoint = SocketAddr::new(endpoint_addr(is_v6, endpoint), 8080);
            node.fares_as((client, door), (client, endpoint), IN);
        }
    }
}

#[test]
fn two_datagrams_may_come_at_the_same_time() {
    for (is_v6, proto) in SHAPES {
        let mut node = Node::new(proto);
        let one = node.service(is_v6, 1, &[1]);
        let other = SocketAddr::new(one.ip(), 81);
        let served = (endpoint_addr(is_v6, 2), 8080);
        node.world.service((other.ip(), 81), proto, &[served]);
        let client = client(is_v6, 1, 1000);
        let both = [(one, 1), (other, 2)].map(|(door, id)| {
            let whole = whole(proto, client, door, id);
            (node.take(whole.clone(), IN).1, pieces(&whole, id))
        });
        let mut out = [Vec::new(), Vec::new()];
        for n in 0..both[0].1.len() {
            for (which, (_, pieces)) in both.iter().enumerate() {
                out[which].push(node.take(pieces[n].clone(), IN).1);
            }
        }
        for ((expected, _), out) in both.iter().zip(&out) {
            assert_eq!(*expected, join(out).unwrap());
        }
    }
}

#[test]
fn a_first_fragment_counts_as_long_as_the_kernel_waits_for_the_others() {
    for (is_v6, limit) in [(false, 30), (true, 60)] {
        for (later, verdict) in [
            (limit, Verdict::Rewritten),
            (limit + 1, Verdict::Drop(Counter::DropFragment)),
        ] {
            let mut node = Node::new(Proto::UDP);
            let service = node.service(is_v6, 1, &[1]);
            let pieces = pieces(&whole(Proto::UDP, client(is_v6, 1, 1000), service, 3), 3);
            node.take(pieces[0].clone(), IN);
            node.later(later);
            assert_eq!(verdict, node.take(pieces[1].clone(), IN).0);
        }
    }
}

#[test]
fn what_belongs_to_something_else_does_not_follow() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::UDP);
        let service = node.service(is_v6, 1, &[1]);
        let from = client(is_v6, 1, 1000);
        let first = &pieces(&whole(Proto::UDP, from, service, 3), 3)[0];
        node.take(first.clone(), IN);
        let lost = Verdict::Drop(Counter::DropFragment);
        let tail = |from, proto, id| pieces(&whole(proto, from, service, id), id)[1].clone();
        assert_eq!(lost, node.take(tail(from, Proto::UDP, 4), IN).0);
        assert_eq!(lost, node.take(tail(from, Proto::TCP, 3), IN).0);
        let other = client(is_v6, 2, 1000);
        assert_eq!(lost, node.take(tail(other, Proto::UDP, 3), IN).0);
        // What leaves is not what comes.
        let out = node.take(tail(from, Proto::UDP, 3), OUT);
        assert_eq!(Verdict::Pass, out.0);
        let follows = node.take(tail(from, Proto::UDP, 3), IN);
        assert_eq!(Verdict::Rewritten, follows.0);
    }
}

#[test]
fn a_first_fragment_without_ports_is_dropped_if_it_is_for_a_service() {
    for (is_v6, proto) in SHAPES {
        for is_own in [false, true] {
            let mut node = Node::new(proto);
            let service = node.service(is_v6, 1, &[1]);
            if is_own {
                node.world.own((service.ip(), service.port()), proto);
            }
            let whole = whole(proto, client(is_v6, 1, 1000), service, 3);
            // So little that TCP's header ends with its numbers, and UDP's before its length.
            let len = if proto == Proto::UDP { 4 } else { 16 };
            let first = &mut cut(&whole, 3, 16).unwrap()[0];
            first.truncate(first.len() - 16 + len);
            let (field, headers) = if is_v6 { (18, 8) } else { (16, 20) };
            let total = (headers + len) as u16;
            first[field..field + 2].copy_from_slice(&total.to_be_bytes());
            let verdict = if is_own {
                Verdict::Pass
            } else {
                Verdict::Drop(Counter::DropFragmentHead)
            };
            // What a device pads the frame with is no header.
            for padding in [0, 40] {
                let mut first = first.clone();
                first.resize(first.len() + padding, 0);
                assert_eq!((verdict, first.clone()), node.take(first, IN));
                assert_eq!(0, node.halves(Tier::HalfOpen));
            }
        }
    }
}

#[test]
fn fragments_of_other_protocols_pass() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::UDP);
        let service = node.service(is_v6, 1, &[1]);
        let mut bytes = whole(Proto::UDP, client(is_v6, 1, 1000), service, 3);
        bytes[if is_v6 { 20 } else { 23 }] = if is_v6 { 58 } else { 1 };
        for piece in cut(&bytes, 3, 24).unwrap().into_iter().rev() {
            assert_eq!((Verdict::Pass, piece.clone()), node.take(piece, IN));
        }
        assert_eq!(0, fragments(&node));
    }
}

/// Its checksum covers the whole association's packet, of which nobody here knows the length.
#[test]
fn an_association_in_fragments_keeps_its_ports_or_is_dropped() {
    for is_v6 in [false, true] {
        for (port, verdict) in [
            (80, Verdict::Rewritten),
            (8080, Verdict::Drop(Counter::DropFragmentHead)),
        ] {
            let mut node = Node::new(Proto::SCTP);
            let service = SocketAddr::new(vip(is_v6, 1), 80);
            let endpoint = (endpoint_addr(is_v6, 1), port);
            node.world
                .service((service.ip(), 80), Proto::SCTP, &[endpoint]);
            let client = client(is_v6, 1, 1000);
            let whole = frame(Proto::SCTP, client, service, SYN);
            let mut out = Vec::new();
            for piece in cut(&whole, 3, 16).unwrap() {
                let (said, bytes) = node.take(piece, IN);
                assert_eq!(verdict, said);
                out.push(bytes);
            }
            if port == 80 {
                let to = SocketAddr::new(endpoint.0, 80);
                assert_eq!((client, to), addresses(&join(&out).unwrap()));
                let back = frame(Proto::SCTP, to, client, SYN_ACK);
                for piece in cut(&back, 3, 24).unwrap() {
                    assert_eq!(Verdict::Rewritten, node.take(piece, OUT).0);
                }
            }
        }
    }
}
