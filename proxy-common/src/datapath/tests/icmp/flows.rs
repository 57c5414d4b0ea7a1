//! Whose errors are translated, and into what.

use super::*;

/// Both forms of a flow, in all families and protocols.
fn each(mut check: impl FnMut(bool, Flow)) {
    for (is_v6, proto) in ALL {
        check(is_v6, Flow::new(is_v6, proto));
        check(is_v6, Flow::with_another_port(is_v6, proto));
    }
}

#[test]
fn every_error_about_a_request_is_about_the_service_to_its_client() {
    each(|is_v6, mut flow| {
        let (quote, after) = (flow.request().bytes(), flow.sent().bytes());
        for kind in if is_v6 { &ERRORS6[..] } else { &ERRORS4 } {
            let mut message = too_big(router(is_v6), &flow.request());
            message.kind = *kind;
            flow.node
                .becomes(false, &message.frame(&quote), &message.frame(&after));
        }
    });
}

/// The client's socket takes an error from whoever sends it, but a strict firewall may not.
#[test]
fn an_endpoint_that_reports_is_the_service_to_its_client() {
    each(|_, mut flow| {
        let before = too_big(flow.endpoint.ip(), &flow.request());
        let after = from(&before, flow.service);
        let (before, after) = (
            before.frame(&flow.request().bytes()),
            after.frame(&flow.sent().bytes()),
        );
        flow.node.becomes(false, &before, &after);
    });
}

#[test]
fn every_error_about_an_answer_goes_to_the_endpoint() {
    each(|is_v6, mut flow| {
        let (quote, after) = (flow.received().bytes(), flow.answer().bytes());
        for sender in [router(is_v6), flow.client.ip()] {
            for kind in if is_v6 { &ERRORS6[..] } else { &ERRORS4 } {
                let mut message = too_big(sender, &flow.received());
                message.kind = *kind;
                let there = to(&message, flow.endpoint);
                flow.node
                    .becomes(true, &message.frame(&quote), &there.frame(&after));
            }
        }
    });
}

#[test]
fn what_is_no_error_is_left_alone() {
    each(|is_v6, mut flow| {
        for kind in if is_v6 { &OTHERS6 } else { &OTHERS4 } {
            for quote in [flow.request(), flow.received()] {
                let mut message = too_big(router(is_v6), &quote);
                message.kind = *kind;
                flow.node.leaves_alone(&message.frame(&quote.bytes()));
            }
        }
    });
}

/// Its packets have four halves, and so have its errors: both ways pass both hooks.
fn errors_of_a_hairpin(mut flow: Flow) {
    let is_v6 = flow.client.is_ipv6();
    let itself = SocketAddr::new(flow.service.ip(), flow.seen.port());
    // Who it is to the endpoint, in the stack, and to the client.
    let there = Quote::new(flow.node.proto, itself, flow.endpoint);
    let between = [flow.request(), flow.answer()];
    // The endpoint reports, of a port that nobody listens at.
    for sender in [flow.endpoint.ip(), router(is_v6)] {
        let message = too_big(sender, &there);
        let inside = to(&message, flow.client);
        let (before, after) = (
            message.frame(&there.bytes()),
            inside.frame(&between[0].bytes()),
        );
        flow.node.becomes(true, &before, &after);
        let outside = if sender == flow.endpoint.ip() {
            from(&inside, flow.service)
        } else {
            inside
        };
        let end = outside.frame(&flow.sent().bytes());
        flow.node.becomes(false, &after, &end);
    }
    // The client reports of the answer.
    let message = too_big(flow.client.ip(), &flow.received());
    let inside = to(&message, flow.endpoint);
    let (before, after) = (
        message.frame(&flow.received().bytes()),
        inside.frame(&between[1].bytes()),
    );
    flow.node.becomes(true, &before, &after);
    let end = from(&inside, flow.service).frame(&there.between(flow.endpoint, itself).bytes());
    flow.node.becomes(false, &after, &end);
}

#[test]
fn errors_of_a_pod_that_reaches_itself_come_back_to_it() {
    for (is_v6, proto) in ALL {
        let endpoint = SocketAddr::new(endpoint_addr(is_v6, 1), 8080);
        // From its own port as well, which gets another one.
        for port in [40_000, endpoint.port()] {
            let mut node = Node::new(proto);
            let service = node.service(is_v6, 1, &[1]);
            let client = SocketAddr::new(endpoint.ip(), port);
            let (seen, _) = node.enters(client, service, SYN).unwrap();
            errors_of_a_hairpin(Flow {
                node,
                client,
                service,
                endpoint,
                seen,
            });
        }
    }
}

