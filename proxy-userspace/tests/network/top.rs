//! `top` while something goes on.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use xtask::lab::client::Connection;
use xtask::lab::draw::draw;
use xtask::lab::manifest::Service;
use xtask::lab::{Family, Protocol};

use super::world::{World, binary, wait_until};

#[test]
fn the_busiest_are_told_by_what_they_open_and_hold() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let [holder, busy] = [(); 2].map(|()| world.lab.pod(1).unwrap());
    let (pods, _servers) = world.servers(1, 2);
    let quiet = Service::new("quiet", 10).with(world.endpoints(1, &pods));
    let web = Service::new("web", 11).with(world.endpoints(1, &pods[..1]));
    world.manifests.write_service(&quiet).unwrap();
    world.start_with(&web);
    let held: Vec<_> = (0..12)
        .map(|n| Connection::open(&holder, quiet.target(Family::ALL[n % 2])).unwrap())
        .collect();

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                draw(&busy, Protocol::Udp, web.target(Family::V4), 20, &|_| {}).unwrap();
            }
        });
        let top = |args: &[&str]| {
            let fixed = ["top", "--once", "--interval", "0.2"];
            world.json(&[&fixed, args].concat())
        };
        let first = |top: &Value, name: &str| top["items"][0][name].clone();
        wait_until("new flows are seen in time", || {
            let services = top(&[]);
            assert_eq!(2, services["total"]);
            first(&services, "service") == "web"
                && first(&services, "newFlowsPerSecond").as_f64() > Some(0.0)
        });
        wait_until("and at the endpoint", || {
            let endpoints = top(&["endpoints", "--limit", "1"]);
            // Two protocols and families of three endpoints.
            assert_eq!(12, endpoints["total"]);
            assert_eq!(1, endpoints["items"].as_array().unwrap().len());
            let at = pods[0].addresses.v4.to_string();
            first(&endpoints, "address") == at
                && first(&endpoints, "protocol") == "UDP"
                && first(&endpoints, "newFlows").as_u64() > Some(0)
        });
        wait_until("and by client", || {
            let clients = top(&["clients", "--service", "web"]);
            first(&clients, "address") == busy.addresses.v4.to_string()
                && first(&clients, "newFlows").as_u64() > Some(0)
        });
        stop.store(true, Ordering::Relaxed);
    });

    let clients = world.json(&[
        "top",
        "clients",
        "--once",
        "--interval",
        "0.01",
        "--service",
        "quiet",
    ]);
    assert_eq!(
        (2, 12),
        (
            clients["total"].as_u64().unwrap(),
            clients["flows"].as_u64().unwrap()
        )
    );
    for row in clients["items"].as_array().unwrap() {
        let own = Family::ALL.map(|family| holder.addresses.of(family).to_string());
        assert!(own.iter().any(|own| row["address"] == *own), "{row}");
        assert_eq!(
            (6, 0),
            (
                row["flows"].as_u64().unwrap(),
                row["newFlows"].as_u64().unwrap()
            )
        );
    }
    let services = world.json(&["top", "--once", "--interval", "0.01", "-n", "default"]);
    let items = services["items"].as_array().unwrap();
    let quiet = items.iter().find(|row| row["service"] == "quiet").unwrap();
    assert_eq!(12, quiet["flows"]);
    let share: f64 = items.iter().map(|row| row["share"].as_f64().unwrap()).sum();
    assert!((share - 1.0).abs() < 1e-9, "{services}");
    assert_eq!(4, services["tables"].as_array().unwrap().len());
    let halves = services["tables"].as_array().unwrap().iter();
    let halves: u64 = halves.map(|map| map["entries"].as_u64().unwrap()).sum();
    assert!(halves >= 24, "{services}");
    for connection in held {
        connection.close().unwrap();
    }
}

/// One screen after the other, until nobody reads any more.
#[test]
fn screens_follow_each_other_without_colours_into_a_pipe() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let pods = world.lab.pods(1, 1).unwrap();
    world.start_with(&Service::new("web", 10).with(world.endpoints(1, &pods)));
    let mut top = Command::new(binary())
        .args(["top", "endpoints", "--interval", "0.01", "--control-socket"])
        .arg(world.control_socket())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(top.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let heads = lines
        .inspect(|line| assert!(!line.contains('\u{1b}'), "{line:?}"))
        .filter(|line| line.ends_with(" flows, 4 endpoints"));
    assert_eq!(3, heads.take(3).count());
    assert!(top.wait().unwrap().success());
    let wrong = world.look(&["top", "--interval", "0"]);
    assert_eq!(2, wrong.code, "{wrong:?}");
}
