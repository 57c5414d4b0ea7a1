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
