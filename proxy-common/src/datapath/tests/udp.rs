//! Datagrams: flows without beginning and end.

use super::*;
use crate::datapath::lifetime;

#[test]
fn a_udp_flow_leaves_an_endpoint_that_is_gone_at_its_next_packet_while_tcp_goes_on() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1, 2]);
        let client = client(is_v6, 1, 40_000);
        let endpoint = node.connect(client, service);
        node.remove_endpoint(endpoint.ip());
        // The set still lists it: what is drawn again must be drawn from what is alive.
        let mut moved = node.enters(client, service, ACK);
        for _ in 0..50 {
            if moved.is_ok() {
                break;
            }
            moved = node.enters(client, service, ACK);
        }
        let (_, now) = moved.unwrap();
        if proto.connects() {
            assert_eq!(endpoint, now);
        } else {
            assert_ne!(endpoint, now);
            // What the one that is gone still sends is not the new one's answer.
            assert_eq!(Ok((endpoint, client)), node.leaves(endpoint, client, REPLY));
            assert_eq!((service, client), node.leaves(now, client, REPLY).unwrap());
        }
    }
}

#[test]
fn an_idle_udp_flow_is_drawn_again_after_conntracks_timeouts() {
    for (answered, timeout) in [
        (false, lifetime::UDP_UNREPLIED),
        (true, lifetime::UDP_REPLIED),
    ] {
        let mut node = Node::new(Proto::UDP);
        let service = node.service(false, 1, &[1, 2, 3]);
        let client = client(false, 1, 5000);
        let (_, endpoint) = node.enters(client, service, SYN).unwrap();
        if answered {
            node.leaves(endpoint, client, REPLY).unwrap();
        }
        node.later(timeout);
        assert_eq!(endpoint, node.enters(client, service, SYN).unwrap().1);
        assert_eq!(0, node.counted(Counter::Repick));
        node.later(timeout + 1);
        node.enters(client, service, SYN).unwrap();
        assert_eq!(1, node.counted(Counter::Repick));
    }
}

#[test]
fn answers_alone_keep_a_udp_flow() {
    let mut node = Node::new(Proto::UDP);
    let service = node.service(true, 1, &[1, 2, 3]);
    let client = client(true, 1, 5000);
    let (_, endpoint) = node.enters(client, service, SYN).unwrap();
    for _ in 0..10 {
        node.later(lifetime::UDP_REPLIED / 3);
        assert_eq!(
            (service, client),
            node.leaves(endpoint, client, REPLY).unwrap()
        );
    }
    assert_eq!(endpoint, node.enters(client, service, SYN).unwrap().1);
    assert_eq!(0, node.counted(Counter::Repick));
}

#[test]
fn a_udp_flow_is_established_when_it_goes_on_answered_for_two_seconds() {
    let mut node = Node::new(Proto::UDP);
    let service = node.service(false, 1, &[1]);
    let client = client(false, 1, 5000);
    let (_, endpoint) = node.enters(client, service, SYN).unwrap();
    node.leaves(endpoint, client, REPLY).unwrap();
    node.enters(client, service, SYN).unwrap();
    assert_eq!(
        (0, 2),
        (node.halves(Tier::Established), node.halves(Tier::HalfOpen))
    );
    node.later(lifetime::UDP_PROVED + 1);
    node.enters(client, service, SYN).unwrap();
    assert_eq!(
        (2, 0),
        (node.halves(Tier::Established), node.halves(Tier::HalfOpen))
    );
    assert_eq!(
        (service, client),
        node.leaves(endpoint, client, REPLY).unwrap()
    );
}

/// The endpoint left and came back: the flow draws it again, with the generation it has now.
#[test]
fn a_udp_flow_that_draws_its_old_endpoint_again_stays_with_it() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::UDP);
        let service = node.service(is_v6, 1, &[1]);
        let client = client(is_v6, 1, 5000);
        let (_, endpoint) = node.enters(client, service, SYN).unwrap();
        let tables = node.tables();
        tables
            .v4
            .endpoints
            .values_mut()
            .for_each(|own| own.generation += 1);
        tables
            .v6
            .endpoints
            .values_mut()
            .for_each(|own| own.generation += 1);
        assert_eq!(endpoint, node.enters(client, service, SYN).unwrap().1);
        assert_eq!(1, node.counted(Counter::Repick));
        for _ in 0..5 {
            node.leaves(endpoint, client, REPLY).unwrap();
            node.enters(client, service, SYN).unwrap();
            node.later(3);
        }
        assert_eq!(1, node.counted(Counter::Repick));
        assert_eq!(2, node.halves(Tier::Established));
    }
}

/// Endpoints keep their generations when one of many frontends goes: only flows that lead there
/// end, and not later than they would be noted.
#[test]
fn a_udp_flow_ends_with_its_frontend_and_no_other_does() {
    for is_v6 in [false, true] {
        for is_taken_over in [false, true] {
            let mut node = Node::new(Proto::UDP);
            let lost = node.service(is_v6, 1, &[1]);
            let kept = node.service(is_v6, 2, &[2]);
            let client = client(is_v6, 1, 5000);
            let (_, endpoint) = node.enters(client, lost, SYN).unwrap();
            let (_, neighbour) = node.enters(client, kept, SYN).unwrap();
            node.leaves(endpoint, client, REPLY).unwrap();
            node.leaves(neighbour, client, REPLY).unwrap();
            let number = 1;
            if is_taken_over {
                node.service(is_v6, 1, &[3]);
            } else {
                let tables = node.tables();
                tables.v4.frontends.retain(|_, own| own.service != number);
                tables.v6.frontends.retain(|_, own| own.service != number);
            }
            node.later(lifetime::REFRESH_UDP + 1);
            let now = node.enters(client, lost, SYN).unwrap();
            if is_taken_over {
                assert_ne!((client, endpoint), now);
            } else {
                assert_eq!((client, lost), now);
            }
            assert_eq!((client, neighbour), node.enters(client, kept, SYN).unwrap());
        }
    }
}
