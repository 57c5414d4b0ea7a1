//! Many changes of sets, one after the other, under traffic.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proxy_common::net::Proto;
use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::{Endpoint, Service};
use xtask::lab::{Family, Host};

use super::pinned::Live;
use super::restart::say;
use super::traffic::during;
use super::world::{World, is_long, wait_until};

#[test]
fn no_change_leads_a_packet_astray_or_a_new_flow_to_a_dead_endpoint() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 5);
    let all = world.endpoints(1, &pods);
    // One that stays and three that come and go; another Service, whose endpoint is none of these.
    let mut service = Service::new("web", 10).with(all[..2].iter().cloned());
    let other = Service::new("other", 11).with(all[4..].iter().cloned());
    let still = Service::new("still", 12).with(all[..1].iter().cloned());
    for service in [&other, &still] {
        world.manifests.write_service(service).unwrap();
    }
    world.start_with(&service);
    let live = Live::open(&world.lab.node(1));
    let changes = if is_long() { 10_000 } else { 500 };
    let is_other = |name: &str| name == pods[4].name;
    let is_still = |name: &str| name == pods[0].name;
    let mut asked = 0;
    let (((), tally), others) = during(&client, &other, is_other, |_| {
        during(&client, &still, is_still, |_| {
            for change in 0..changes {
                let family = Family::ALL[change % 2];
                let listed = combination(change / 2 + 1, &all[..4]);
                service.endpoints = listed;
                world.manifests.write_slice(&service, family).unwrap();
                asked += expect(&client, &live, &service, family, &pods);
            }
        })
    });
    say(&format!(
        "{changes} changes, {asked} flows after them; {tally:?}, {others:?}"
    ));
    world.assert_unnoticed(&[&service, &other, &still]);
}

/// Every set of the endpoints but the empty one, in turn.
fn combination(number: usize, all: &[Endpoint]) -> Vec<Endpoint> {
    let bits = number % 15 + 1;
    let chosen = all.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
    chosen.map(|(_, endpoint)| endpoint.clone()).collect()
}

/// Waits until the tables show the change; no new flow may go elsewhere from then on. Returns how
/// many flows were tried.
fn expect(client: &Host, live: &Live, service: &Service, family: Family, pods: &[Host]) -> u64 {
    let addresses = service.endpoints.iter();
    let wanted: BTreeSet<IpAddr> = addresses
        .map(|endpoint| endpoint.addresses.of(family))
        .collect();
    let target = service.target(family);
    wait_until("the change is in the tables", || {
        [Proto::TCP, Proto::UDP]
            .iter()
            .all(|proto| live.endpoints(target, *proto).as_ref() == Some(&wanted))
    });
    let is_wanted = |name: &str| {
        let pod = pods.iter().find(|pod| pod.name == name).unwrap();
        wanted.contains(&pod.addresses.of(family))
    };
    for _ in 0..EACH {
        let flow = Datagrams::open(client, target).unwrap().ask().unwrap();
        assert!(is_wanted(&flow.name), "a new flow went to {}", flow.name);
        let connection = Connection::open(client, target).unwrap();
        let name = &connection.answer().name;
        assert!(is_wanted(name), "a new connection went to {name}");
    }
    2 * EACH
}

const EACH: u64 = 2;
