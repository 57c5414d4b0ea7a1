//! What stands in the table after its flow is over, or without its other half.

use super::super::verdict::Step;
use super::super::work::{Part, Work, run};
use super::*;
use crate::abi::flow::FlowKey as _;
use crate::abi::{Hook, State, V4, V6};
use crate::datapath::memory::Stored;
use crate::net::Port;
use crate::net::tcp::Flags;

impl Node {
    /// An answer whose lookup found nothing, although there is something.
    fn repairs_reply(&mut self, endpoint: SocketAddr, seen: SocketAddr) {
        let (sport, dport) = (Port::new(endpoint.port()), Port::new(seen.port()));
        let step = match (endpoint.ip(), seen.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let addrs = (&from.into(), &to.into());
                self.repairs::<V4>(addrs, (sport, dport))
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let addrs = (&from.into(), &to.into());
                self.repairs::<V6>(addrs, (sport, dport))
            }
            _ => unreachable!("both addresses are of one family"),
        };
        assert!(step == Step::REWRITE);
    }

    fn repairs<F: Stored>(&mut self, addrs: (&F::Addr, &F::Addr), ports: (Port, Port)) -> Step {
        let mut work = Work::<F>::empty();
        work.key.fill(addrs, ports, self.proto, Hook::EGRESS);
        work.event.proto = self.proto;
        work.event.now = self.tables().now;
        run(self.tables(), Part::RepairReply, &mut work)
    }
}

fn close(node: &mut Node, client: SocketAddr, service: SocketAddr, endpoint: SocketAddr) {
    node.enters(client, service, FIN).unwrap();
    node.leaves(endpoint, client, FIN).unwrap();
}

/// The client's port is free again for another destination, the endpoint's own address.
#[test]
fn a_direct_connection_after_the_end_of_a_service_one_is_left_alone() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::TCP);
        let service = node.service(is_v6, 1, &[1]);
        let client = client(is_v6, 1, 40_000);
        let endpoint = node.connect(client, service);
        close(&mut node, client, service, endpoint);
        for seconds in [1, 100, 100_000] {
            node.later(seconds);
            assert_eq!(
                Ok((endpoint, client)),
                node.leaves(endpoint, client, SYN_ACK),
                "{seconds}"
            );
            assert_eq!(
                Ok((endpoint, client)),
                node.leaves(endpoint, client, REPLY),
                "{seconds}"
            );
        }
    }
}

#[test]
fn a_direct_datagram_after_the_time_of_a_service_one_is_left_alone() {
    let mut node = Node::new(Proto::UDP);
    let service = node.service(false, 1, &[1]);
    let client = client(false, 1, 40_000);
    let endpoint = node.connect(client, service);
    node.later(1_000);
    assert_eq!(Ok((endpoint, client)), node.leaves(endpoint, client, REPLY));
}

#[test]
fn a_second_direct_connection_from_the_same_port_keeps_its_note() {
    let mut node = Node::new(Proto::TCP);
    let service = node.service(false, 1, &[1]);
    let endpoint = SocketAddr::new(endpoint_addr(false, 1), 8080);
    let client = client(false, 1, 40_000);
    node.leaves(endpoint, client, SYN_ACK).unwrap();
    node.leaves(endpoint, client, FIN).unwrap();
    node.later(10);
    node.leaves(endpoint, client, SYN_ACK).unwrap();
    node.leaves(endpoint, client, REPLY).unwrap();
    let (from, _) = node.enters(client, service, SYN).unwrap();
    assert_ne!(client.port(), from.port());
    assert_eq!(Ok((endpoint, client)), node.leaves(endpoint, client, REPLY));
}

