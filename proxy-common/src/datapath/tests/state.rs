//! Connections: openings, retransmissions, ends, forgeries.

use super::*;

fn tiers(node: &mut Node) -> (usize, usize) {
    (node.halves(Tier::Established), node.halves(Tier::HalfOpen))
}

#[test]
fn a_connection_is_established_by_the_number_that_only_the_answer_told() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::TCP);
        let service = node.service(is_v6, 1, &[1]);
        let client = client(is_v6, 1, 40_000);
        let (_, endpoint) = node.enters(client, service, SYN).unwrap();
        node.leaves(endpoint, client, SYN_ACK).unwrap();
        assert_eq!((0, 2), tiers(&mut node));
        // Whoever forges the opening must guess the number.
        node.enters(client, service, tcp("A", 101, 4711)).unwrap();
        assert_eq!((0, 2), tiers(&mut node));
        node.enters(client, service, ACK).unwrap();
        assert_eq!((2, 0), tiers(&mut node));
    }
}

#[test]
fn a_connection_is_established_when_the_endpoint_speaks_beyond_its_syn() {
    let mut node = Node::new(Proto::TCP);
    let service = node.service(false, 1, &[1]);
    let client = client(false, 1, 40_000);
    let (_, endpoint) = node.enters(client, service, SYN).unwrap();
    node.leaves(endpoint, client, SYN_ACK).unwrap();
    node.leaves(endpoint, client, REPLY).unwrap();
    assert_eq!((2, 0), tiers(&mut node));
}

#[test]
fn a_reset_answer_establishes_nothing() {
    let mut node = Node::new(Proto::TCP);
    let service = node.service(false, 1, &[1]);
    let client = client(false, 1, 40_000);
    let (_, endpoint) = node.enters(client, service, SYN).unwrap();
    node.leaves(endpoint, client, RST).unwrap();
    assert_eq!((0, 2), tiers(&mut node));
}

