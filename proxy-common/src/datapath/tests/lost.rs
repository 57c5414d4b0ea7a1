//! Live flows of which the table has lost one half: whoever speaks next, nothing is reset, nothing
//! moves.

use std::format;

use super::*;
use crate::datapath::lifetime;

/// A flow through a Service, of another pod or of the endpoint itself.
struct Flow {
    client: SocketAddr,
    service: SocketAddr,
    /// The endpoint, and where it sees the client.
    endpoint: SocketAddr,
    seen: SocketAddr,
}

impl Flow {
    /// A packet of the client's on its way through both hooks.
    fn asks(&self, node: &mut Node, packet: Tcp) {
        assert_eq!(
            Ok((self.seen, self.endpoint)),
            there(node, self.client, self.service, packet)
        );
    }

    /// A packet of the endpoint's on its way back.
    fn answers(&self, node: &mut Node, packet: Tcp) {
        let (from, to) = node.enters(self.endpoint, self.seen, packet).unwrap();
        assert_eq!(
            Ok((self.service, self.client)),
            node.leaves(from, to, packet)
        );
    }
}

fn there(node: &mut Node, client: SocketAddr, service: SocketAddr, packet: Tcp) -> Outcome {
    let (from, to) = node.enters(client, service, packet)?;
    node.leaves(from, to, packet)
}

/// Opens a flow that has come as far as this tier.
fn open(node: &mut Node, is_v6: bool, is_hairpin: bool, tier: Tier) -> Flow {
    // A pod that reaches itself must be the only endpoint, or it might reach another.
    let endpoints: &[u32] = if is_hairpin {
        &[1]
    } else {
        &[1, 2, 3, 4, 5, 6]
    };
    let service = node.service(is_v6, 1, endpoints);
    let client = if is_hairpin {
        SocketAddr::new(endpoint_addr(is_v6, 1), 40_000)
    } else {
        client(is_v6, 1, 40_000)
    };
    let (seen, endpoint) = there(node, client, service, SYN).unwrap();
    let flow = Flow {
        client,
        service,
        endpoint,
        seen,
    };
    flow.answers(node, SYN_ACK);
    if tier == Tier::Established {
        node.later(3);
        flow.asks(node, ACK);
        flow.answers(node, REPLY);
    }
    let halves = if is_hairpin { 4 } else { 2 };
    assert_eq!(halves, node.halves(tier));
    flow
}

/// Every family, protocol, path and tier, and every half of each.
fn every_loss(mut check: impl FnMut(&mut Node, &Flow, Kind, &str)) {
    for (is_v6, proto) in ALL {
        for is_hairpin in [false, true] {
            for tier in [Tier::Established, Tier::HalfOpen] {
                for kind in [Kind::DNAT, Kind::UNDNAT, Kind::SNAT, Kind::UNSNAT] {
                    if !is_hairpin && (kind == Kind::SNAT || kind == Kind::UNSNAT) {
                        continue;
                    }
                    // A UDP flow of less than two seconds begins anew.
                    if (proto, tier, kind) == (Proto::UDP, Tier::HalfOpen, Kind::DNAT) {
                        continue;
                    }
                    let mut node = Node::new(proto);
                    let flow = open(&mut node, is_v6, is_hairpin, tier);
                    let what = format!("{proto:?}, v6 {is_v6}, {tier:?}, {kind:?}");
                    check(&mut node, &flow, kind, &what);
                }
            }
        }
    }
}

#[test]
fn either_half_may_be_lost_whichever_side_speaks_first() {
    for client_first in [true, false] {
        every_loss(|node, flow, kind, what| {
            let before = node.kinds().len();
            node.lose_kind(kind);
            for _ in 0..3 {
                if client_first {
                    flow.asks(node, ACK);
                }
                flow.answers(node, REPLY);
                flow.asks(node, ACK);
                node.later(1);
            }
            assert_eq!(before, node.kinds().len(), "{what}: all are there again");
            for counter in [Counter::Loose, Counter::Repick, Counter::Direct] {
                assert_eq!(0, node.counted(counter), "{what}: {}", counter.name());
            }
            assert_eq!(1, node.counted(Counter::NewFlow), "{what}");
            // And as good as the ones that were lost.
            node.later(5);
            flow.asks(node, ACK);
            flow.answers(node, REPLY);
            assert_eq!(before, node.halves(Tier::Established), "{what}");
        });
    }
}

#[test]
fn halves_may_be_lost_by_turns_for_as_long_as_a_flow_lives() {
    every_loss(|node, flow, kind, _| {
        for round in 0..20 {
            node.lose_kind(if round % 2 == 0 { kind } else { Kind::UNDNAT });
            flow.answers(node, REPLY);
            flow.asks(node, ACK);
            node.later(5);
            flow.asks(node, ACK);
            flow.answers(node, REPLY);
        }
        assert_eq!(1, node.counted(Counter::NewFlow));
    });
}

