//! Clients that speak to an endpoint directly, beside Services that lead there.

use std::format;

use super::*;
use crate::abi::{Hook, State};
use crate::datapath::lifetime::{TCP_CLOSING, TCP_OPENING, UDP_REPLIED, UDP_UNREPLIED};

/// One of two flows from one client port to one endpoint.
#[derive(Clone, Copy, Debug)]
struct Lane {
    client: SocketAddr,
    /// What the client sends to.
    target: SocketAddr,
    endpoint: SocketAddr,
}

impl Lane {
    /// A packet of the client's; the port that the endpoint sees it come from.
    fn says(self, node: &mut Node, packet: Tcp) -> SocketAddr {
        let (from, to) = node.enters(self.client, self.target, packet).unwrap();
        assert_eq!(
            (self.client.ip(), self.endpoint),
            (from.ip(), to),
            "{self:?}"
        );
        from
    }

    /// The endpoint's answer to what came from there.
    fn hears(self, node: &mut Node, seen: SocketAddr, packet: Tcp) {
        let answer = node.leaves(self.endpoint, seen, packet);
        assert_eq!(Ok((self.target, self.client)), answer, "{self:?}");
    }

    fn connects(self, node: &mut Node) -> SocketAddr {
        let seen = self.says(node, SYN);
        self.hears(node, seen, SYN_ACK);
        self.talks(node, seen);
        seen
    }

    fn talks(self, node: &mut Node, seen: SocketAddr) {
        assert_eq!(seen, self.says(node, ACK), "{self:?}");
        self.hears(node, seen, REPLY);
    }

    fn closes(self, node: &mut Node, seen: SocketAddr) {
        assert_eq!(seen, self.says(node, FIN));
        self.hears(node, seen, tcp("FA", 901, 102));
    }
}

fn lanes(node: &mut Node, is_v6: bool) -> (Lane, Lane) {
    let service = node.service(is_v6, 1, &[1]);
    let endpoint = SocketAddr::new(endpoint_addr(is_v6, 1), 8080);
    let lane = |target| Lane {
        client: client(is_v6, 1, 40_000),
        target,
        endpoint,
    };
    (lane(service), lane(endpoint))
}

/// The first flow has said so much when the second one opens.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    Opened,
    Answered,
    Talking,
    /// And was not heard of again.
    Dead,
}

#[test]
fn direct_and_service_flows_from_one_port_live_side_by_side_in_every_order() {
    for (is_v6, proto) in ALL {
        for direct_first in [false, true] {
            for before in [
                Before::Opened,
                Before::Answered,
                Before::Talking,
                Before::Dead,
            ] {
                let mut node = Node::new(proto);
                let (service, direct) = lanes(&mut node, is_v6);
                let (first, second) = if direct_first {
                    (direct, service)
                } else {
                    (service, direct)
                };
                let one = first.says(&mut node, SYN);
                if before != Before::Opened {
                    first.hears(&mut node, one, SYN_ACK);
                }
                if before == Before::Talking || before == Before::Dead {
                    first.talks(&mut node, one);
                }
                if before == Before::Dead {
                    node.later(if proto == Proto::TCP { 10_000 } else { 100 });
                }
                let two = second.connects(&mut node);
                let what = format!("{proto:?}, {first:?}, {before:?}");
                assert_eq!(first.client, one, "{what}");
                assert_ne!(one, two, "{what}");
                for _ in 0..10 {
                    if before == Before::Opened || before == Before::Answered {
                        first.hears(&mut node, one, SYN_ACK);
                    }
                    if before != Before::Dead {
                        first.talks(&mut node, one);
                    }
                    second.talks(&mut node, two);
                    node.later(3);
                }
                // Opened again, whether repeated or forged, each stays where it is.
                assert_eq!(two, second.says(&mut node, SYN), "{what}");
                assert_eq!(one, first.says(&mut node, SYN), "{what}");
                second.talks(&mut node, two);
                first.talks(&mut node, one);
            }
        }
    }
}

/// Whoever sends them: they change nothing in what is open, whether it goes through a Service, or
/// directly, or directly from another port.
#[test]
fn forged_openings_harm_no_open_flow() {
    for (is_v6, proto) in ALL {
        for (has_service, has_direct) in [(true, false), (false, true), (true, true)] {
            let mut node = Node::new(proto);
            let (service, direct) = lanes(&mut node, is_v6);
            let open: Vec<_> = [(has_service, service), (has_direct, direct)]
                .into_iter()
                .filter(|(is_open, _)| *is_open)
                .map(|(_, lane)| (lane, lane.connects(&mut node)))
                .collect();
            node.later(5);
            for (lane, seen) in &open {
                lane.talks(&mut node, *seen);
            }
            for _ in 0..3 {
                service.says(&mut node, SYN);
                direct.says(&mut node, SYN);
                node.later(1);
                for (lane, seen) in &open {
                    lane.talks(&mut node, *seen);
                }
            }
            // No state bit was changed by what was not theirs.
            let tables = node.tables();
            let states = tables.v4.flows.values().map(|flow| flow.state.marks);
            let states = states.chain(tables.v6.flows.values().map(|flow| flow.state.marks));
            for marks in states {
                assert_eq!(State::REPLIED, marks.state());
            }
        }
    }
}