#[test]
fn a_repeated_opening_keeps_its_endpoint() {
    let mut node = Node::new(Proto::TCP);
    let service = node.service(false, 1, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let client = client(false, 1, 40_000);
    let first = node.enters(client, service, SYN).unwrap();
    for _ in 0..20 {
        assert_eq!(first, node.enters(client, service, SYN).unwrap());
    }
    assert_eq!(1, node.counted(Counter::NewFlow));
}

#[test]
fn a_repeated_opening_leaves_an_endpoint_that_is_gone() {
    let mut node = Node::new(Proto::TCP);
    let service = node.service(false, 1, &[1]);
    let client = client(false, 1, 40_000);
    let (_, endpoint) = node.enters(client, service, SYN).unwrap();
    node.remove_endpoint(endpoint.ip());
    let service = node.service(false, 1, &[2]);
    let (_, now) = node.enters(client, service, SYN).unwrap();
    assert_eq!(endpoint_addr(false, 2), now.ip());
}

#[test]
fn a_forged_opening_does_not_move_a_live_connection() {
    let mut node = Node::new(Proto::TCP);
    let service = node.service(false, 1, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let client = client(false, 1, 40_000);
    let endpoint = node.connect(client, service);
    // Not even from an endpoint that takes no new flows any more.
    node.remove_endpoint(endpoint.ip());
    for _ in 0..20 {
        assert_eq!(endpoint, node.enters(client, service, SYN).unwrap().1);
    }
    assert_eq!(endpoint, node.enters(client, service, ACK).unwrap().1);
    assert_eq!(
        (service, client),
        node.leaves(endpoint, client, REPLY).unwrap()
    );
}

#[test]
fn a_port_that_is_used_again_after_the_end_draws_again() {
    let ends: [&[(bool, Tcp)]; 3] = [
        &[(true, FIN), (false, FIN)],
        &[(true, RST)],
        &[(false, RST)],
    ];
    for end in ends {
        let mut node = Node::new(Proto::TCP);
        let service = node.service(false, 1, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let client = client(false, 1, 40_000);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..40 {
            let endpoint = node.connect(client, service);
            seen.insert(endpoint);
            for (by_client, packet) in end {
                if *by_client {
                    node.enters(client, service, *packet).unwrap();
                } else {
                    node.leaves(endpoint, client, *packet).unwrap();
                }
            }
        }
        assert!(seen.len() > 4, "{}", seen.len());
        assert_eq!(39, node.counted(Counter::Repick));
        // Nothing is left of the connections before.
        assert!(node.halves(Tier::Established) + node.halves(Tier::HalfOpen) <= 4);
    }
}

#[test]
fn one_fin_alone_does_not_end_a_connection() {
    let mut node = Node::new(Proto::TCP);
    let service = node.service(false, 1, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let client = client(false, 1, 40_000);
    let endpoint = node.connect(client, service);
    node.enters(client, service, FIN).unwrap();
    assert_eq!(endpoint, node.enters(client, service, SYN).unwrap().1);
    assert_eq!(
        (service, client),
        node.leaves(endpoint, client, REPLY).unwrap()
    );
}

#[test]
fn a_forged_reset_is_undone_by_whoever_sends_on() {
    let mut node = Node::new(Proto::TCP);
    let service = node.service(false, 1, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let client = client(false, 1, 40_000);
    let endpoint = node.connect(client, service);
    node.enters(client, service, RST).unwrap();
    node.enters(client, service, ACK).unwrap();
    for _ in 0..20 {
        assert_eq!(endpoint, node.enters(client, service, SYN).unwrap().1);
    }
    // But what the endpoint had sent before it heard of a true one does not undo that.
    node.enters(client, service, RST).unwrap();
    node.leaves(endpoint, client, REPLY).unwrap();
    node.enters(client, service, SYN).unwrap();
    assert_eq!(1, node.counted(Counter::Repick));
}

#[test]
fn a_connection_of_a_service_that_is_gone_goes_on() {
    let mut node = Node::new(Proto::TCP);
    let service = node.service(false, 1, &[1]);
    let client = client(false, 1, 40_000);
    let endpoint = node.connect(client, service);
    node.tables().v4.frontends.clear();
    assert_eq!(endpoint, node.enters(client, service, ACK).unwrap().1);
    assert_eq!(
        (service, client),
        node.leaves(endpoint, client, REPLY).unwrap()
    );
    // An opening finds no Service and is left alone.
    assert_eq!(Ok((client, service)), node.enters(client, service, SYN));
}

#[test]
fn an_opening_to_a_service_of_another_number_draws_again() {
    let mut node = Node::new(Proto::TCP);
    let service = node.service(false, 1, &[1]);
    let client = client(false, 1, 40_000);
    node.enters(client, service, SYN).unwrap();
    let service = node.service(false, 1, &[2]);
    assert_eq!(
        endpoint_addr(false, 2),
        node.enters(client, service, SYN).unwrap().1.ip()
    );
}

/// Every opening draws once more when what was there is over, also from a set that has grown.
// B049
#[test]
fn reused_ports_are_balanced_over_endpoints_that_were_added() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::TCP);
        let service = node.service(is_v6, 1, &[1, 2]);
        let ports = 40_000..40_050;
        for port in ports.clone() {
            let client = client(is_v6, 1, port);
            let endpoint = node.connect(client, service);
            node.enters(client, service, FIN).unwrap();
            node.leaves(endpoint, client, tcp("FA", 901, 102)).unwrap();
        }
        let service = node.service(is_v6, 1, &[1, 2, 3, 4, 5, 6]);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..20 {
            for port in ports.clone() {
                let client = client(is_v6, 1, port);
                let endpoint = node.connect(client, service);
                *seen.entry(endpoint).or_insert(0) += 1;
                node.enters(client, service, RST).unwrap();
            }
        }
        // Of 1,000 draws; a sixth of them is 167, with a deviation of 12.
        assert_eq!(6, seen.len());
        assert!(seen.values().all(|count| *count >= 100), "{seen:?}");
    }
}

/// A terminating endpoint keeps its connections and gets no new ones, whatever the table remembers
/// of the client's port.
// B050
#[test]
fn an_opening_over_what_is_left_of_a_flow_goes_to_a_ready_endpoint() {
    for is_v6 in [false, true] {
        for is_closed in [true, false] {
            let mut node = Node::new(Proto::TCP);
            let service = node.service(is_v6, 1, &[1]);
            let client = client(is_v6, 1, 40_000);
            let (_, leaving) = node.enters(client, service, SYN).unwrap();
            if is_closed {
                node.leaves(leaving, client, SYN_ACK).unwrap();
                node.enters(client, service, ACK).unwrap();
                node.enters(client, service, RST).unwrap();
            }
            node.terminate(leaving.ip());
            let service = node.service(is_v6, 1, &[2]);
            let (_, ready) = node.enters(client, service, SYN).unwrap();
            assert_eq!(endpoint_addr(is_v6, 2), ready.ip(), "closed: {is_closed}");
        }
    }
}

#[test]
fn a_connection_to_a_terminating_endpoint_goes_on_and_its_opening_may_be_repeated() {
    let mut node = Node::new(Proto::TCP);
    let service = node.service(false, 1, &[1, 2, 3]);
    let client = client(false, 1, 40_000);
    let (_, endpoint) = node.enters(client, service, SYN).unwrap();
    node.leaves(endpoint, client, SYN_ACK).unwrap();
    node.terminate(endpoint.ip());
    for packet in [SYN, ACK, SYN, ACK] {
        assert_eq!(endpoint, node.enters(client, service, packet).unwrap().1);
    }
}

/// All packets of a connection go where its SYN went, also if the one before was given up.
// B047
#[test]
fn a_port_used_again_after_an_opening_ran_out_follows_its_new_opening() {
    for is_v6 in [false, true] {
        let mut seen = std::collections::HashSet::new();
        let mut node = Node::new(Proto::TCP);
        let service = node.service(is_v6, 1, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let client = client(is_v6, 1, 40_000);
        for _ in 0..30 {
            let (_, endpoint) = node.enters(client, service, SYN).unwrap();
            for packet in [SYN, ACK, ACK] {
                assert_eq!(endpoint, node.enters(client, service, packet).unwrap().1);
            }
            seen.insert(endpoint);
            node.later(61);
        }
        assert!(seen.len() > 3, "{}", seen.len());
        assert_eq!(29, node.counted(Counter::Repick));
    }
}

/// A node that gets a connection in its middle: whoever gets the segment resets it, and the port
/// can be used again at once.
// B053
#[test]
fn after_a_segment_of_an_unknown_connection_the_port_opens_a_new_one() {
    for is_v6 in [false, true] {
        for loose in [0, 1] {
            let mut node = Node::new(Proto::TCP);
            node.tables().settings.tcp_loose = loose;
            let service = node.service(is_v6, 1, &[1, 2, 3]);
            let client = client(is_v6, 1, 40_000);
            match node.enters(client, service, ACK) {
                Ok((_, stranger)) => assert_eq!(
                    Ok((service, client)),
                    node.leaves(stranger, client, tcp("R", 901, 0))
                ),
                Err(reason) => assert_eq!((0, Counter::DropMidFlow), (loose, reason)),
            }
            let endpoint = node.connect(client, service);
            assert_eq!(endpoint, node.enters(client, service, ACK).unwrap().1);
        }
    }
}

/// The SYN that came too early leaves nothing behind.
// B052
#[test]
fn an_opening_that_was_too_early_is_translated_when_it_is_repeated() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = SocketAddr::new(vip(is_v6, 1), 80);
        let client = client(is_v6, 1, 40_000);
        assert_eq!(Ok((client, service)), node.enters(client, service, SYN));
        node.service(is_v6, 1, &[1]);
        node.connect(client, service);
    }
}
