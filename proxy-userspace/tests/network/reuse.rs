//! Client ports that are used again, and openings that came too early.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use proxy_common::net::Proto;
use xtask::lab::client::Connection;
use xtask::lab::manifest::Service;
use xtask::lab::{Family, Host};

use super::pinned::Live;
use super::world::{World, assert_even, wait_until};

// B049: few ports, so that each of them meets what its last connection left.
#[test]
fn reused_ports_are_balanced_over_endpoints_that_were_added() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let range = || {
        Ok(fs::write(
            "/proc/sys/net/ipv4/ip_local_port_range",
            "40000 40049",
        )?)
    };
    client.namespace.enter(range).unwrap();
    let (pods, _servers) = world.servers(1, 6);
    let mut service = Service::new("web", 10).with(world.endpoints(1, &pods[..2]));
    world.start_with(&service);
    for family in Family::ALL {
        connect(&client, &service, family, 100);
    }
    service.endpoints = world.endpoints(1, &pods);
    let live = Live::open(&world.lab.node(1));
    for family in Family::ALL {
        world.manifests.write_slice(&service, family).unwrap();
        wait_until("all six are in the table", || {
            let listed = live.endpoints(service.target(family), Proto::TCP);
            listed.is_some_and(|listed| listed.len() == 6)
        });
        let counts = connect(&client, &service, family, 900);
        assert_eq!(6, counts.len());
        let counts: Vec<_> = counts.into_iter().collect();
        assert_even("900 connections from 50 ports", &counts);
    }
    world.assert_unnoticed(&[&service]);
}

/// Connects again and again; how often each endpoint answered.
fn connect(client: &Host, service: &Service, family: Family, count: u32) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for _ in 0..count {
        let open = Connection::open(client, service.target(family)).unwrap();
        *counts.entry(open.answer().name.clone()).or_default() += 1;
        // A FIN would keep the port for a minute.
        open.reset().unwrap();
    }
    counts
}

// B052: client and Service begin at the same time, and the client is faster.
#[test]
fn a_connection_that_was_opened_too_early_succeeds_once_the_service_is_there() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 1);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start();
    thread::scope(|scope| {
        let (client, service) = (&client, &service);
        let early = Family::ALL.map(|family| {
            scope.spawn(move || Connection::open(client, service.target(family)).unwrap())
        });
        thread::sleep(Duration::from_millis(500));
        assert!(!early.iter().any(thread::ScopedJoinHandle::is_finished));
        world.manifests.write_service(service).unwrap();
        for open in early {
            open.join().unwrap().echo("at last").unwrap();
        }
    });
}