#[test]
fn an_idle_direct_connection_keeps_its_port() {
    let mut node = Node::new(Proto::TCP);
    let service = node.service(false, 1, &[1]);
    let endpoint = SocketAddr::new(endpoint_addr(false, 1), 8080);
    let client = client(false, 1, 40_000);
    node.leaves(endpoint, client, SYN_ACK).unwrap();
    node.leaves(endpoint, client, REPLY).unwrap();
    node.later(120);
    node.enters(client, service, SYN).unwrap();
    assert_eq!(Ok((endpoint, client)), node.leaves(endpoint, client, REPLY));
}

/// The client's half was pushed out; the client opens again from the same port, same endpoint.
#[test]
fn a_connection_whose_clients_half_was_lost_is_established_again() {
    let mut node = Node::new(Proto::TCP);
    let service = node.service(false, 1, &[1]);
    let client = client(false, 1, 40_000);
    node.connect(client, service);
    node.lose(Hook::INGRESS);
    node.later(100);
    node.connect(client, service);
    node.enters(client, service, ACK).unwrap();
    node.later(5);
    node.leaves(
        SocketAddr::new(endpoint_addr(false, 1), 8080),
        client,
        REPLY,
    )
    .unwrap();
    node.enters(client, service, ACK).unwrap();
    assert_eq!(2, node.halves(Tier::Established));
    assert_eq!(0, node.halves(Tier::HalfOpen));
}

#[test]
fn a_hairpin_that_moves_to_another_endpoint_leaves_nothing() {
    let mut node = Node::new(Proto::UDP);
    let service = node.service(false, 1, &[1]);
    let endpoint = SocketAddr::new(endpoint_addr(false, 1), 8080);
    let client = SocketAddr::new(endpoint.ip(), 40_000);
    node.enters(client, service, SYN).unwrap();
    assert_eq!(4, node.halves(Tier::HalfOpen));
    node.remove_endpoint(endpoint.ip());
    let service = node.service(false, 1, &[2]);
    node.enters(client, service, SYN).unwrap();
    assert_eq!(2, node.halves(Tier::HalfOpen));
}

/// One half in each tier, then the end, then reuse.
#[test]
fn halves_in_two_tiers_end_together() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        let client = client(is_v6, 1, 40_000);
        let endpoint = node.connect(client, service);
        node.lose(Hook::EGRESS);
        node.leaves(endpoint, client, REPLY).unwrap();
        node.later(5);
        node.enters(client, service, ACK).unwrap();
        let n = node.halves(Tier::Established) + node.halves(Tier::HalfOpen);
        assert_eq!(2, n);
    }
}

/// A UDP flow with a rewritten port chooses again.
#[test]
fn a_udp_flow_with_another_port_lives_idles_and_begins_again() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::UDP);
        let one = node.service(is_v6, 1, &[1]);
        let two = node.service(is_v6, 2, &[1]);
        let client = client(is_v6, 1, 40_000);
        node.enters(client, one, SYN).unwrap();
        let (from, ep) = node.enters(client, two, SYN).unwrap();
        node.leaves(ep, from, SYN_ACK).unwrap();
        for _ in 0..200 {
            node.later(2);
            node.enters(client, one, SYN).unwrap();
            let (from2, ep) = node.enters(client, two, SYN).unwrap();
            assert_eq!(from, from2);
            assert_eq!(Ok((two, client)), node.leaves(ep, from2, SYN));
            assert_eq!(Ok((one, client)), node.leaves(ep, client, SYN));
        }
        node.later(500);
        let (from3, ep) = node.enters(client, two, SYN).unwrap();
        assert_eq!(Ok((two, client)), node.leaves(ep, from3, SYN));
        let (from4, ep) = node.enters(client, one, SYN).unwrap();
        assert_ne!(from3, from4);
        assert_eq!(Ok((one, client)), node.leaves(ep, from4, SYN));
        assert_eq!(Ok((two, client)), node.leaves(ep, from3, SYN));
        assert_eq!(
            4,
            node.halves(Tier::Established) + node.halves(Tier::HalfOpen)
        );
    }
}

