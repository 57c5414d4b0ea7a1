//! Flows of which the table has lost a part, and packets of no flow.

use super::*;
use crate::abi::Hook;

#[test]
fn a_lost_clients_half_is_rebuilt_from_the_endpoints() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::TCP);
        let service = node.service(is_v6, 1, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let client = client(is_v6, 1, 40_000);
        let endpoint = node.connect(client, service);
        node.lose(Hook::INGRESS);
        assert_eq!(endpoint, node.enters(client, service, ACK).unwrap().1);
        assert_eq!(1, node.counted(Counter::Repaired));
        assert_eq!(2, node.halves(Tier::Established));
    }
}

#[test]
fn a_lost_endpoints_half_is_rebuilt_from_the_clients() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1, 2, 3]);
        let other = node.service(is_v6, 2, &[1, 2, 3]);
        let client = client(is_v6, 1, 40_000);
        let endpoint = node.connect(client, service);
        node.lose(Hook::EGRESS);
        assert_eq!(
            (service, client),
            node.leaves(endpoint, client, REPLY).unwrap()
        );
        assert_eq!(1, node.counted(Counter::Repaired));
        assert_ne!(service, other);
    }
}

#[test]
fn the_refresh_of_one_half_rebuilds_the_other() {
    let mut node = Node::new(Proto::TCP);
    let service = node.service(false, 1, &[1]);
    let client = client(false, 1, 40_000);
    node.connect(client, service);
    node.lose(Hook::EGRESS);
    node.enters(client, service, ACK).unwrap();
    assert_eq!(1, node.halves(Tier::Established));
    node.later(5);
    node.enters(client, service, ACK).unwrap();
    assert_eq!(2, node.halves(Tier::Established));
}

// B047
#[test]
fn packets_that_conntrack_calls_invalid_are_dropped_and_a_plain_segment_is_not() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::TCP);
        let service = node.service(is_v6, 1, &[1, 2]);
        for (port, packet) in [(1, RST), (2, FIN), (3, SYN_ACK), (4, tcp("", 5, 0))] {
            assert_eq!(
                Err(Counter::DropInvalid),
                node.enters(client(is_v6, 1, port), service, packet)
            );
        }
        assert_eq!(0, node.halves(Tier::HalfOpen));
        // nf_conntrack_tcp_loose: an endpoint that knows nothing of it answers with a reset.
        let stranger = client(is_v6, 1, 5);
        let (_, endpoint) = node.enters(stranger, service, ACK).unwrap();
        assert_eq!(
            (service, stranger),
            node.leaves(endpoint, stranger, RST).unwrap()
        );
        assert_eq!(1, node.counted(Counter::Loose));
        node.tables().settings.tcp_loose = 0;
        assert_eq!(
            Err(Counter::DropMidFlow),
            node.enters(client(is_v6, 1, 6), service, ACK)
        );
    }
}

#[test]
fn direct_traffic_of_an_endpoint_is_noted_once_and_left_alone() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        node.service(is_v6, 1, &[1]);
        let endpoint = SocketAddr::new(endpoint_addr(is_v6, 1), 8080);
        let client = client(is_v6, 1, 40_000);
        for _ in 0..3 {
            assert_eq!(Ok((endpoint, client)), node.leaves(endpoint, client, REPLY));
        }
        assert_eq!(1, node.counted(Counter::Direct));
        // What the endpoint's pod sends as somebody's client is not even that.
        let own = SocketAddr::new(endpoint.ip(), 50_000);
        assert_eq!(Ok((own, client)), node.leaves(own, client, SYN));
        assert_eq!(1, node.counted(Counter::Direct));
    }
}

#[test]
fn a_service_flow_beside_a_direct_one_from_the_same_port_gets_another_port() {
    let mut node = Node::new(Proto::TCP);
    let service = node.service(false, 1, &[1]);
    let endpoint = SocketAddr::new(endpoint_addr(false, 1), 8080);
    let client = client(false, 1, 40_000);
    node.leaves(endpoint, client, SYN_ACK).unwrap();
    let (from, to) = node.enters(client, service, SYN).unwrap();
    assert_eq!(endpoint, to);
    assert_ne!(client.port(), from.port());
    // Each hears its own.
    assert_eq!(
        (service, client),
        node.leaves(endpoint, from, SYN_ACK).unwrap()
    );
    assert_eq!(
        (endpoint, client),
        node.leaves(endpoint, client, REPLY).unwrap()
    );
}
