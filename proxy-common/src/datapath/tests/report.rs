//! What is told of flows and packets, to whom, and how much of it.

use std::vec;

use bytemuck::bytes_of;

use super::*;
use crate::abi::event::Event;
use crate::abi::flow::FlowKey as _;
use crate::abi::{Empty, EventKind, Hook, V4, Watch, What};
use crate::datapath::lifetime;
use crate::datapath::memory::Stored;
use crate::datapath::memory::pieces::cut;
use crate::datapath::sweep::{Order, sweep};

/// A node to which somebody listens.
fn heard(proto: Proto) -> Node {
    let mut node = Node::new(proto);
    node.tables().watch = everything(u32::MAX);
    node
}

fn everything(per_second: u32) -> Watch {
    Watch {
        until: u32::MAX,
        kinds: EventKind::ALL.iter().map(|kind| kind.bit()).sum(),
        per_second,
        pad: 0,
    }
}

/// What was told since the last time.
fn told(node: &mut Node) -> Vec<Event> {
    std::mem::take(&mut node.tables().events)
}

fn whats(node: &mut Node) -> Vec<What> {
    told(node).iter().map(|event| event.what).collect()
}

fn at(words: [u32; 4], port: crate::net::Port, is_v6: bool) -> SocketAddr {
    let bytes: [u8; 16] = bytemuck::cast(words);
    let [a, b, c, d, ..] = bytes;
    let addr = if is_v6 {
        IpAddr::from(bytes)
    } else {
        IpAddr::from([a, b, c, d])
    };
    SocketAddr::new(addr, port.host())
}

#[test]
fn a_flow_is_told_of_when_it_begins_and_when_it_ends_and_in_between_nothing() {
    for (is_v6, proto) in ALL {
        let mut node = heard(proto);
        let service = node.service(is_v6, 1, &[1, 2, 3]);
        let client = client(is_v6, 1, 1000);
        node.device = 7;
        let endpoint = node.connect(client, service);
        let all = told(&mut node);
        let [event] = *all else { panic!("{all:?}") };
        assert_eq!(What::OPENED, event.what);
        assert_eq!(client, at(event.client, event.client_port, is_v6));
        assert_eq!(service, at(event.frontend, event.frontend_port, is_v6));
        assert_eq!(endpoint, at(event.endpoint, event.endpoint_port, is_v6));
        assert_eq!(client.port(), event.source_port.host());
        assert_eq!(
            (proto, Hook::INGRESS, 7),
            (event.proto, event.hook, event.device)
        );
        assert_eq!(u8::from(is_v6), event.is_v6);
        assert_ne!(0, event.service);
        assert_eq!(u64::from(node.tables().now) * 1_000_000_000, event.time);

        for _ in 0..3 {
            node.enters(client, service, ACK).unwrap();
            node.leaves(endpoint, client, REPLY).unwrap();
            node.later(lifetime::REFRESH_TCP);
        }
        assert!(whats(&mut node).is_empty());
        if proto == Proto::UDP {
            continue;
        }
        node.enters(client, service, FIN).unwrap();
        assert!(whats(&mut node).is_empty());
        node.leaves(endpoint, client, FIN).unwrap();
        assert_eq!([What::FINISHED], *whats(&mut node));
        node.enters(client, service, ACK).unwrap();
        assert!(whats(&mut node).is_empty());
        // The same ports again.
        node.enters(client, service, SYN).unwrap();
        assert_eq!([What::REPICKED], *whats(&mut node));
        node.enters(client, service, RST).unwrap();
        assert_eq!([What::RESET], *whats(&mut node));
    }
}

#[test]
fn a_packet_that_is_dropped_is_told_of_with_the_reason_and_whose_it_is() {
    for (is_v6, proto) in ALL {
        let mut node = heard(proto);
        let service = node.service(is_v6, 1, &[]);
        let client = client(is_v6, 1, 1000);
        for (empty, reason) in [
            (Empty::Drop, Counter::DropNoEndpoint),
            (Empty::Reject, Counter::Reject),
        ] {
            node.flag(service, FrontendFlags::if_empty(Origin::Outside, empty));
            assert_eq!(Err(reason), node.enters(client, service, SYN));
            let all = told(&mut node);
            let [event] = *all else { panic!("{all:?}") };
            assert_eq!(What::dropped(reason), event.what);
            assert_eq!(client, at(event.client, event.client_port, is_v6));
            assert_eq!(service, at(event.frontend, event.frontend_port, is_v6));
            assert_eq!([0; 4], event.endpoint);
            assert_eq!(0, event.endpoint_port.host());
            assert_ne!(0, event.service);
        }
    }
}

/// What is rare has a key without ports, and not that of the packet before.
#[test]
fn a_fragment_that_is_dropped_is_told_of_by_its_own_addresses() {
    for is_v6 in [false, true] {
        let mut node = heard(Proto::UDP);
        let service = node.service(is_v6, 1, &[1]);
        let [first, second] = [1, 2].map(|n| client(is_v6, n, 1000));
        node.enters(first, service, SYN).unwrap();
        told(&mut node);
        let whole = frame(Proto::UDP, second, service, SYN);
        let later = cut(&whole, 7, 8).unwrap().pop().unwrap();
        let (verdict, _) = node.take(later, true);
        assert_eq!(Verdict::Drop(Counter::DropFragment), verdict);
        let all = told(&mut node);
        let [event] = *all else { panic!("{all:?}") };
        assert_eq!(What::dropped(Counter::DropFragment), event.what);
        assert_eq!(second.ip(), at(event.client, event.client_port, is_v6).ip());
        assert_eq!(
            service.ip(),
            at(event.frontend, event.frontend_port, is_v6).ip()
        );
        assert_eq!(
            (0, 0),
            (event.client_port.host(), event.frontend_port.host())
        );
    }
}