/// What was rebuilt knows what the flow has been through.
#[test]
fn a_rebuilt_half_inherits_the_state() {
    every_loss(|node, flow, kind, what| {
        let (state, proof) = node.state_of(if kind == Kind::DNAT {
            Kind::UNDNAT
        } else {
            Kind::DNAT
        });
        node.lose_kind(kind);
        // In the same second, so that nothing is refreshed.
        if kind == Kind::DNAT || kind == Kind::SNAT {
            flow.asks(node, tcp("A", 101, 4711));
        } else {
            flow.answers(node, SYN_ACK);
        }
        assert_eq!((state, proof), node.state_of(kind), "{what}");
    });
}

/// The end of a connection, said by both sides or by one.
fn ends(node: &mut Node, flow: &Flow, by_reset: bool) {
    if by_reset {
        flow.asks(node, RST);
    } else {
        flow.asks(node, FIN);
        flow.answers(node, tcp("FA", 901, 102));
    }
}

/// A late packet must not bring back what is over, whichever way it goes, and a refresh must not
/// either. But it finds its way, so that neither side hears from a stranger.
#[test]
fn late_packets_find_their_way_by_what_is_left_and_nothing_is_rebuilt() {
    for by_reset in [false, true] {
        every_loss(|node, flow, kind, what| {
            if node.proto == Proto::UDP {
                return;
            }
            ends(node, flow, by_reset);
            node.lose_kind(kind);
            for late in [FIN, RST, tcp("FA", 901, 102)] {
                // Who sends on after its RST did not send that RST.
                flow.asks(node, if by_reset { RST } else { late });
                flow.answers(node, late);
            }
            assert!(!node.kinds().contains(&kind), "{what}");
            node.later(5);
            flow.asks(node, RST);
            flow.answers(node, RST);
            assert!(!node.kinds().contains(&kind), "{what}");
            for counter in [Counter::Repaired, Counter::Loose, Counter::Direct] {
                assert_eq!(0, node.counted(counter), "{what}: {}", counter.name());
            }
        });
    }
}

/// What is older than the table keeps it leads nowhere.
#[test]
fn what_is_over_for_long_leads_no_packet() {
    every_loss(|node, flow, kind, what| {
        if node.proto != Proto::TCP || kind != Kind::DNAT {
            return;
        }
        ends(node, flow, false);
        node.lose_kind(kind);
        node.later(lifetime::TCP_TIME_WAIT + 1);
        let late = node.enters(flow.client, flow.service, FIN);
        assert_eq!(Err(Counter::DropInvalid), late, "{what}");
    });
}

/// A side that has said FIN still listens, for as long as the other has something to say.
#[test]
fn a_connection_that_is_closed_by_one_side_is_rebuilt() {
    every_loss(|node, flow, kind, what| {
        if node.proto != Proto::TCP {
            return;
        }
        let before = node.kinds().len();
        flow.asks(node, FIN);
        node.lose_kind(kind);
        for _ in 0..20 {
            flow.answers(node, REPLY);
            flow.asks(node, tcp("A", 102, 950));
            node.later(5);
        }
        assert_eq!(before, node.kinds().len(), "{what}");
        assert_eq!(1, node.counted(Counter::NewFlow), "{what}");
        assert_eq!(0, node.counted(Counter::Loose), "{what}");
    });
}

/// The endpoint left while the client's half was lost: a datagram does not follow the other half.
#[test]
fn a_udp_flow_is_not_rebuilt_to_an_endpoint_that_is_gone() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::UDP);
        let flow = open(&mut node, is_v6, false, Tier::Established);
        node.lose_kind(Kind::DNAT);
        node.remove_endpoint(flow.endpoint.ip());
        let moved = (0..50).find_map(|_| there(&mut node, flow.client, flow.service, ACK).ok());
        assert_ne!(flow.endpoint, moved.unwrap().1);
    }
}

/// Over a large Service a lost client's half is not searched for.
#[test]
fn a_service_with_more_endpoints_than_are_asked_begins_anew() {
    let mut node = Node::new(Proto::TCP);
    let endpoints: Vec<_> = (1..=65).collect();
    let service = node.service(false, 1, &endpoints);
    let client = client(false, 1, 40_000);
    node.connect(client, service);
    node.lose_kind(Kind::DNAT);
    node.enters(client, service, ACK).unwrap();
    assert_eq!(0, node.counted(Counter::Repaired));
    assert_eq!(1, node.counted(Counter::Loose));
}