/// Between the hooks netfilter turns the node into the client and back: what comes in from beyond
/// is about the node's own packet, and not for us.
#[test]
fn of_a_masqueraded_flow_our_half_is_translated_and_no_packet_marked() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        node.world.own((service.ip(), service.port()), proto);
        node.flag(service, FrontendFlags::masquerade(Origin::Outside));
        let mut flow = Flow::through(node, client(is_v6, 1, 40_000), service);
        let own = SocketAddr::new(service.ip(), 50_000);
        let beyond = Quote::new(proto, own, flow.endpoint);
        let message = too_big(router(is_v6), &beyond);
        flow.node.leaves_alone(&message.frame(&beyond.bytes()));
        assert_eq!(0, flow.node.counted(Counter::PassIcmpError));

        let message = too_big(router(is_v6), &flow.request());
        let (before, after) = (flow.request().bytes(), flow.sent().bytes());
        flow.node
            .becomes(false, &message.frame(&before), &message.frame(&after));
        let message = too_big(router(is_v6), &flow.received());
        let there = to(&message, flow.endpoint);
        let (before, after) = (flow.received().bytes(), flow.answer().bytes());
        flow.node
            .becomes(true, &message.frame(&before), &there.frame(&after));
    }
}

/// A client that speaks to an endpoint without a Service, from a port that was taken there.
#[test]
fn errors_of_a_direct_flow_with_another_port_are_translated() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        let client = client(is_v6, 1, 40_000);
        let endpoint = node.connect(client, service);
        let (seen, _) = node.enters(client, endpoint, SYN).unwrap();
        assert_ne!(client, seen);
        let mut flow = Flow {
            node,
            client,
            service: endpoint,
            endpoint,
            seen,
        };
        let message = too_big(router(is_v6), &flow.request());
        let (before, after) = (flow.request().bytes(), flow.sent().bytes());
        flow.node
            .becomes(false, &message.frame(&before), &message.frame(&after));
        let message = too_big(router(is_v6), &flow.received());
        let (before, after) = (flow.received().bytes(), flow.answer().bytes());
        flow.node
            .becomes(true, &message.frame(&before), &message.frame(&after));
    }
}

#[test]
fn errors_of_a_direct_flow_are_left_alone() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        node.service(is_v6, 1, &[1]);
        let client = client(is_v6, 1, 40_000);
        let endpoint = SocketAddr::new(endpoint_addr(is_v6, 1), 8080);
        node.enters(client, endpoint, SYN).unwrap();
        node.leaves(endpoint, client, SYN_ACK).unwrap();
        for (from, to) in [(client, endpoint), (endpoint, client)] {
            let quote = Quote::new(proto, from, to);
            let message = too_big(router(is_v6), &quote);
            node.leaves_alone(&message.frame(&quote.bytes()));
        }
        assert_eq!(0, node.counted(Counter::PassIcmpError));
    }
}

#[test]
fn an_error_of_no_flow_is_left_alone_and_one_for_a_service_counted() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        let client = client(is_v6, 1, 40_000);
        let endpoint = SocketAddr::new(endpoint_addr(is_v6, 1), 8080);
        let quote = Quote::new(proto, client, endpoint);
        let message = too_big(router(is_v6), &quote);
        node.leaves_alone(&message.frame(&quote.bytes()));
        assert_eq!(0, node.counted(Counter::PassIcmpError));
        let quote = Quote::new(proto, service, client);
        let message = too_big(router(is_v6), &quote);
        node.leaves_alone(&message.frame(&quote.bytes()));
        assert_eq!(1, node.counted(Counter::PassIcmpError));
        assert_eq!(0, node.halves(Tier::HalfOpen));
        assert_eq!(0, node.halves(Tier::Established));
    }
}

/// As in conntrack: an error says nothing of whether anybody is still there.
#[test]
fn an_error_lets_no_flow_live_longer() {
    each(|is_v6, mut flow| {
        flow.node.later(20);
        let before = flow.node.states();
        for (quote, enters) in [(flow.request(), false), (flow.received(), true)] {
            let message = too_big(router(is_v6), &quote);
            let frame = message.frame(&quote.bytes());
            assert_eq!(Verdict::Rewritten, flow.node.passes(&frame, enters).0);
        }
        let mut after = flow.node.states();
        after.retain(|half| !before.contains(half));
        assert!(after.is_empty(), "{after:?}");
        // Of a flow that is over it is no longer.
        flow.node.later(2 * 24 * 60 * 60);
        for quote in [flow.request(), flow.received()] {
            let message = too_big(router(is_v6), &quote);
            flow.node.leaves_alone(&message.frame(&quote.bytes()));
        }
    });
}

/// Nobody but the sender of a packet is told of it, says conntrack, and takes anything else for a
/// forgery.
#[test]
fn an_error_for_somebody_else_than_whom_it_quotes_is_left_alone() {
    each(|is_v6, mut flow| {
        for quote in [flow.request(), flow.received()] {
            for other in [flow.service, flow.endpoint, client(is_v6, 2, 0)] {
                let message = to(&too_big(router(is_v6), &quote), other);
                if message.to != quote.from.ip() {
                    flow.node.leaves_alone(&message.frame(&quote.bytes()));
                }
            }
        }
    });
}

#[test]
fn errors_reach_an_endpoint_that_its_service_has_given_up() {
    each(|is_v6, mut flow| {
        flow.node.remove_endpoint(flow.endpoint.ip());
        let message = too_big(router(is_v6), &flow.received());
        let there = to(&message, flow.endpoint);
        let (before, after) = (flow.received().bytes(), flow.answer().bytes());
        flow.node
            .becomes(true, &message.frame(&before), &there.frame(&after));
    });
}