#[test]
fn a_direct_flow_gets_its_own_port_back_when_it_opens_again_and_that_is_free() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let (service, direct) = lanes(&mut node, is_v6);
        let one = service.connects(&mut node);
        let two = direct.connects(&mut node);
        assert_ne!(one, two);
        if proto.connects() {
            direct.closes(&mut node, two);
            // The other one is still open.
            let again = direct.connects(&mut node);
            assert_ne!(one, again);
            service.talks(&mut node, one);
            service.closes(&mut node, one);
            direct.talks(&mut node, again);
            direct.closes(&mut node, again);
        }
        node.later(UDP_REPLIED + 1);
        assert_eq!(direct.client, direct.connects(&mut node));
        node.later(2);
        direct.talks(&mut node, direct.client);
        // Nothing is left of what it had before: the Service's client half, and the note.
        let mut kept = node.kinds();
        kept.sort_unstable_by_key(|kind| kind.0);
        assert_eq!([Kind::DNAT, Kind::PASS], *kept);
    }
}

#[test]
fn segments_in_the_middle_of_direct_connections_are_not_looked_for() {
    let mut node = Node::new(Proto::TCP);
    let (_, direct) = lanes(&mut node, false);
    for packet in [ACK, FIN, RST, SYN_ACK] {
        assert_eq!(direct.client, direct.says(&mut node, packet));
    }
    assert_eq!(0, node.halves(Tier::HalfOpen));
    direct.says(&mut node, SYN);
    assert_eq!(1, node.halves(Tier::HalfOpen));
}

#[test]
fn a_pod_that_serves_is_a_client_from_its_other_ports() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        node.service(is_v6, 1, &[1, 2]);
        let own = SocketAddr::new(endpoint_addr(is_v6, 1), 50_000);
        let other = SocketAddr::new(endpoint_addr(is_v6, 2), 9000);
        for packet in [SYN, ACK] {
            assert_eq!(Ok((own, other)), node.enters(own, other, packet));
            assert_eq!(Ok((own, other)), node.leaves(own, other, packet));
            assert_eq!(Ok((other, own)), node.enters(other, own, packet));
        }
        assert_eq!(0, node.halves(Tier::HalfOpen));
    }
}

#[test]
fn a_direct_flow_holds_its_port_as_long_as_conntrack_would() {
    // What the endpoint says, and how long after that the port is taken.
    let tcp: [(&[Tcp], u32); 4] = [
        (&[], TCP_OPENING),
        (&[SYN_ACK], TCP_OPENING),
        (&[SYN_ACK, REPLY], 24 * 3600),
        (&[SYN_ACK, REPLY, tcp("FA", 901, 102)], TCP_CLOSING),
    ];
    let udp: [(&[Tcp], u32); 2] = [(&[], UDP_UNREPLIED), (&[REPLY], UDP_REPLIED)];
    let tcp = tcp.iter().map(|row| (Proto::TCP, row));
    let udp = udp.iter().map(|row| (Proto::UDP, row));
    for (proto, (answers, seconds)) in tcp.chain(udp) {
        for (later, is_taken) in [(*seconds, true), (*seconds + 1, false)] {
            let mut node = Node::new(proto);
            let (service, direct) = lanes(&mut node, false);
            direct.says(&mut node, SYN);
            for answer in *answers {
                direct.hears(&mut node, direct.client, *answer);
            }
            node.later(later);
            let seen = service.says(&mut node, SYN);
            assert_eq!(
                is_taken,
                seen != service.client,
                "{proto:?}, {} answers, {later} s",
                answers.len()
            );
        }
    }
}

#[test]
fn an_endpoints_reset_frees_a_direct_port_at_once() {
    let mut node = Node::new(Proto::TCP);
    let (service, direct) = lanes(&mut node, true);
    direct.connects(&mut node);
    direct.hears(&mut node, direct.client, tcp("R", 901, 0));
    assert_eq!(service.client, service.says(&mut node, SYN));
}

/// A flood of openings pushes out the half-open tier.
#[test]
fn direct_flows_that_go_on_keep_their_notes_through_a_flood() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let (service, direct) = lanes(&mut node, is_v6);
        direct.connects(&mut node);
        assert_eq!(0, node.halves(Tier::Established), "one that just began");
        for _ in 0..3 {
            node.later(4);
            direct.talks(&mut node, direct.client);
        }
        assert_eq!(
            (1, 0),
            (node.halves(Tier::Established), node.halves(Tier::HalfOpen))
        );
        // Repeated openings and datagrams leave it there.
        direct.says(&mut node, SYN);
        assert_eq!(
            (1, 0),
            (node.halves(Tier::Established), node.halves(Tier::HalfOpen))
        );
        let seen = service.connects(&mut node);
        assert_ne!(direct.client, seen);
        direct.talks(&mut node, direct.client);
    }
}

#[test]
fn datagrams_alone_keep_a_direct_flow() {
    let mut node = Node::new(Proto::UDP);
    let (service, direct) = lanes(&mut node, false);
    for _ in 0..10 {
        direct.says(&mut node, SYN);
        node.later(UDP_UNREPLIED - 5);
    }
    assert_ne!(service.client, service.says(&mut node, SYN));
    assert_eq!(1, node.counted(Counter::Direct));
}

/// The trace says that it may be there, and it is not.
#[test]
fn a_trace_without_a_flow_changes_nothing() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let (service, direct) = lanes(&mut node, is_v6);
        service.connects(&mut node);
        direct.connects(&mut node);
        node.lose(Hook::INGRESS);
        node.lose(Hook::EGRESS);
        assert_eq!(direct.client, direct.says(&mut node, ACK));
        let seen = service.connects(&mut node);
        if proto == Proto::TCP {
            assert_eq!(service.client, seen);
        }
    }
}