/// TCP reuse where one service's closed entry holds the endpoint's side.
#[test]
fn what_a_closed_flow_held_is_free_for_the_next() {
    let mut node = Node::new(Proto::TCP);
    let one = node.service(false, 1, &[1]);
    let two = node.service(false, 2, &[1]);
    let client = client(false, 1, 40_000);
    let ep = node.connect(client, one);
    close(&mut node, client, one, ep);
    assert_eq!(ep, node.connect(client, two));
    // a late FIN of the first, and its reopening
    node.enters(client, one, FIN).ok();
    assert_eq!(Ok((two, client)), node.leaves(ep, client, REPLY));
    let (from, to) = node.enters(client, one, SYN).unwrap();
    assert_eq!(ep, to);
    assert_ne!(client.port(), from.port());
    assert_eq!(Ok((one, client)), node.leaves(ep, from, SYN_ACK));
    assert_eq!(Ok((two, client)), node.leaves(ep, client, REPLY));
    assert_eq!(ep, node.enters(client, two, ACK).unwrap().1);
}

/// Late packets of a closed flow whose endpoint's side has passed to another Service.
#[test]
fn late_packets_of_a_closed_flow_do_not_mark_its_heir() {
    let mut node = Node::new(Proto::TCP);
    let one = node.service(false, 1, &[1]);
    let two = node.service(false, 2, &[1]);
    let client = client(false, 1, 40_000);
    let ep = node.connect(client, one);
    close(&mut node, client, one, ep);
    node.connect(client, two);
    // RST for the old connection, as a client's stack sends to late data.
    node.enters(client, one, RST).ok();
    node.enters(client, one, FIN).ok();
    // The heir lives: a forged SYN does not move it, no state bit is set.
    let bits: Vec<_> = node
        .tables()
        .v4
        .flows
        .iter()
        .filter(|(key, _)| key.hook == Hook::EGRESS)
        .map(|(_, flow)| flow.state.marks.state())
        .collect();
    assert_eq!([State::REPLIED], *bits);
}

/// An answer that looked for its flow while that moved between the tiers: were it taken for one of
/// no flow, the flow's half would be retired, and with another port never found again.
#[test]
fn an_answer_that_finds_no_flow_asks_again_before_it_is_repaired() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::TCP);
        let one = node.service(is_v6, 1, &[1]);
        let two = node.service(is_v6, 2, &[1]);
        let client = client(is_v6, 1, 40_000);
        node.connect(client, one);
        let endpoint = node.connect(client, two);
        let (seen, _) = node.enters(client, two, ACK).unwrap();
        assert_ne!(client, seen);
        let before = node.kinds().len();
        node.repairs_reply(endpoint, seen);
        assert_eq!(before, node.kinds().len());
        assert_eq!(0, node.counted(Counter::Direct));
        assert_eq!(Ok((two, client)), node.leaves(endpoint, seen, REPLY));
    }
}

/// A datagram that looked for its flow while it moved between the tiers.
#[test]
fn a_packet_that_finds_no_flow_asks_again_before_it_opens_one() {
    for proto in [Proto::UDP, Proto::TCP] {
        let is_v6 = false;
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let client = client(is_v6, 1, 40_000);
        let endpoint = node.connect(client, service);
        node.later(3);
        node.enters(client, service, ACK).unwrap();
        assert_eq!(2, node.halves(Tier::Established));
        let key = *node
            .tables()
            .v4
            .flows
            .keys()
            .find(|key| key.hook == Hook::INGRESS)
            .unwrap();
        for _ in 0..20 {
            let mut work = Work::<V4>::empty();
            work.key = key;
            work.event.proto = proto;
            work.event.flags = Flags::SYN;
            work.event.now = node.tables().now;
            let step = run(node.tables(), Part::Miss, &mut work);
            assert!(step == Step::REWRITE);
            assert_eq!(endpoint.ip(), IpAddr::from(work.change.addr));
        }
        assert_eq!(0, node.halves(Tier::HalfOpen));
    }
}
