//! `explain` and `why` at a running proxy: what they say is so, and asking changes nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::Value;
use xtask::lab::Family;
use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::Service;

use super::pinned::Live;
use super::world::World;

const STICKY: &str = "sessionAffinity: ClientIP";
/// Questions while connections go on.
const QUESTIONS: usize = 5;

/// All that users see counted.
fn counted(world: &World) -> Value {
    let status = world.json(&["status", "--flows"]);
    let mut counters = BTreeMap::new();
    for counter in status["counters"].as_array().unwrap() {
        counters.insert(counter["name"].to_string(), counter["value"].clone());
    }
    serde_json::json!({
        "counters": counters,
        "maps": status["maps"],
        "services": world.json(&["services"]),
        "endpoints": world.json(&["endpoints"]),
    })
}

#[test]
fn explaining_under_traffic_changes_nothing_that_anybody_sees() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 3);
    let service = Service::new("web", 10)
        .with(world.endpoints(1, &pods))
        .specified(STICKY);
    world.start_with(&service);
    let live = Live::open(&world.lab.node(1));
    let mut open: Vec<_> = Family::ALL
        .map(|family| Connection::open(&client, service.target(family)).unwrap())
        .into();
    for open in &mut open {
        open.echo("first").unwrap();
    }
    let flows = Family::ALL.map(|family| {
        let flow = Datagrams::open(&client, service.target(family)).unwrap();
        flow.ask().unwrap();
        flow
    });
    let before = (counted(&world), live.remembered());
    for round in 0..QUESTIONS {
        for ((family, open), flow) in Family::ALL.into_iter().zip(&mut open).zip(&flows) {
            open.echo("still there?").unwrap();
            let (known, target) = (open.local().unwrap(), service.target(family).to_string());
            let answer = |source: &str, proto: &str| {
                let all = world.json(&["explain", source, &target, "--proto", proto]);
                assert_eq!("kernel", all["dataPath"], "{all:#}");
                assert_eq!("controller", all["source"]);
                assert_eq!("forward", all["outcome"]["verdict"]);
                all
            };
            // This very connection, …
            let all = answer(&known.to_string(), "tcp");
            let at = all["outcome"]["endpoint"].as_str().unwrap();
            let at: SocketAddr = at.parse().unwrap();
            let name = &pods
                .iter()
                .find(|pod| pod.addresses.of(family) == at.ip())
                .unwrap()
                .name;
            assert_eq!(open.answer().name, *name, "round {round}");
            assert_eq!("flow", all["outcome"]["decidedBy"]);
            assert_eq!(false, all["flow"]["over"]);
            // … another of the same client, which it sticks to its endpoint, …
            let next = answer(&known.ip().to_string(), "tcp");
            assert_eq!(all["outcome"]["endpoint"], next["outcome"]["endpoint"]);
            assert_eq!("affinity", next["outcome"]["decidedBy"]);
            assert!(next["affinity"]["leftSeconds"].as_u64().unwrap() > 10_000);
            // … its datagrams, and somebody else's.
            let all = answer(&flow.local().unwrap().to_string(), "udp");
            assert_eq!("flow", all["outcome"]["decidedBy"]);
            let stranger = match family {
                Family::V4 => "203.0.113.77",
                Family::V6 => "2001:db8:77::1",
            };
            let all = answer(stranger, "tcp");
            assert_eq!("lottery", all["outcome"]["decidedBy"]);
            assert_eq!(3, all["lottery"]["endpoints"]);
            assert_eq!("served", world.json(&["why", &target])["reason"]);
        }
    }
    for open in &mut open {
        open.echo("last").unwrap();
    }
    assert!(
        before.1.len() >= 10,
        "clients and flows: {}",
        before.1.len()
    );
    let after = (counted(&world), live.remembered());
    assert_eq!(before, after);
    world.assert_unnoticed(&[&service]);
}

#[test]
fn what_is_not_served_is_told_at_a_running_proxy() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let pods = world.lab.pods(1, 1).unwrap();
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let hidden = "apiVersion: v1\nkind: Service\nmetadata: {name: mesh, namespace: shop, labels: \
                  {service.kubernetes.io/service-proxy-name: other}}\nspec: {clusterIP: \
                  10.96.0.77, ports: [{port: 80}]}\n";
    world.manifests.write("mesh", hidden).unwrap();
    super::world::wait_until("it is known", || {
        world.json(&["why", "10.96.0.77:80"])["reason"] == "other-proxy"
    });
    let answer = world.look(&["why", "10.96.0.10:81"]);
    assert_eq!(1, answer.code);
    assert!(answer.text.starts_with("no-such-port: "), "{answer:?}");
    let answer = world.look(&["explain", "10.0.0.1", "10.96.0.10:81"]);
    assert_eq!(1, answer.code, "{answer:?}");
    world.stop();
    let answer = world.look(&["explain", "10.0.0.1", "10.96.0.10:80"]);
    assert_eq!(2, answer.code);
    assert!(answer.notes.contains("--manifests"), "{answer:?}");
}
