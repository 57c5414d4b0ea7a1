//! Packets that go to no endpoint.

use std::vec;

use super::*;
use crate::abi::Empty;
use crate::datapath::memory::pieces::cut;
use Origin::{Inside, Outside};

const REJECT: u32 = Settings::with_hz(250).reject_mark;

#[test]
fn where_there_is_no_endpoint_the_origin_says_what_happens() {
    for (is_v6, proto) in ALL {
        for (inside, outside) in [
            (Empty::Reject, Empty::Drop),
            (Empty::Drop, Empty::Reject),
            (Empty::Pass, Empty::Reject),
            (Empty::Drop, Empty::Pass),
        ] {
            let mut node = Node::new(proto);
            let service = node.service(is_v6, 1, &[]);
            node.detect();
            node.flag(service, FrontendFlags::if_empty(Inside, inside));
            node.flag(service, FrontendFlags::if_empty(Outside, outside));
            for (n, empty) in [(2, inside), (1, outside)] {
                let client = client(is_v6, n, 1000);
                let (outcome, mark) = match empty {
                    Empty::Drop => (Err(Counter::DropNoEndpoint), 0),
                    Empty::Reject => (Err(Counter::Reject), REJECT),
                    Empty::Pass => (Ok((client, service)), 0),
                };
                for _ in 0..2 {
                    assert_eq!(outcome, node.enters(client, service, SYN));
                    assert_eq!(mark, node.marked());
                }
            }
            assert_eq!(0, node.halves(Tier::HalfOpen));
            let passed = [inside, outside].contains(&Empty::Pass);
            assert_eq!(passed, node.counted(Counter::PassNoFrontend) > 0);
        }
    }
}

/// What conntrack calls INVALID is not rejected by kube-proxy either.
#[test]
fn only_what_begins_something_is_rejected() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::TCP);
        let service = node.service(is_v6, 1, &[]);
        node.flag(service, FrontendFlags::if_empty(Outside, Empty::Reject));
        node.world.whole(
            service.ip(),
            FrontendFlags::if_empty(Outside, Empty::Reject),
        );
        let client = client(is_v6, 1, 1000);
        let closed = SocketAddr::new(service.ip(), 81);
        for (packet, begins) in [
            (SYN, true),
            (ACK, true),
            (SYN_ACK, false),
            (FIN, false),
            (RST, false),
        ] {
            let (to_service, to_closed) = if begins {
                (Err(Counter::Reject), Err(Counter::Reject))
            } else {
                (Err(Counter::DropInvalid), Ok((client, closed)))
            };
            assert_eq!(to_service, node.enters(client, service, packet));
            assert_eq!(to_closed, node.enters(client, closed, packet));
        }
        node.tables().settings.tcp_loose = 0;
        assert_eq!(Ok((client, closed)), node.enters(client, closed, ACK));
    }
}

#[test]
fn a_flow_that_is_known_goes_on_when_its_service_has_lost_all_endpoints() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::TCP);
        let service = node.service(is_v6, 1, &[1]);
        let client = client(is_v6, 1, 1000);
        let endpoint = node.connect(client, service);
        node.flag(service, FrontendFlags::if_empty(Outside, Empty::Reject));
        node.change(service, |frontend| {
            frontend.inside = crate::abi::EndpointSet::EMPTY;
            frontend.outside = crate::abi::EndpointSet::EMPTY;
        });
        assert_eq!(Ok((client, endpoint)), node.enters(client, service, ACK));
        assert_eq!(0, node.marked());
        let other = SocketAddr::new(client.ip(), 1001);
        assert_eq!(Err(Counter::Reject), node.enters(other, service, SYN));
    }
}

#[test]
fn a_port_that_no_service_has_is_rejected_where_the_whole_address_is() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        let other = node.service(is_v6, 2, &[1]);
        let whole = FrontendFlags::if_empty(Inside, Empty::Reject)
            .with(FrontendFlags::if_empty(Outside, Empty::Drop));
        node.world.whole(service.ip(), whole);
        node.detect();
        let (pod, stranger) = (client(is_v6, 2, 1000), client(is_v6, 1, 1000));
        let closed = SocketAddr::new(service.ip(), 81);
        assert_eq!(Err(Counter::Reject), node.enters(pod, closed, SYN));
        assert_eq!(REJECT, node.marked());
        assert_eq!(
            Err(Counter::DropNoEndpoint),
            node.enters(stranger, closed, SYN)
        );
        // The port that is there, and an address of which nothing is said.
        assert!(node.enters(pod, service, SYN).is_ok());
        assert_eq!(0, node.marked());
        let passed = SocketAddr::new(other.ip(), 81);
        assert_eq!(Ok((pod, passed)), node.enters(pod, passed, SYN));
    }
}