#[test]
fn a_half_that_was_lost_is_told_of_when_it_is_rebuilt() {
    for (is_v6, proto) in ALL {
        for kind in [Kind::DNAT, Kind::UNDNAT] {
            let mut node = heard(proto);
            let service = node.service(is_v6, 1, &[1, 2, 3]);
            let client = client(is_v6, 1, 1000);
            let endpoint = node.connect(client, service);
            node.later(3);
            node.enters(client, service, ACK).unwrap();
            node.leaves(endpoint, client, REPLY).unwrap();
            told(&mut node);
            node.lose_kind(kind);
            for _ in 0..2 {
                node.enters(client, service, ACK).unwrap();
                node.leaves(endpoint, client, REPLY).unwrap();
            }
            let all = told(&mut node);
            let [event] = *all else {
                panic!("{proto:?} {kind:?}: {all:?}")
            };
            assert_eq!(What::REBUILT, event.what);
            assert_eq!(endpoint, at(event.endpoint, event.endpoint_port, is_v6));
            let hook = if kind == Kind::DNAT {
                Hook::INGRESS
            } else {
                Hook::EGRESS
            };
            assert_eq!(hook, event.hook);
        }
    }
}

/// Has the sweeper look at every half of a tier.
fn swept<F: Stored>(node: &mut Node, tier: Tier, hurry: bool) -> u32 {
    let protocol = if F::IS_V6 { eth::IPV6 } else { eth::IPV4 };
    let keys: Vec<_> = F::maps(node.tables()).tier(tier).keys().copied().collect();
    assert!(keys.iter().all(|key| key.hook().0 < 2));
    let mut frame = vec![0; eth::LEN - 2];
    frame.extend(protocol.to_be_bytes());
    frame.extend(bytes_of(&Order::new(tier, hurry)));
    frame.extend(keys.iter().flat_map(bytes_of));
    sweep(
        &MemoryPacket::frame(frame),
        node.tables(),
        &mut MemoryRoom::default(),
    )
}

#[test]
fn what_the_sweeper_ends_is_told_of_once_and_what_was_told_before_is_not() {
    for hurry in [false, true] {
        for (closes, later, expected) in [
            (false, lifetime::TCP_ESTABLISHED + 1, Some(What::EXPIRED)),
            (true, lifetime::TCP_ESTABLISHED + 1, None),
            (true, lifetime::TCP_RESET + 1, Some(What::HURRIED)),
            (false, 10, None),
        ] {
            let mut node = heard(Proto::TCP);
            let service = node.service(false, 1, &[1]);
            let client = client(false, 1, 1000);
            let endpoint = node.connect(client, service);
            node.leaves(endpoint, client, REPLY).unwrap();
            if closes {
                node.enters(client, service, RST).unwrap();
            }
            told(&mut node);
            node.later(later);
            let removed = swept::<V4>(&mut node, Tier::Established, hurry);
            let expected = expected.filter(|what| hurry || *what != What::HURRIED);
            let goes = expected.is_some() || closes && later > lifetime::TCP_ESTABLISHED;
            assert_eq!(if goes { 2 } else { 0 }, removed);
            assert_eq!(Vec::from_iter(expected), whats(&mut node));
        }
    }
}

#[test]
fn nothing_is_told_to_nobody_and_only_what_is_asked_for() {
    let mut node = Node::new(Proto::TCP);
    let service = node.service(false, 1, &[1]);
    let mut port = 1000;
    let mut opens = |node: &mut Node| {
        port += 1;
        let client = client(false, 1, port);
        node.enters(client, service, SYN).unwrap();
        node.enters(client, service, RST).unwrap();
        whats(node)
    };
    assert!(opens(&mut node).is_empty());
    let now = node.tables().now;
    let mut watch = everything(u32::MAX);
    watch.until = now + 2;
    node.tables().watch = watch;
    assert_eq!([What::OPENED, What::RESET], *opens(&mut node));
    watch.kinds = EventKind::Closed.bit();
    node.tables().watch = watch;
    assert_eq!([What::RESET], *opens(&mut node));
    // Who listened is gone without a word.
    node.later(2);
    assert!(opens(&mut node).is_empty());
    assert_eq!(0, node.tables().meter.limited);
}

#[test]
fn what_is_too_much_is_counted_and_not_told() {
    let mut node = heard(Proto::UDP);
    node.tables().watch = everything(3);
    let service = node.service(false, 1, &[]);
    node.flag(
        service,
        FrontendFlags::if_empty(Origin::Outside, Empty::Drop),
    );
    let sends = |node: &mut Node, count: u16| {
        for port in 0..count {
            node.enters(client(false, 1, 1 + port), service, SYN)
                .unwrap_err();
        }
        whats(node).len()
    };
    assert_eq!(3, sends(&mut node, 10));
    assert_eq!(0, sends(&mut node, 10));
    node.later(1);
    assert_eq!(3, sends(&mut node, 4));
    assert_eq!(
        (18, 0),
        (node.tables().meter.limited, node.tables().meter.full)
    );
    node.later(1);
    node.tables().events_room = 1;
    assert_eq!(1, sends(&mut node, 3));
    assert_eq!(
        (18, 2),
        (node.tables().meter.limited, node.tables().meter.full)
    );
    assert_eq!(27, node.counted(Counter::DropNoEndpoint));
}
