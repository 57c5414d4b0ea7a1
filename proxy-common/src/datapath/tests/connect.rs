//! Processes of the node, decided on at their sockets.

use super::*;
use crate::abi::{Empty, EndpointSet, V4, V6};
use crate::datapath::connect::{Answer, Call, connect};
use crate::datapath::work::Work;
use crate::net::{Address, Port};
use Origin::Host;

/// An answer of either family.
type Got = Answer<IpAddr>;

fn plain<A: Address + Into<IpAddr>>(answer: Answer<A>) -> Got {
    match answer {
        Answer::Pass => Answer::Pass,
        Answer::Rewrite {
            addr,
            port,
            slot,
            masquerade,
        } => Answer::Rewrite {
            addr: addr.into(),
            port,
            slot,
            masquerade,
        },
        Answer::Reject => Answer::Reject,
        Answer::Drop(reason) => Answer::Drop(reason),
    }
}

/// What a process gets that sends from `source`.
fn calls(node: &mut Node, source: Option<IpAddr>, to: SocketAddr) -> Got {
    let (port, proto) = (Port::new(to.port()), node.proto);
    match to.ip() {
        IpAddr::V4(dst) => {
            let source = source.map(|source| match source {
                IpAddr::V4(source) => source.into(),
                IpAddr::V6(_) => unreachable!("both are of one family"),
            });
            let dst = dst.into();
            let call = Call {
                source,
                dst,
                port,
                proto,
            };
            plain(connect::<V4, _>(node.tables(), &mut Work::empty(), &call))
        }
        IpAddr::V6(dst) => {
            let source = source.map(|source| match source {
                IpAddr::V6(source) => source.into(),
                IpAddr::V4(_) => unreachable!("both are of one family"),
            });
            let dst = dst.into();
            let call = Call {
                source,
                dst,
                port,
                proto,
            };
            plain(connect::<V6, _>(node.tables(), &mut Work::empty(), &call))
        }
    }
}

fn endpoint(is_v6: bool, id: u32, masquerade: bool) -> Got {
    Answer::Rewrite {
        addr: endpoint_addr(is_v6, id),
        port: Port::new(8080),
        slot: id,
        masquerade,
    }
}

#[test]
fn the_node_gets_the_endpoints_of_those_inside_by_rules_of_its_own() {
    for (is_v6, proto) in ALL {
        for masquerade in [false, true] {
            let mut node = Node::new(proto);
            let service = node.service(is_v6, 1, &[1, 2]);
            node.change(service, |frontend| {
                frontend.inside = EndpointSet::new(frontend.inside.base(), 1);
                frontend.outside = EndpointSet::EMPTY;
                frontend.flags = FrontendFlags::masquerade(Host).only_if(masquerade);
            });
            let expected = endpoint(is_v6, 1, masquerade);
            assert_eq!(expected, calls(&mut node, None, service));
            assert_eq!(
                expected,
                calls(&mut node, Some(client_addr(is_v6, 9)), service)
            );
            // Nothing is known of it afterwards.
            assert!(node.kinds().is_empty());
        }
    }
}

#[test]
fn where_there_is_no_endpoint_for_the_node_it_is_told_what_was_decided() {
    for (is_v6, proto) in ALL {
        for (empty, expected) in [
            (Empty::Drop, Answer::Drop(Counter::DropNoEndpoint)),
            (Empty::Reject, Answer::Reject),
            (Empty::Pass, Answer::Pass),
        ] {
            let mut node = Node::new(proto);
            let service = node.service(is_v6, 1, &[]);
            node.flag(service, FrontendFlags::if_empty(Host, empty));
            assert_eq!(expected, calls(&mut node, None, service));
            // Another port of the address, of which nothing is said, and then something is.
            let closed = SocketAddr::new(service.ip(), 81);
            assert_eq!(Answer::Pass, calls(&mut node, None, closed));
            node.world
                .whole(service.ip(), FrontendFlags::if_empty(Host, empty));
            assert_eq!(expected, calls(&mut node, None, closed));
        }
    }
}

#[test]
fn ranges_are_held_against_a_source_that_is_known() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        node.flag(service, FrontendFlags::FILTERED);
        let bits = if is_v6 { 128 } else { 32 };
        node.world.source(1, client_addr(is_v6, 1), bits);
        let got = endpoint(is_v6, 1, false);
        assert_eq!(got, calls(&mut node, Some(client_addr(is_v6, 1)), service));
        let dropped = Answer::Drop(Counter::DropSourceRange);
        assert_eq!(
            dropped,
            calls(&mut node, Some(client_addr(is_v6, 2)), service)
        );
        assert_eq!(got, calls(&mut node, None, service));
    }
}

#[test]
fn a_process_that_gets_its_own_address_is_masqueraded() {
    for (is_v6, proto) in ALL {
        for (anywhere, is_local) in [(1, false), (0, true), (0, false)] {
            let mut node = Node::new(proto);
            let service = node.service(is_v6, 1, &[1]);
            node.tables().settings.hairpin_anywhere = anywhere;
            let addr = endpoint_addr(is_v6, 1);
            if is_local {
                node.world
                    .flag(addr, |flags| *flags = flags.with(EndpointFlags::LOCAL));
            }
            let masquerade = anywhere == 1 || is_local;
            let expected = endpoint(is_v6, 1, masquerade);
            assert_eq!(expected, calls(&mut node, Some(addr), service));
            let plain = endpoint(is_v6, 1, false);
            assert_eq!(plain, calls(&mut node, None, service));
        }
    }
}

#[test]
fn every_loopback_address_leads_to_the_same_service() {
    let mut node = Node::new(Proto::TCP);
    node.world.service(
        ([127, 0, 0, 1].into(), 30_080),
        Proto::TCP,
        &[(endpoint_addr(false, 1), 8080)],
    );
    for last in [[127, 0, 0, 1], [127, 0, 0, 2], [127, 255, 255, 254]] {
        let to = SocketAddr::new(last.into(), 30_080);
        assert_eq!(endpoint(false, 1, false), calls(&mut node, None, to));
    }
    for other in [[126, 0, 0, 1], [128, 0, 0, 1]] {
        let to = SocketAddr::new(other.into(), 30_080);
        assert_eq!(Answer::Pass, calls(&mut node, None, to));
    }
}

#[test]
fn processes_keep_their_endpoint_like_other_clients() {
    for (is_v6, proto) in ALL {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1, 2, 3, 4, 5, 6, 7, 8]);
        node.change(service, |frontend| frontend.affinity_timeout = 600);
        for source in [
            None,
            Some(client_addr(is_v6, 1)),
            Some(client_addr(is_v6, 2)),
        ] {
            let first = calls(&mut node, source, service);
            for _ in 0..50 {
                node.later(600);
                assert_eq!(first, calls(&mut node, source, service));
            }
        }
    }
}