/// A pod that has reached itself is answered at its Service's address, and there at its own port.
#[test]
fn the_lost_way_back_of_a_hairpin_is_not_rejected() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        node.world.whole(
            service.ip(),
            FrontendFlags::if_empty(Outside, Empty::Reject),
        );
        let endpoint = SocketAddr::new(endpoint_addr(is_v6, 1), 8080);
        let client = SocketAddr::new(endpoint.ip(), 1000);
        node.enters(client, service, SYN).unwrap();
        node.lose_kind(Kind::UNSNAT);
        let back = SocketAddr::new(service.ip(), 1000);
        assert_eq!(Ok((endpoint, client)), node.enters(endpoint, back, SYN_ACK));
    }
}

/// Whatever the protocol; what could only be an answer passes, and of what is in pieces all but the
/// first: conntrack puts it together.
#[test]
fn other_protocols_are_rejected_with_the_whole_address() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::UDP);
        let service = node.service(is_v6, 1, &[1]);
        let (number, message, echo, answer) = if is_v6 {
            (20, 54, 128, 129)
        } else {
            (23, 34, 8, 0)
        };
        let icmp = if is_v6 { Proto::ICMPV6 } else { Proto::ICMP };
        let bytes = |proto: u8, kind: u8| {
            let mut bytes = frame(Proto::UDP, client(is_v6, 1, 1000), service, SYN);
            bytes[number] = proto;
            bytes[message] = kind;
            bytes
        };
        let sends = |bytes: Vec<u8>, node: &mut Node| {
            let mut packet = MemoryPacket::frame(bytes.clone()).marked(OTHER_MARK);
            let room = &mut MemoryRoom::default();
            let verdict = ingress(&mut packet, node.tables(), room, eth::LEN);
            assert_eq!(bytes, packet.bytes());
            (verdict, packet.mark_of() & !OTHER_MARK)
        };
        assert_eq!((Verdict::Pass, 0), sends(bytes(icmp.0, echo), &mut node));
        node.world.whole(
            service.ip(),
            FrontendFlags::if_empty(Outside, Empty::Reject),
        );
        for (proto, kind) in [(icmp.0, echo), (47, 0), (4, 0)] {
            assert_eq!(
                (Verdict::Rejected, REJECT),
                sends(bytes(proto, kind), &mut node)
            );
        }
        let mut passes = vec![bytes(icmp.0, answer), bytes(icmp.0, 3)];
        let mut pieces = cut(&bytes(47, 0), 7, 8).unwrap();
        assert_eq!(
            (Verdict::Rejected, REJECT),
            sends(pieces.remove(0), &mut node)
        );
        passes.extend(pieces);
        // Cut short: nobody can say which port it is for.
        let mut short = bytes(Proto::UDP.0, 0);
        short.truncate(message + 4);
        passes.push(short);
        for bytes in passes {
            assert_eq!((Verdict::Pass, 0), sends(bytes, &mut node));
        }
    }
}

#[test]
fn sources_outside_the_ranges_are_dropped_before_anything_else_is_decided() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let full = node.service(is_v6, 1, &[1]);
        let empty = node.service(is_v6, 2, &[]);
        let open = node.service(is_v6, 3, &[1]);
        node.detect();
        let bits = if is_v6 { 128 } else { 32 };
        for service in [full, empty] {
            node.flag(service, FrontendFlags::FILTERED);
            node.flag(service, FrontendFlags::if_empty(Outside, Empty::Reject));
            node.flag(service, FrontendFlags::if_empty(Inside, Empty::Pass));
        }
        // The first client, and the fourth and the fifth. Nobody to the third Service, which asks
        // nobody.
        for service in [1, 2] {
            node.world.source(service, client_addr(is_v6, 1), bits);
            node.world.source(service, client_addr(is_v6, 4), bits - 1);
        }
        let dropped = Err(Counter::DropSourceRange);
        for (n, may) in [
            (1, true),
            (2, false),
            (3, false),
            (4, true),
            (5, true),
            (6, false),
        ] {
            let client = client(is_v6, n, 1000);
            assert_eq!(may, node.enters(client, full, SYN).is_ok(), "{n}");
            let expected = if may { Err(Counter::Reject) } else { dropped };
            assert_eq!(expected, node.enters(client, empty, SYN), "{n}");
            assert!(node.enters(client, open, SYN).is_ok());
        }
        assert_eq!(6, node.counted(Counter::DropSourceRange));
    }
}

/// As conntrack has it: what was let in once stays.
#[test]
fn only_the_first_packet_of_a_flow_is_held_against_the_ranges() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::TCP);
        let service = node.service(is_v6, 1, &[1]);
        let client = client(is_v6, 1, 1000);
        let endpoint = node.connect(client, service);
        node.flag(service, FrontendFlags::FILTERED);
        assert_eq!(Ok((client, endpoint)), node.enters(client, service, ACK));
        let other = SocketAddr::new(client.ip(), 1001);
        let dropped = Err(Counter::DropSourceRange);
        assert_eq!(dropped, node.enters(other, service, SYN));
    }
}
