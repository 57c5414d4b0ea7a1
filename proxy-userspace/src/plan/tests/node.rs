//! What is configured, and what is known of this node.

use std::sync::Arc;

use proxy_common::abi::FrontendFlags;

use super::*;
use crate::config::{Config, Detect, ExternalIps};
use crate::model::Node;

#[test]
fn external_ips_that_are_not_allowed_are_said_once() {
    let config = Config {
        external_ips: ExternalIps::Deny,
        ..Config::default()
    };
    let mut world = World::new(Limits::default());
    world.plan = Plan::new("one", Limits::default()).with_config(config);
    let mut web = service("web", "10.96.0.1", &[("", Protocol::Tcp, 80)]);
    web.external_ips = vec!["192.0.2.1".parse().unwrap()];
    let change = Change::Set(Object::Service(web.into()));
    let outcome = world.change(vec![change.clone()]);
    assert_eq!(
        ["default/web: external IP 192.0.2.1 is not served: --external-ips does not allow it"],
        *messages(&outcome)
    );
    assert!(
        outcome
            .notices
            .iter()
            .all(|(_, notice)| notice.is_by_choice())
    );
    assert!(world.change(vec![change]).notices.is_empty());
    assert_eq!(1, world.tables.frontends.len());
}

#[test]
fn what_is_known_of_the_node_changes_what_it_touches() {
    let mut world = World::new(Limits::default());
    world.plan = Plan::new("one", Limits::default()).with_config(Config {
        detect: Detect::NodeCidr,
        ..Config::default()
    });
    let mut web = service("web", "10.96.0.1", &[("", Protocol::Tcp, 80)]);
    web.ports[0].node_port = 30080;
    world.change(vec![
        Change::Set(Object::Service(web.into())),
        set_service("other", "10.96.0.2"),
        set_slice("web", &["10.1.0.1"]),
    ]);
    let at_node = |last: u8| Socket {
        addr: [192, 0, 2, last].into(),
        port: 30080,
        proto: Proto::TCP,
    };
    for (own, other) in [(1, 2), (2, 1)] {
        let addresses = [IpAddr::from([192, 0, 2, own])].into();
        let outcome = world.change(vec![Change::Addresses(Arc::new(addresses))]);
        assert!(world.tables.frontends.contains_key(&at_node(own)));
        assert!(!world.tables.frontends.contains_key(&at_node(other)));
        let other = IpAddr::from([10, 96, 0, 2]);
        let touches_other = |op: &Op| matches!(op, Op::Frontend { at, .. } if at.addr == other);
        assert!(!outcome.ops.iter().any(touches_other), "{:?}", outcome.ops);
    }
    let node = |name: &str, ranges: &[&str]| {
        let node = Node {
            name: name.into(),
            addresses: Vec::new(),
            zone: None,
            pod_cidrs: ranges.iter().map(|text| text.parse().unwrap()).collect(),
        };
        vec![Change::Set(Object::Node(node.into()))]
    };
    let is_detector = |op: &Op| matches!(op, Op::Detector { .. });
    let own = world.change(node("one", &["10.1.0.0/24"]));
    assert!(own.ops.iter().any(is_detector), "{:?}", own.ops);
    let masquerades = |at: Socket| {
        let flags = world.tables.frontends[&at].flags;
        flags.has(FrontendFlags::masquerade(Origin::Outside))
    };
    assert!(masquerades(Socket {
        port: 80,
        ..at("10.96.0.2")
    }));
    for nothing_new in [node("one", &["10.1.0.0/24"]), node("two", &["10.2.0.0/24"])] {
        assert!(world.change(nothing_new).ops.is_empty());
    }
}
