//! IPv6 extension headers, and IPv4 options.

use std::vec;

use super::*;
use crate::datapath::memory::pieces::{cut, extended, join};

/// A header of this protocol, of so many units of 8 bytes beyond the first.
fn header(proto: u8, units: u8) -> (u8, Vec<u8>) {
    let mut header = vec![0; 8 * (usize::from(units) + 1)];
    // In an authentication header, units of 4 bytes beyond the first two.
    header[1] = if proto == 51 { units * 2 } else { units };
    (proto, header)
}

/// A routing header with so many stations to come.
fn routing(left: u8) -> (u8, Vec<u8>) {
    let (proto, mut bytes) = header(43, 2);
    bytes[3] = left;
    (proto, bytes)
}

fn endpoint() -> SocketAddr {
    SocketAddr::new(endpoint_addr(true, 1), 8080)
}

/// Sends packets both ways through a Service with these headers in them: whether they are
/// translated, and then as they would be without.
fn are_translated(proto: Proto, headers: &[(u8, Vec<u8>)]) -> bool {
    let mut node = Node::new(proto);
    let service = node.service(true, 1, &[1]);
    let client = client(true, 1, 1000);
    let mut said = Vec::new();
    for (from, to, tcp, enters, after) in [
        (client, service, SYN, true, (client, endpoint())),
        (endpoint(), client, SYN_ACK, false, (service, client)),
    ] {
        let bytes = extended(&frame(proto, from, to, tcp), headers).unwrap();
        let (verdict, out) = node.take(bytes.clone(), enters);
        if verdict == Verdict::Rewritten {
            let plain = frame(proto, after.0, after.1, tcp);
            assert_eq!(extended(&plain, headers).unwrap(), out);
        } else {
            assert_eq!((Verdict::Pass, bytes), (verdict, out));
            // What only leaves is not tried where nothing came in.
            return false;
        }
        said.push(verdict);
    }
    said.len() == 2
}

#[test]
fn headers_are_passed_over_and_stay_as_they_are() {
    for proto in [Proto::UDP, Proto::TCP, Proto::SCTP] {
        for headers in [
            vec![header(0, 0)],
            vec![header(60, 0)],
            vec![
                header(0, 0),
                header(60, 3),
                routing(0),
                header(51, 1),
                header(60, 0),
            ],
            // The most, and the longest.
            vec![header(60, 255); 6],
            // All of a datagram after all (RFC 6946).
            vec![header(0, 0), header(44, 0), header(60, 0)],
        ] {
            assert!(are_translated(proto, &headers), "{headers:?}");
        }
    }
}

#[test]
fn what_cannot_be_passed_over_is_left_alone() {
    for headers in [
        vec![header(60, 0); 7],
        // The checksum is made for another destination (RFC 8200, 8.1).
        vec![routing(1)],
        vec![header(0, 0), routing(2), header(60, 0)],
        // Encrypted, mobility, nothing at all, and for experiments.
        vec![header(50, 1)],
        vec![header(135, 0)],
        vec![header(59, 0)],
        vec![header(253, 0)],
    ] {
        assert!(!are_translated(Proto::UDP, &headers), "{headers:?}");
    }
}

/// Fragments of fragments nobody makes, nor a header too far behind to be told where.
#[test]
fn strange_fragment_headers_are_left_alone() {
    let more = |(proto, mut bytes): (u8, Vec<u8>)| {
        bytes[3] = 1;
        (proto, bytes)
    };
    for headers in [
        vec![more(header(44, 0)), header(44, 0)],
        vec![header(60, 255), more(header(44, 0))],
    ] {
        assert!(!are_translated(Proto::UDP, &headers), "{headers:?}");
    }
}

/// Headers before the fragment header are in every fragment, those behind it are part of what is
/// cut.
#[test]
fn fragments_may_have_headers_before_and_behind_theirs() {
    for outer in [vec![], vec![header(0, 1)], vec![header(60, 254)]] {
        for inner in [vec![], vec![header(60, 0)]] {
            let mut node = Node::new(Proto::UDP);
            let service = node.service(true, 1, &[1]);
            let client = client(true, 1, 1000);
            let whole = frame(Proto::UDP, client, service, SYN);
            let whole = extended(&whole, &inner).unwrap();
            let (_, expected) = node.take(whole.clone(), true);
            assert_eq!(endpoint().ip(), ends_of(&expected).1);
            let mut out = Vec::new();
            for piece in cut(&whole, 77, 16).unwrap() {
                let piece = extended(&piece, &outer).unwrap();
                let (verdict, bytes) = node.take(piece, true);
                assert_eq!(Verdict::Rewritten, verdict);
                out.push(bytes);
            }
            // Without what was put before it.
            let outer: Vec<_> = outer.iter().flat_map(|(_, bytes)| bytes).collect();
            for piece in &mut out {
                let next = if outer.is_empty() {
                    piece[20]
                } else {
                    piece[54]
                };
                piece[20] = next;
                piece.drain(54..54 + outer.len());
                let len = (piece.len() - 54) as u16;
                piece[18..20].copy_from_slice(&len.to_be_bytes());
            }
            assert_eq!(expected, join(&out).unwrap());
        }
    }
}

fn ends_of(bytes: &[u8]) -> (IpAddr, IpAddr) {
    ends(&SlicedPacket::from_ethernet(bytes).unwrap().net.unwrap())
}

/// What ends in the middle of a header is not read beyond its end.
#[test]
fn packets_that_are_cut_off_are_left_alone() {
    let mut node = Node::new(Proto::UDP);
    let service = node.service(true, 1, &[1]);
    let bytes = frame(Proto::UDP, client(true, 1, 1000), service, SYN);
    let bytes = extended(&bytes, &[header(0, 0), header(44, 0), header(60, 1)]).unwrap();
    let end = bytes.len() - b"payload".len();
    for len in 0..end {
        let cut_off = bytes[..len].to_vec();
        let passed = (Verdict::Pass, cut_off.clone());
        assert_eq!(passed, node.take(cut_off, true), "{len}");
    }
    assert_eq!(Verdict::Rewritten, node.take(bytes[..end].to_vec(), true).0);
}
