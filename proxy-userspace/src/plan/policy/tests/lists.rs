//! Which endpoints are in the two lists.

use super::world::{World, config};
use crate::config::Mode;
use crate::model::TrafficPolicy;
use crate::plan::wanted::{List, WantedEndpoint};

/// The addresses in a list, or those that are in none.
fn list(world: &World, list: List) -> String {
    let wanted = world.wanted();
    let listed = wanted[0].endpoints.iter().filter(|endpoint| match list {
        List::Cluster => endpoint.in_cluster,
        List::Local => endpoint.in_local,
        List::Nobody => !endpoint.is_listed(),
    });
    let texts = listed.map(|endpoint: &WantedEndpoint| endpoint.addr.to_string());
    texts.collect::<Vec<_>>().join(" ")
}

fn world(endpoints: &[&str]) -> World {
    World::new(config(Mode::Iptables))
        .with_endpoints(endpoints)
        .with_policies(TrafficPolicy::Local, TrafficPolicy::Cluster)
}

/// One row: endpoints, those in list C, those in list L, those that only keep what they have.
type Row = (
    &'static [&'static str],
    &'static str,
    &'static str,
    &'static str,
);

fn check(rows: &[Row]) {
    for (endpoints, cluster, local, neither) in rows {
        let world = world(endpoints);
        let seen = [List::Cluster, List::Local, List::Nobody].map(|name| list(&world, name));
        assert_eq!([*cluster, *local, *neither], seen, "{endpoints:?}");
    }
}

#[test]
fn endpoints_that_are_ready_come_before_those_that_end() {
    check(&[
        (
            &["10.1.0.1@one", "10.1.1.1@two", "10.1.2.1"],
            "10.1.0.1 10.1.1.1 10.1.2.1",
            "10.1.0.1",
            "",
        ),
        // Ready beats terminating, as in a Service that publishes addresses before they are ready.
        (
            &["10.1.0.1@one/ready-ending", "10.1.0.2@one/ending"],
            "10.1.0.1",
            "10.1.0.1",
            "10.1.0.2",
        ),
        (
            &["10.1.0.1@one/ending", "10.1.1.1@two/ending"],
            "10.1.0.1 10.1.1.1",
            "10.1.0.1",
            "",
        ),
        // The lists fall back by themselves.
        (
            &["10.1.0.1@one/ending", "10.1.1.1@two"],
            "10.1.1.1",
            "10.1.0.1",
            "",
        ),
        (
            &["10.1.0.1@one", "10.1.1.1@two/ending"],
            "10.1.0.1",
            "10.1.0.1",
            "10.1.1.1",
        ),
        // What serves, is not ready and does not end is given nothing new.
        (
            &["10.1.0.1@one/serving", "10.1.1.1@two/serving"],
            "",
            "",
            "10.1.0.1 10.1.1.1",
        ),
        (
            &["10.1.0.1@one/serving", "10.1.0.2@one/ending"],
            "10.1.0.2",
            "10.1.0.2",
            "10.1.0.1",
        ),
        (&["10.1.0.1@one/down", "10.1.1.1@two/down"], "", "", ""),
    ]);
}

