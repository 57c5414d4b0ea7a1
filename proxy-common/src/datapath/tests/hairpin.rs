//! A pod that reaches itself through a Service.

use super::*;

/// A connection of the first endpoint to the Service that it serves; its packets from hook to hook.
fn round_trip(node: &mut Node, client: SocketAddr, service: SocketAddr, endpoint: SocketAddr) {
    for (there, back) in [(SYN, SYN_ACK), (ACK, REPLY), (ACK, REPLY)] {
        let (from, to) = node.enters(client, service, there).unwrap();
        assert_eq!((client.ip(), endpoint), (from.ip(), to));
        // Out by the door it came in by: with its own address as source the pod would drop it.
        let (from, to) = node.leaves(from, to, there).unwrap();
        assert_eq!((service.ip(), endpoint), (from.ip(), to));
        let (from, to) = node.enters(to, from, back).unwrap();
        assert_eq!((endpoint, client.ip()), (from, to.ip()));
        assert_eq!((service, client), node.leaves(from, to, back).unwrap());
    }
}

#[test]
fn a_pod_reaches_itself_through_its_service() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        let endpoint = SocketAddr::new(endpoint_addr(is_v6, 1), 8080);
        let client = SocketAddr::new(endpoint.ip(), 40_000);
        round_trip(&mut node, client, service, endpoint);
        node.later(5);
        round_trip(&mut node, client, service, endpoint);
        let halves = node.halves(Tier::Established) + node.halves(Tier::HalfOpen);
        assert_eq!(4, halves);
    }
}

#[test]
fn two_services_from_one_port_to_oneself_live_side_by_side() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let one = node.service(is_v6, 1, &[1]);
        let two = node.service(is_v6, 2, &[1]);
        let endpoint = SocketAddr::new(endpoint_addr(is_v6, 1), 8080);
        let client = SocketAddr::new(endpoint.ip(), 40_000);
        round_trip(&mut node, client, one, endpoint);
        round_trip(&mut node, client, two, endpoint);
        round_trip(&mut node, client, one, endpoint);
    }
}

/// Client port and endpoint port are one: on the way out, request and answer have the same four
/// numbers.
#[test]
fn a_pod_reaches_itself_even_from_the_port_that_it_serves() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        let endpoint = SocketAddr::new(endpoint_addr(is_v6, 1), 8080);
        round_trip(&mut node, endpoint, service, endpoint);
    }
}
