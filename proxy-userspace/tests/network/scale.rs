//! How long and how much memory ten thousand Services take. Prints numbers; what it fails on is
//! far beyond what they should be, for it may run beside others and unoptimized.
//!
//! `KUBE_LOTTERY_BINARY=target/release/kube-lottery cargo xtask test network scale --long`

use std::io::Write as _;
use std::time::{Duration, Instant};

use kube_lottery::control::api::Status;
use serde_json::{Value, json};

use super::world::{World, is_long, wait_until};

const SERVICES: usize = 10_000;
const ENDPOINTS: usize = 10;
const CHANGES: usize = 20;

#[test]
fn ten_thousand_services_of_ten_endpoints() {
    if !is_long() {
        return;
    }
    let Some(mut world) = World::new(1) else {
        return;
    };
    let items: Vec<_> = (0..SERVICES).flat_map(|n| [service(n), slice(n)]).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let folder = world.manifests.folder().to_path_buf();
    std::fs::write(folder.join("all.json"), list.to_string()).unwrap();

    let began = Instant::now();
    world.start();
    let started = began.elapsed();
    let first = status(&world);
    assert_eq!(
        (SERVICES, SERVICES * ENDPOINTS),
        (first.tables.services, first.tables.endpoints)
    );
    let planned = Duration::from_micros(first.tables.last_change.unwrap().micros);
    let memory = ["VmRSS:", "VmHWM:"].map(|name| memory(world.pid(), name));

    let (mut seen, mut done) = (Vec::new(), Vec::new());
    for n in 1..=CHANGES {
        let mut more = slice(5000);
        more["metadata"]["name"] = json!("more");
        let all: Vec<_> = (1..=n)
            .map(|n| json!({"addresses": [format!("10.200.0.{n}")]}))
            .collect();
        more["endpoints"] = all.into();
        std::fs::write(folder.join(".draft"), more.to_string()).unwrap();
        let before = Instant::now();
        std::fs::rename(folder.join(".draft"), folder.join("more.json")).unwrap();
        let tables = loop {
            let tables = status(&world).tables;
            if tables.endpoints == SERVICES * ENDPOINTS + n {
                break tables;
            }
        };
        seen.push(before.elapsed());
        done.push(Duration::from_micros(tables.last_change.unwrap().micros));
    }
    seen.sort();
    done.sort();
    let report = format!(
        "{SERVICES} services of {ENDPOINTS} endpoints\n  start to ready     {started:.1?}, of which \
         planning and writing {planned:.1?}\n  resident memory    {} kB, {} kB at most\n  one change         \
         {:.2?} from the object to the maps, seen {:.2?} after the file was renamed (medians of \
         {CHANGES})\n",
        memory[0],
        memory[1],
        done[CHANGES / 2],
        seen[CHANGES / 2],
    );
    // Not by a macro: the harness would keep it for itself.
    std::io::stderr().write_all(report.as_bytes()).unwrap();
    assert!(started < Duration::from_secs(30), "{report}");
    wait_until("all is well", || world.look(&["status"]).code == 0);
}

/// Services that come and go a hundred at a time.
const AT_ONCE: usize = 100;

/// Field report B210: 50,000 of them in the long form.
#[test]
fn services_that_come_and_go_leave_no_memory_behind() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let items: Vec<_> = (0..AT_ONCE).flat_map(|n| [service(n), slice(n)]).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let folder = world.manifests.folder().to_path_buf();
    world.start();
    let cycle = || {
        std::fs::write(folder.join(".draft"), &list).unwrap();
        std::fs::rename(folder.join(".draft"), folder.join("all.json")).unwrap();
        wait_until("they are served", || services(&world) == Some(AT_ONCE));
        std::fs::remove_file(folder.join("all.json")).unwrap();
        wait_until("they are gone", || services(&world) == Some(0));
    };
    // The allocator has its share by then.
    (0..10).for_each(|_| cycle());
    let before = memory(world.pid(), "VmRSS:");
    (0..if is_long() { 500 } else { 10 }).for_each(|_| cycle());
    let grown = memory(world.pid(), "VmRSS:").saturating_sub(before);
    assert!(grown < 20_000, "{before} kB have grown by {grown} kB");
}

fn service(n: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": format!("s{n}"), "namespace": "default"},
        "spec": {
            "clusterIP": format!("10.96.{}.{}", n / 250, n % 250 + 1),
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        },
    })
}

fn slice(n: usize) -> Value {
    let endpoints: Vec<_> = (n * ENDPOINTS..(n + 1) * ENDPOINTS)
        .map(|n| {
            json!({
                "addresses": [format!("10.{}.{}.{}", 128 + n / 62500, n / 250 % 250, n % 250 + 1)],
                "nodeName": format!("node{}", n % ENDPOINTS),
                "conditions": {"ready": true, "serving": true, "terminating": false},
            })
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("s{n}-a"),
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": format!("s{n}")},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    })
}

fn status(world: &World) -> Status {
    kube_lottery::control::get(&world.control_socket(), "/v1/status").unwrap()
}

/// How many Services are served; nothing if the machine is too busy to answer in time.
fn services(world: &World) -> Option<usize> {
    let status = kube_lottery::control::get::<Status>(&world.control_socket(), "/v1/status");
    Some(status.ok()?.tables.services)
}

/// A line of the process's status, in kB.
fn memory(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
