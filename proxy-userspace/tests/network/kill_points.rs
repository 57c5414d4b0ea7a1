//! The controller dies at every single write of an update.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use xtask::lab::manifest::{Endpoint, Service};
use xtask::lab::{Family, Host};

use super::pinned::Pinned;
use super::restart::say;
use super::world::World;

#[test]
fn an_update_that_is_cut_short_at_any_write_is_finished_by_the_next_controller() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let pods = world.lab.pods(1, 3).unwrap();
    let node = world.lab.node(1);
    let all = world.endpoints(1, &pods);
    // One endpoint stays, one comes, one goes; and back.
    let states = [[&all[0], &all[1]], [&all[1], &all[2]]];
    let mut service = Service::new("web", 10);
    service.endpoints = states[0].map(Endpoint::clone).to_vec();
    world.start_with(&service);
    world.kill();
    let mut points = 0;
    for write in 1_usize.. {
        let old = addresses(&service);
        service.endpoints = states[write % 2].map(Endpoint::clone).to_vec();
        for family in Family::ALL {
            world.manifests.write_slice(&service, family).unwrap();
        }
        let new = addresses(&service);
        let mut proxy = world.spawn(&["--kill-before-write", &write.to_string()]);
        let end = proxy.wait_for_end().unwrap();
        let is_over = end.is_none();
        if is_over {
            proxy.kill().unwrap();
        }
        let found = reachable(&node);
        assert_eq!(4, found.len(), "write {write}");
        for (at, endpoints) in &found {
            let is_v6 = at.contains('[');
            let legal = [&old[&is_v6], &new[&is_v6]];
            assert!(
                legal.contains(&endpoints),
                "write {write}: {at} {endpoints:?}"
            );
        }
        if is_over {
            break;
        }
        points += 1;
        world.start();
        for (at, endpoints) in reachable(&node) {
            assert_eq!(new[&at.contains('[')], endpoints, "write {write}: {at}");
        }
        assert_eq!(8, Pinned::read(&node).identities().len(), "write {write}");
        world.kill();
    }
    say(&format!("{points} kill points"));
    assert!(points > 10, "{points} writes");
}

fn reachable(node: &Host) -> BTreeMap<String, BTreeSet<IpAddr>> {
    let all = Pinned::read(node).frontends();
    all.into_iter()
        .map(|(at, (_, endpoints))| (at.to_string(), endpoints))
        .collect()
}

fn addresses(service: &Service) -> BTreeMap<bool, BTreeSet<IpAddr>> {
    let of = |family| {
        let endpoints = service.endpoints.iter();
        endpoints
            .map(|endpoint| endpoint.addresses.of(family))
            .collect()
    };
    BTreeMap::from([(false, of(Family::V4)), (true, of(Family::V6))])
}
