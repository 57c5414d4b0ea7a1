//! Frontends at the node's own addresses, from whose ports the node speaks to others as well.

use super::*;
use crate::datapath::lifetime::{self, may_go};

/// A node, a Service at one of its addresses, and somebody else.
fn own(is_v6: bool, proto: Proto) -> (Node, SocketAddr, SocketAddr) {
    let mut node = Node::new(proto);
    let door = node.service(is_v6, 1, &[1, 2]);
    node.world.own((door.ip(), door.port()), proto);
    (node, door, client(is_v6, 1, 443))
}

/// Whether a packet that comes in is left alone.
fn passes(node: &mut Node, from: SocketAddr, to: SocketAddr, tcp: Tcp) -> bool {
    node.enters(from, to, tcp) == Ok((from, to))
}

fn leaves(node: &mut Node, from: SocketAddr, to: SocketAddr, tcp: Tcp) {
    assert_eq!(Ok((from, to)), node.leaves(from, to, tcp));
}

#[test]
fn what_answers_the_node_is_left_alone() {
    for (is_v6, proto) in ALL {
        let (mut node, own, peer) = own(is_v6, proto);
        leaves(&mut node, own, peer, SYN);
        for (there, back) in [(SYN_ACK, ACK), (REPLY, ACK), (REPLY, ACK)] {
            assert!(passes(&mut node, peer, own, there));
            leaves(&mut node, own, peer, back);
        }
        // As long as it goes on, and in the tier that no flood reaches.
        for _ in 0..20 {
            node.later(lifetime::REFRESH_TCP + 1);
            leaves(&mut node, own, peer, ACK);
            assert!(passes(&mut node, peer, own, REPLY));
        }
        let (established, half_open) =
            (node.halves(Tier::Established), node.halves(Tier::HalfOpen));
        assert_eq!((2, 0), (established, half_open));
        assert_eq!(1, node.counted(Counter::PassOwn));
        // Others are served meanwhile.
        assert!(!passes(&mut node, client(is_v6, 2, 443), own, SYN));
    }
}

/// What comes in alone, while the node listens, keeps the note as well.
#[test]
fn a_note_is_kept_by_what_comes_in() {
    for (is_v6, proto) in ALL {
        let (mut node, own, peer) = own(is_v6, proto);
        leaves(&mut node, own, peer, SYN);
        passes(&mut node, peer, own, SYN_ACK);
        leaves(&mut node, own, peer, ACK);
        let step = if proto == Proto::TCP { 3600 } else { 100 };
        for _ in 0..30 {
            node.later(step);
            assert!(passes(&mut node, peer, own, REPLY));
        }
    }
}

/// The note may be lost, as everything in the tables; without it a connection is not opened.
#[test]
fn the_middle_of_an_unknown_connection_to_the_node_is_left_alone_and_searched_once() {
    for (is_v6, proto) in ALL.into_iter().filter(|(_, proto)| proto.connects()) {
        let (mut node, own, peer) = own(is_v6, proto);
        for packet in [SYN_ACK, ACK, FIN] {
            assert!(passes(&mut node, peer, own, packet));
        }
        assert_eq!(1, node.counted(Counter::PassOwn));
        assert_eq!([Kind::OWN], *node.kinds());
        // Nothing was seen to leave: who opens a connection from there is served.
        let (from, _) = node.enters(peer, own, SYN).unwrap();
        assert_eq!(peer, from);
        assert_eq!(1, node.counted(Counter::NewFlow));
        // A reset is nobody's last packet but one.
        assert!(passes(&mut node, client(is_v6, 2, 443), own, RST));
        assert_eq!(1, node.counted(Counter::PassOwn));
    }
}

/// Elsewhere nobody but a client sends to a frontend.
#[test]
fn at_other_addresses_the_middle_of_a_connection_is_still_a_clients() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::TCP);
        let service = node.service(is_v6, 1, &[1, 2]);
        let client = client(is_v6, 1, 443);
        let invalid = Err(Counter::DropInvalid);
        assert_eq!(invalid, node.enters(client, service, SYN_ACK));
        assert!(!passes(&mut node, client, service, ACK));
    }
}

