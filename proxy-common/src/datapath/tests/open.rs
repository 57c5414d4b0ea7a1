//! First packets.

use super::*;

#[test]
fn a_first_packet_goes_to_an_endpoint_and_the_answer_comes_from_the_service() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1, 2, 3]);
        let client = client(is_v6, 1, 40_000);
        let (from, endpoint) = node.enters(client, service, SYN).unwrap();
        assert_eq!(client, from);
        assert_eq!(8080, endpoint.port());
        assert!((1..=3).any(|id| endpoint_addr(is_v6, id) == endpoint.ip()));
        assert_eq!(
            (service, client),
            node.leaves(endpoint, client, SYN_ACK).unwrap()
        );
        assert_eq!(1, node.counted(Counter::NewFlow));
    }
}

#[test]
fn later_packets_follow_the_first() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1, 2, 3, 4, 5, 6, 7, 8]);
        for port in 40_000..40_050 {
            let client = client(is_v6, 1, port);
            let first = node.enters(client, service, SYN).unwrap();
            for _ in 0..3 {
                assert_eq!(first, node.enters(client, service, ACK).unwrap());
            }
        }
        assert_eq!(50, node.counted(Counter::NewFlow));
    }
}

#[test]
fn every_endpoint_gets_flows() {
    let mut node = Node::new(Proto::UDP);
    let service = node.service(false, 1, &[1, 2, 3]);
    let mut seen = std::collections::HashSet::new();
    for port in 1000..1100 {
        seen.insert(node.enters(client(false, 1, port), service, SYN).unwrap().1);
    }
    assert_eq!(3, seen.len());
    let picks: u64 = node.tables().v4.picks.values().sum();
    assert_eq!(100, picks);
    // As often, by place in the set.
    let draws = &node.tables().draws;
    assert_eq!((3, 100), (draws.len(), draws.values().sum::<u64>()));
}

#[test]
fn a_service_without_endpoints_drops_and_an_unknown_port_passes() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[]);
        let client = client(is_v6, 1, 40_000);
        assert_eq!(
            Err(Counter::DropNoEndpoint),
            node.enters(client, service, SYN)
        );
        let closed = SocketAddr::new(service.ip(), 81);
        assert_eq!(Ok((client, closed)), node.enters(client, closed, SYN));
        assert_eq!(1, node.counted(Counter::PassNoFrontend));
        assert_eq!(0, node.halves(Tier::HalfOpen));
    }
}

/// Two Services that share an endpoint are two connections of one client port to one endpoint.
#[test]
fn a_client_port_that_is_taken_at_the_endpoint_is_rewritten_and_restored() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let one = node.service(is_v6, 1, &[1]);
        let two = node.service(is_v6, 2, &[1]);
        let client = client(is_v6, 1, 40_000);
        let (from_one, endpoint) = node.enters(client, one, SYN).unwrap();
        let (from_two, same) = node.enters(client, two, SYN).unwrap();
        assert_eq!(endpoint, same);
        assert_eq!(client, from_one);
        assert_eq!(client.ip(), from_two.ip());
        assert!((61_000..=65_535).contains(&from_two.port()), "{from_two}");
        assert_eq!(1, node.counted(Counter::PortRewritten));
        // Both ways, for both, as long as they last.
        for _ in 0..2 {
            assert_eq!(
                (one, client),
                node.leaves(endpoint, from_one, SYN_ACK).unwrap()
            );
            assert_eq!(
                (two, client),
                node.leaves(endpoint, from_two, SYN_ACK).unwrap()
            );
            assert_eq!((from_one, endpoint), node.enters(client, one, ACK).unwrap());
            assert_eq!((from_two, endpoint), node.enters(client, two, ACK).unwrap());
        }
    }
}

#[test]
fn a_port_freed_by_a_dead_flow_is_used_as_it_is() {
    let mut node = Node::new(Proto::TCP);
    let one = node.service(false, 1, &[1]);
    let two = node.service(false, 2, &[1]);
    let client = client(false, 1, 40_000);
    let endpoint = node.connect(client, one);
    node.enters(client, one, FIN).unwrap();
    node.leaves(endpoint, client, FIN).unwrap();
    assert_eq!(client, node.enters(client, two, SYN).unwrap().0);
    assert_eq!(
        (two, client),
        node.leaves(endpoint, client, SYN_ACK).unwrap()
    );
}

#[test]
fn a_set_that_was_handed_on_between_two_reads_is_not_used() {
    let mut node = Node::new(Proto::UDP);
    let service = node.service(false, 1, &[1, 2]);
    for slot in &mut node.tables().sets {
        slot.service = 99;
    }
    assert_eq!(
        Err(Counter::DropStale),
        node.enters(client(false, 1, 1000), service, SYN)
    );
}

#[test]
fn other_protocols_pass_untouched() {
    let mut node = Node::new(Proto::UDP);
    let service = node.service(false, 1, &[1]);
    let from = client(false, 1, 1000);
    let whole = frame(Proto::UDP, from, service, SYN);
    for (offset, value, counter) in [
        (23, Proto::SCTP.0, Counter::PassProtocol),
        (23, Proto::ICMP.0, Counter::PassProtocol),
    ] {
        let mut bytes = whole.clone();
        bytes[offset] = value;
        let mut packet = MemoryPacket::frame(bytes.clone());
        let room = &mut MemoryRoom::default();
        let verdict = ingress(&mut packet, node.tables(), room, eth::LEN);
        assert_eq!(Verdict::Pass, verdict);
        assert_eq!(bytes, packet.bytes());
        assert!(node.counted(counter) > 0);
    }
}

#[test]
fn frames_for_somebody_else_make_no_flow() {
    let mut node = Node::new(Proto::UDP);
    let service = node.service(false, 1, &[1]);
    let bytes = frame(Proto::UDP, client(false, 1, 1000), service, SYN);
    let mut packet = MemoryPacket::frame(bytes).seen_by([2, 0, 0, 0, 0, 9]);
    let room = &mut MemoryRoom::default();
    let verdict = ingress(&mut packet, node.tables(), room, eth::LEN);
    assert_eq!(Verdict::Pass, verdict);
    assert_eq!(0, node.halves(Tier::HalfOpen));
}