#[test]
fn hints_choose_among_what_is_ready_in_the_cluster() {
    check(&[
        // All have hints for zones, and one of them is for this one.
        (
            &[
                "10.1.0.1@one zone=b",
                "10.1.1.1@two zone=a",
                "10.1.1.2@two zone=b zone=a",
            ],
            "10.1.1.1 10.1.1.2",
            "10.1.0.1",
            "",
        ),
        (
            &["10.1.0.1@one zone=b", "10.1.1.1@two zone=c"],
            "10.1.0.1 10.1.1.1",
            "10.1.0.1",
            "",
        ),
        (
            &["10.1.0.1@one zone=a", "10.1.1.1@two"],
            "10.1.0.1 10.1.1.1",
            "10.1.0.1",
            "",
        ),
        // Hints of what is not ready do not matter.
        (
            &["10.1.0.1@two zone=a", "10.1.1.1@two/serving"],
            "10.1.0.1",
            "",
            "10.1.1.1",
        ),
        (
            &["10.1.0.1@two zone=b", "10.1.1.1@two/ending zone=a"],
            "10.1.0.1",
            "",
            "10.1.1.1",
        ),
        // What ends is not chosen among.
        (
            &["10.1.0.1@two/ending zone=b", "10.1.1.1@two/ending zone=a"],
            "10.1.0.1 10.1.1.1",
            "",
            "",
        ),
        // Nodes come before zones, and zones where one has no hint for a node.
        (
            &[
                "10.1.0.1@two zone=a node=one",
                "10.1.1.1@two zone=a node=two",
            ],
            "10.1.0.1",
            "",
            "10.1.1.1",
        ),
        (
            &["10.1.0.1@two zone=a node=one", "10.1.1.1@two zone=a"],
            "10.1.0.1 10.1.1.1",
            "",
            "",
        ),
        (
            &[
                "10.1.0.1@two zone=a node=two",
                "10.1.1.1@two zone=b node=two",
            ],
            "10.1.0.1",
            "",
            "10.1.1.1",
        ),
    ]);
}

#[test]
fn without_a_zone_of_its_own_a_node_takes_all() {
    let mut world = world(&["10.1.0.1@two zone=a", "10.1.1.1@two zone=b"]);
    assert_eq!("10.1.0.1", list(&world, List::Cluster));
    let mut node = super::world::node();
    node.zone = None;
    assert!(world.policy.follow_node(Some(&node)));
    assert_eq!("10.1.0.1 10.1.1.1", list(&world, List::Cluster));
    node.zone = Some("b".into());
    assert!(world.policy.follow_node(Some(&node)));
    assert_eq!("10.1.1.1", list(&world, List::Cluster));
    assert!(!world.policy.follow_node(Some(&node)));
}

#[test]
fn copies_of_an_endpoint_count_once() {
    for copies in [
        ["10.1.0.1@one", "10.1.0.1@one/ending"],
        ["10.1.0.1@one/ending", "10.1.0.1@one"],
    ] {
        let world = World::new(config(Mode::Iptables))
            .with_endpoints(&[copies[0], "10.1.0.2@one"])
            .with_endpoints(&[copies[1]]);
        assert_eq!(
            "10.1.0.1 10.1.0.2",
            list(&world, List::Cluster),
            "{copies:?}"
        );
    }
}

#[test]
fn ports_are_joined_by_name_and_protocol_and_not_by_number() {
    let mut world = world(&["10.1.0.1"]);
    let changed = |change: &dyn Fn(&mut crate::model::SlicePort), last: u8| {
        let mut slice = (*world.slices[0]).clone();
        change(&mut slice.ports[0]);
        slice.endpoints[0].address = [10, 1, 0, last].into();
        slice.into()
    };
    let others = [
        changed(&|port| port.port = 9090, 2),
        changed(&|port| port.name = "other".into(), 3),
        changed(&|port| port.protocol = crate::model::Protocol::Udp, 4),
    ];
    world.slices.extend(others);
    assert_eq!("10.1.0.1 10.1.0.2", list(&world, List::Cluster));
    let ports: Vec<_> = world.wanted()[0]
        .endpoints
        .iter()
        .map(|own| own.port)
        .collect();
    assert_eq!([8080, 9090], *ports);
}

#[test]
fn a_list_that_no_frontend_uses_is_empty() {
    let endpoints = ["10.1.0.1@one", "10.1.1.1@two"];
    let cluster = world(&endpoints).with_policies(TrafficPolicy::Cluster, TrafficPolicy::Cluster);
    assert_eq!("", list(&cluster, List::Local));
    let mut local = world(&endpoints);
    local.service.ports[0].node_port = 0;
    local.service.external_ips.clear();
    local.service.load_balancer_ips.clear();
    assert_eq!("", list(&local, List::Cluster));
    assert_eq!("10.1.0.1", list(&local, List::Local));
    // Endpoints elsewhere are what makes it a drop.
    local.slices.clear();
    let local = local.with_endpoints(&["10.1.1.1@two"]);
    assert_eq!("drop", local.send("pod", super::world::CLUSTER_IP, 80));
}
