//! Clients that are to keep their endpoint.

use super::*;
use crate::abi::EndpointSet;

const TIMEOUT: u32 = 600;
const ENDPOINTS: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// A Service that remembers its clients.
fn remembering(node: &mut Node, is_v6: bool, n: u32) -> SocketAddr {
    let service = node.service(is_v6, n, &ENDPOINTS);
    node.change(service, |frontend| frontend.affinity_timeout = TIMEOUT);
    service
}

/// The endpoint of a new flow of the `n`th client.
fn opens(node: &mut Node, is_v6: bool, n: u32, port: u16, service: SocketAddr) -> IpAddr {
    let client = client(is_v6, n, port);
    node.enters(client, service, SYN).unwrap().1.ip()
}

/// How many of 50 new flows of a client go to the endpoint that the first goes to, and that one.
fn same_of_50(
    node: &mut Node,
    is_v6: bool,
    n: u32,
    from: u16,
    service: SocketAddr,
) -> (u32, IpAddr) {
    let first = opens(node, is_v6, n, from, service);
    let same = (1..50).filter(|port| opens(node, is_v6, n, from + port, service) == first);
    (1 + same.count() as u32, first)
}

#[test]
fn a_client_keeps_its_endpoint_and_another_one_gets_its_own() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = remembering(&mut node, is_v6, 1);
        let mut seen = std::collections::HashSet::new();
        for n in 1..20 {
            let (same, endpoint) = same_of_50(&mut node, is_v6, n, 1000, service);
            assert_eq!(50, same);
            seen.insert(endpoint);
        }
        assert!(seen.len() > 2, "{seen:?}");
        // Another service port, with another memory; and one without.
        let other = remembering(&mut node, is_v6, 2);
        let (same, _) = same_of_50(&mut node, is_v6, 1, 1000, other);
        assert_eq!(50, same);
        let forgetful = node.service(is_v6, 3, &ENDPOINTS);
        assert!(same_of_50(&mut node, is_v6, 1, 1000, forgetful).0 < 30);
    }
}

#[test]
fn it_lasts_from_the_last_flow_that_was_opened_and_no_packet_of_one_prolongs_it() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = remembering(&mut node, is_v6, 1);
        let first = opens(&mut node, is_v6, 1, 1000, service);
        for port in 1001..1050 {
            node.later(TIMEOUT);
            assert_eq!(first, opens(&mut node, is_v6, 1, port, service));
        }
        // 20 times a second too late, with 8 to choose from.
        let mut others = 0;
        let mut last = first;
        for port in 1100..1120 {
            node.later(TIMEOUT / 2);
            if proto.connects() {
                node.enters(client(is_v6, 1, port - 1), service, RST).ok();
            }
            node.later(TIMEOUT / 2 + 1);
            let next = opens(&mut node, is_v6, 1, port, service);
            others += u32::from(next != last);
            last = next;
        }
        assert!(others > 5, "{others}");
    }
}

#[test]
fn an_endpoint_that_takes_no_flows_loses_its_clients_for_good() {
    for (is_v6, proto) in ALL {
        // It terminates; its slot changes hands.
        for is_given_up in [false, true] {
            let mut node = Node::new(proto);
            let service = remembering(&mut node, is_v6, 1);
            let mut lost = 0;
            for n in 1..=20 {
                let endpoint = opens(&mut node, is_v6, n, 1000, service);
                let alive = EndpointFlags::ALIVE.with(EndpointFlags::IN_CLUSTER_SET);
                if is_given_up {
                    node.remove_endpoint(endpoint);
                } else {
                    node.terminate(endpoint);
                }
                // It is drawn now and then as long as the set lists it, and not used.
                let next = (1001..1100).find_map(|port| {
                    let client = client(is_v6, n, port);
                    Some(node.enters(client, service, SYN).ok()?.1.ip())
                });
                let next = next.unwrap();
                assert_ne!(endpoint, next);
                node.world.flag(endpoint, |flags| *flags = alive);
                let (same, kept) = same_of_50(&mut node, is_v6, n, 2000, service);
                assert_eq!((50, next), (same, kept));
                lost += 1;
            }
            assert_eq!(20, lost);
        }
    }
}

#[test]
fn a_client_is_not_led_out_of_the_set_that_is_for_it() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = remembering(&mut node, is_v6, 1);
        let near = endpoint_addr(is_v6, 3);
        let mut moved = 0;
        for n in 1..=20 {
            node.change(service, |frontend| frontend.flags = FrontendFlags::NONE);
            let anywhere = opens(&mut node, is_v6, n, 1000, service);
            // From now on, only what is near may be used.
            node.world.flag(near, |flags| {
                *flags = flags.with(EndpointFlags::IN_LOCAL_SET);
            });
            let mut before = EndpointSet::EMPTY;
            node.change(service, |frontend| {
                before = frontend.outside;
                frontend.outside = EndpointSet::new(before.base() + 2, 1);
                frontend.flags = FrontendFlags::local(Origin::Outside);
            });
            assert_eq!(near, opens(&mut node, is_v6, n, 1001, service));
            // What is near is in the larger set as well: it is kept when that one counts again.
            node.change(service, |frontend| {
                frontend.outside = before;
                frontend.flags = FrontendFlags::NONE;
            });
            assert_eq!((50, near), same_of_50(&mut node, is_v6, n, 2000, service));
            moved += u32::from(anywhere != near);
        }
        assert!(moved > 10, "{moved}");
    }
}

#[test]
fn a_flow_stays_where_it_is_whatever_its_client_would_get() {
    for is_v6 in [false, true] {
        let mut node = Node::new(Proto::TCP);
        let service = node.service(is_v6, 1, &ENDPOINTS);
        let clients = (1000..1010).map(|port| client(is_v6, 1, port));
        let flows: Vec<_> = clients
            .map(|own| (own, node.connect(own, service)))
            .collect();
        node.change(service, |frontend| frontend.affinity_timeout = TIMEOUT);
        opens(&mut node, is_v6, 1, 2000, service);
        for (client, endpoint) in flows {
            assert_eq!(Ok((client, endpoint)), node.enters(client, service, ACK));
        }
    }
}

/// The slot was given up and is in use again, perhaps by another endpoint of the same Service.
#[test]
fn what_is_remembered_is_the_endpoint_and_not_its_slot() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = remembering(&mut node, is_v6, 1);
        let clients = 1..=40;
        let before: Vec<_> = clients
            .clone()
            .map(|n| opens(&mut node, is_v6, n, 1000, service))
            .collect();
        for id in ENDPOINTS {
            node.change_endpoint(endpoint_addr(is_v6, id), |generation, _| *generation += 1);
        }
        let after = clients.map(|n| opens(&mut node, is_v6, n, 1001, service));
        let moved = after.zip(before).filter(|(after, before)| after != before);
        assert!(moved.count() > 20);
    }
}