#[test]
fn each_of_the_two_notes_is_rebuilt_from_the_other() {
    for (is_v6, proto) in ALL {
        for lost in [Kind::OWN, Kind::PASS] {
            let (mut node, own, peer) = own(is_v6, proto);
            leaves(&mut node, own, peer, SYN);
            passes(&mut node, peer, own, SYN_ACK);
            leaves(&mut node, own, peer, ACK);
            node.lose_kind(lost);
            assert!(passes(&mut node, peer, own, REPLY));
            leaves(&mut node, own, peer, ACK);
            let mut kinds = node.kinds();
            kinds.sort_by_key(|kind| kind.0);
            assert_eq!(
                [Kind::PASS, Kind::OWN],
                *kinds,
                "{proto:?} without {lost:?}"
            );
        }
    }
}

#[test]
fn an_old_note_gives_way_to_who_opens_a_flow_and_to_no_other() {
    for (is_v6, proto) in ALL {
        let (mut node, own, peer) = own(is_v6, proto);
        leaves(&mut node, own, peer, SYN);
        passes(&mut node, peer, own, SYN_ACK);
        leaves(&mut node, own, peer, ACK);
        let limit = match proto {
            Proto::TCP => lifetime::TCP_ESTABLISHED,
            Proto::UDP => lifetime::UDP_REPLIED,
            _ => lifetime::SCTP_ESTABLISHED,
        };
        node.later(limit);
        assert!(proto == Proto::UDP || passes(&mut node, peer, own, SYN));
        node.later(limit + 1);
        if proto.connects() {
            assert!(passes(&mut node, peer, own, REPLY));
            node.later(limit + 1);
        }
        let (from, endpoint) = node.enters(peer, own, SYN).unwrap();
        assert_eq!(peer, from);
        assert_eq!(Ok((own, peer)), node.leaves(endpoint, peer, SYN_ACK));
        let mut kinds = node.kinds();
        kinds.sort_by_key(|kind| kind.0);
        assert_eq!([Kind::DNAT, Kind::UNDNAT], *kinds);
    }
}

/// A client was served from there long ago; now the node itself speaks to it.
#[test]
fn what_is_left_of_a_services_flow_gives_way_to_the_node() {
    for (is_v6, proto) in ALL {
        let (mut node, own, peer) = own(is_v6, proto);
        node.connect(peer, own);
        node.later(lifetime::TCP_ESTABLISHED + 1);
        leaves(&mut node, own, peer, SYN);
        assert!(passes(&mut node, peer, own, SYN_ACK));
    }
}

/// Where packets leave by two devices, as by a bond, the second sees the Service's answer as it
/// is sent.
#[test]
fn a_services_own_answer_leaves_no_note() {
    for (is_v6, proto) in ALL {
        let (mut node, own, peer) = own(is_v6, proto);
        let (_, endpoint) = node.enters(peer, own, SYN).unwrap();
        for _ in 0..2 {
            let (from, to) = node.leaves(endpoint, peer, SYN_ACK).unwrap();
            assert_eq!((own, peer), (from, to));
            leaves(&mut node, from, to, SYN_ACK);
            assert_eq!(Ok((peer, endpoint)), node.enters(peer, own, ACK));
            // The client's half is lost: it is rebuilt, and no note taken.
            node.lose_kind(Kind::DNAT);
            let (from, to) = node.leaves(endpoint, peer, REPLY).unwrap();
            leaves(&mut node, from, to, REPLY);
            assert_eq!(Ok((peer, endpoint)), node.enters(peer, own, ACK));
        }
        assert_eq!(0, node.counted(Counter::PassOwn));
        assert_eq!(2, node.kinds().len());
    }
}

#[test]
fn other_ports_of_the_node_leave_no_notes() {
    for (is_v6, proto) in ALL {
        let (mut node, own, peer) = own(is_v6, proto);
        let other = SocketAddr::new(own.ip(), 22);
        leaves(&mut node, other, peer, SYN);
        assert!(passes(&mut node, peer, other, SYN_ACK));
        assert!(node.kinds().is_empty());
    }
}

#[test]
fn notes_are_swept_when_they_are_over() {
    for (is_v6, proto) in ALL {
        let (mut node, own, peer) = own(is_v6, proto);
        leaves(&mut node, own, peer, SYN);
        passes(&mut node, peer, own, SYN_ACK);
        leaves(&mut node, own, peer, ACK);
        let now = node.tables().now;
        for half in node.states() {
            let tier = Tier::HalfOpen;
            assert!(!may_go(proto, tier, &half, now + 100, false));
            assert!(may_go(proto, tier, &half, now + 86_401, false));
        }
    }
}
