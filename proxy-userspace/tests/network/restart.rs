//! The controller dies and comes back, and nobody notices.

use std::io::Write as _;

use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::Service;
use xtask::lab::{Family, Host};

use super::pinned::{Pinned, place};
use super::traffic::during;
use super::world::{World, is_long, wait_until};

#[test]
fn a_controller_that_is_killed_and_started_again_is_not_missed() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 3);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let node = world.lab.node(1);
    let before = Pinned::read(&node);
    let restarts = if is_long() { 1_000 } else { 50 };
    let ((), tally) = during(
        &client,
        &service,
        |_| true,
        |_| {
            for _ in 0..restarts {
                world.kill();
                world.start();
            }
        },
    );
    let after = Pinned::read(&node);
    assert_eq!(before.identities(), after.identities());
    assert_eq!(before.frontends(), after.frontends());
    assert_eq!(12, after.identities().len());
    say(&format!("{restarts} restarts: {tally:?}"));
    world.assert_unnoticed(&[&service]);
}

#[test]
fn what_changed_while_there_was_no_controller_is_made_up_for() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    let mut service = Service::new("web", 10).with(world.endpoints(1, &pods));
    let lonely = Service::new("lonely", 11).with(world.endpoints(1, &pods));
    world.manifests.write_service(&lonely).unwrap();
    world.start_with(&service);
    let node = world.lab.node(1);
    let before = Pinned::read(&node).identities();
    assert_eq!(16, before.len());
    world.kill();
    service.endpoints.remove(0);
    world.manifests.write_service(&service).unwrap();
    world.manifests.remove("service-lonely").unwrap();
    // A pod that came, and one that went with its device, which may be known by its index again.
    let new = world.lab.pod(1).unwrap();
    world.lab.remove(&client).unwrap();
    world.start();
    let after = Pinned::read(&node).identities();
    assert_eq!(4, after.len());
    assert!(
        after.iter().all(|(key, own)| before.get(key) == Some(own)),
        "{after:?}"
    );
    let ((), _) = during(&new, &service, |name| name == pods[1].name, |_| {});
    assert_eq!(4, Pinned::read(&node).frontends().len());
}

#[test]
fn what_a_restart_cannot_know_stays_until_it_can() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let (pods, _servers) = world.servers(1, 2);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    let lonely = Service::new("lonely", 11).with(world.endpoints(1, &pods));
    world.manifests.write_service(&lonely).unwrap();
    world.start_with(&service);
    let node = world.lab.node(1);
    assert_eq!(8, Pinned::read(&node).frontends().len());
    world.kill();
    world.manifests.remove("service-lonely").unwrap();
    // It may have been in here.
    world.manifests.write("broken", "kind: [").unwrap();
    world.start();
    assert_eq!(8, Pinned::read(&node).frontends().len());
    world.manifests.remove("broken").unwrap();
    wait_until("the Service that nobody declares is gone", || {
        Pinned::read(&node).frontends().len() == 4
    });
}

#[test]
fn maps_of_another_size_are_moved_to() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 3);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let node = world.lab.node(1);
    let before = Pinned::read(&node);
    let mut go_on_with = |flags: &[&str]| {
        world.kill();
        let mut proxy = world.spawn(flags);
        proxy.wait_until_ready().unwrap();
        world.keep(proxy);
    };
    let larger = ["--max-endpoints", "300000"];
    let ((), _) = during(&client, &service, |_| true, |_| go_on_with(&larger));
    let after = Pinned::read(&node);
    assert_eq!(before.identities(), after.identities());
    assert_eq!(before.frontends(), after.frontends());

    // Flows that begin between the copy and the swap are lost, but none that is open.
    let mut open: Vec<_> = (0..20)
        .map(|n| Connection::open(&client, service.target(Family::ALL[n % 2])).unwrap())
        .collect();
    let mut expect_open = || {
        for connection in &mut open {
            connection.upload(10_000, 1).unwrap();
        }
    };
    go_on_with(&["--max-endpoints", "300000", "--max-flows", "200000"]);
    expect_open();
    assert_eq!(before.identities(), Pinned::read(&node).identities());

    // Tables that may not fit are made anew.
    go_on_with(&[]);
    expect_open();
    let after = Pinned::read(&node);
    assert_eq!(12, after.identities().len());
    let numbers = |pinned: &Pinned| -> Vec<_> {
        let all = pinned.frontends();
        all.values().map(|(number, _)| *number).collect()
    };
    let largest = numbers(&before).into_iter().max().unwrap();
    assert!(numbers(&after).into_iter().all(|number| number > largest));
    expect_served(&client, &service);
}

#[test]
fn another_layout_is_moved_to_and_its_links_are_taken_over() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let spare = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    world.kill();
    let place = place(&world.lab.node(1));
    let other = place.folder().join("layout-0");
    std::fs::rename(place.pins(), &other).unwrap();
    expect_served(&client, &service);
    // A link of a device that is gone goes as well.
    world.lab.remove(&spare).unwrap();
    world.start();
    expect_served(&client, &service);
    assert!(!other.exists());
    let links = std::fs::read_dir(place.pins()).unwrap();
    let names = links.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // Two of the uplink, the client and either endpoint.
    assert_eq!(8, names.filter(|name| name.contains('-')).count());
}

/// What a controller leaves that dies while it moves a link from one layout to the next.
#[test]
fn a_link_that_has_two_pins_stays_where_it_is() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    world.kill();
    let place = place(&world.lab.node(1));
    let other = place.folder().join("layout-0");
    std::fs::create_dir(&other).unwrap();
    for pin in std::fs::read_dir(place.pins()).unwrap() {
        let pin = pin.unwrap();
        if pin.file_name().to_string_lossy().contains('-') {
            std::fs::hard_link(pin.path(), other.join(pin.file_name())).unwrap();
        }
    }
    world.start();
    wait_until("the other layout is gone", || !other.exists());
    expect_served(&client, &service);
}

fn expect_served(client: &Host, service: &Service) {
    for family in Family::ALL {
        let target = service.target(family);
        Datagrams::open(client, target).unwrap().ask().unwrap();
        Connection::open(client, target).unwrap();
    }
}

#[test]
fn a_second_controller_is_refused_unless_it_is_to_take_over() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);

    let mut second = world.spawn(&[]);
    let status = second.wait_for_end().unwrap().unwrap();
    assert_eq!(Some(3), status.code(), "{}", second.log());
    let log = second.log();
    assert!(log.contains("another kube-lottery (process "), "{log}");
    assert!(log.contains("--replace"), "{log}");

    let takeovers = if is_long() { 100 } else { 5 };
    let ((), tally) = during(
        &client,
        &service,
        |_| true,
        |_| {
            for _ in 0..takeovers {
                let mut next = world.spawn(&["--replace"]);
                next.wait_until_ready().unwrap();
                let mut former = world.replace(next);
                wait_until("the former controller has ended", || {
                    former.wait_for_end().unwrap().is_some()
                });
            }
        },
    );
    say(&format!("{takeovers} takeovers: {tally:?}"));
    for family in Family::ALL {
        world.manifests.write_slice(&service, family).unwrap();
    }
    world.assert_unnoticed(&[&service]);
}

/// Not by a macro: the harness would keep it for itself.
pub(super) fn say(text: &str) {
    let mut out = std::io::stderr();
    writeln!(out, "{text}").unwrap();
}
