//! `status`, `services` and `endpoints` at a running proxy.

use std::process::Command;

use serde_json::Value;
use xtask::lab::Family;
use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::Service;

use super::world::{Answer, World, binary, wait_until};

#[test]
fn picks_shares_and_live_flows_add_up() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 3);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);

    let mut connections = Vec::new();
    let mut flows = Vec::new();
    for family in Family::ALL {
        for _ in 0..12 {
            connections.push(Connection::open(&client, service.target(family)).unwrap());
        }
        for _ in 0..5 {
            let flow = Datagrams::open(&client, service.target(family)).unwrap();
            flow.ask().unwrap();
            flows.push(flow);
        }
    }
    assert_eq!(
        vec![[12, 12], [12, 12], [5, 5], [5, 5]],
        picks_and_flows(&world)
    );
    let by_name = world.json(&["services", "default/web"]);
    assert_eq!(world.json(&["services"]), by_name);
    let status = world.json(&["status", "--flows"]);
    assert_eq!(34, counter(&status, "new-flow"));
    assert_eq!(true, status["healthy"]);

    for connection in connections {
        connection.close().unwrap();
    }
    wait_until("closed connections count no more", || {
        picks_and_flows(&world) == [[12, 0], [12, 0], [5, 5], [5, 5]]
    });
}

/// Picks and live flows of each service port, which must be the sums over its endpoints.
fn picks_and_flows(world: &World) -> Vec<[u64; 2]> {
    let services = world.json(&["services"]);
    let endpoints = world.json(&["endpoints"]);
    let endpoints = endpoints["items"].as_array().unwrap();
    let mut all = Vec::new();
    for port in services["items"][0]["ports"].as_array().unwrap() {
        let same = |name: &str, endpoint: &&Value| endpoint[name] == port[name];
        let own: Vec<_> = endpoints
            .iter()
            .filter(|endpoint| same("protocol", endpoint) && same("family", endpoint))
            .collect();
        assert_eq!(3, own.len());
        let sum = |name: &str| {
            own.iter()
                .map(|one| one[name].as_u64().unwrap())
                .sum::<u64>()
        };
        assert_eq!(port["picks"], sum("picks"));
        assert_eq!(port["flows"], sum("flows"));
        let shares: f64 = own.iter().map(|one| one["share"].as_f64().unwrap()).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{shares}");
        all.push([sum("picks"), sum("flows")]);
    }
    all
}

#[test]
fn every_device_is_told_of() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    world.lab.pods(1, 2).unwrap();
    world.start();
    let table = world.look(&["devices", "-o", "wide", "--no-headers"]).text;
    let rows: Vec<Vec<_>> = table
        .lines()
        .map(|line| line.split_whitespace().skip(1).take(6).collect())
        .collect();
    let expected = [
        ["lo", "hardware", "-", "-", "left-alone", "-"],
        ["eth0", "veth", "uplink", "tcx", "attached", "ethernet"],
        ["pod2", "veth", "pod", "tcx", "attached", "ethernet"],
        ["pod3", "veth", "pod", "tcx", "attached", "ethernet"],
    ];
    for row in expected {
        assert!(rows.contains(&row.to_vec()), "{table}");
    }
    let lo = world.device("lo").unwrap();
    assert_eq!("it carries no traffic of others", lo["reason"]);
    assert!(
        world
            .look(&["devices", "-o", "yaml"])
            .text
            .contains("kind: DeviceList")
    );
}

#[test]
fn tables_are_plain_and_name_everything() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let pods = world.lab.pods(1, 2).unwrap();
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let services = "\
NAMESPACE  NAME  PORT     PROTO  FRONTENDS           READY  PICKS  FLOWS  LOCAL
default    web   web-tcp  TCP    10.96.0.10:80         2/2      0      0      2
default    web   web-tcp  TCP    [fd00:10:96::a]:80    2/2      0      0      2
default    web   web-udp  UDP    10.96.0.10:80         2/2      0      0      2
default    web   web-udp  UDP    [fd00:10:96::a]:80    2/2      0      0      2
";
    assert_eq!(services, world.look(&["services"]).text);
    let endpoints = world.look(&[
        "endpoints",
        "--service",
        "web",
        "-o",
        "wide",
        "--no-headers",
    ]);
    let first = endpoints.text.lines().next().unwrap();
    let first: Vec<_> = first.split_whitespace().collect();
    let at = format!("{}:8080", pods[0].addresses.of(Family::V4));
    let expected = [
        "default",
        "web",
        "web-tcp",
        "TCP",
        &at,
        "ready",
        "0",
        "-",
        "0",
        "yes",
        "cluster",
        "node1",
        "slice-web-ipv4",
    ];
    assert_eq!(expected, first[..expected.len()]);
    assert_eq!(8, endpoints.text.lines().count());

    assert_eq!(
        "",
        world.look(&["services", "-n", "shop", "--no-headers"]).text
    );
    let missing = world.look(&["services", "shop/web"]);
    assert_eq!(
        (1, "there is no Service shop/web\n"),
        (missing.code, &*missing.notes)
    );
    let yaml = world.look(&["services", "-A", "-o", "yaml"]).text;
    let yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(world.json(&["services"]), yaml);
    assert_eq!("kube-lottery.io/v1", yaml["apiVersion"]);
    assert_eq!("ServiceList", yaml["kind"]);
}

#[test]
fn the_status_says_what_is_wrong_by_its_exit_code_too() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let pods = world.lab.pods(1, 1).unwrap();
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let status = world.look(&["status"]);
    assert_eq!(0, status.code, "{status:?}");
    expect_line(&status, "Wrong      nothing");
    expect_line(&status, "Drops      none");
    expect_line(
        &status,
        "Room       frontends  IPv4 2 of 65,536   IPv6 2 of 65,536",
    );

    world
        .manifests
        .write("bad", "apiVersion: v1\nkind: Service\n")
        .unwrap();
    wait_until("the mistake is known", || world.look(&["status"]).code == 1);
    let status = world.look(&["status"]);
    let message = "bad.yaml: document 1: metadata.name: nothing is not legal; give a name\n";
    assert!(status.text.ends_with(message), "{status:?}");
    world.manifests.remove("bad").unwrap();
    wait_until("it is mended", || world.look(&["status"]).code == 0);

    // Another Service that claims the same addresses.
    world
        .manifests
        .write("other", &Service::new("zoo", 10).yaml())
        .unwrap();
    wait_until("the conflict is known", || {
        world.look(&["status"]).code == 1
    });
    expect_line(
        &world.look(&["status"]),
        "Wrong      default/zoo: 10.96.0.10:80/TCP belongs to Service default/web, whose claim \
         comes first",
    );

    let taken = Command::new(binary())
        .args(["run", "--node-name", "node1", "--manifests"])
        .arg(world.manifests.folder())
        .arg("--control-socket")
        .arg(world.control_socket())
        .output()
        .unwrap();
    let text = String::from_utf8(taken.stderr).unwrap();
    assert!(
        text.contains("error: another process answers on the control socket"),
        "{text}"
    );
    assert_eq!(Some(1), taken.status.code());

    world.stop();
    let status = world.look(&["status"]);
    assert_eq!((2, ""), (status.code, &*status.text));
    assert!(
        status.notes.starts_with("error: no controller answers on "),
        "{status:?}"
    );
    // What it left still tells what is served, if not by which name.
    let node = world.lab.node(1);
    let binary = binary().display().to_string();
    let mut command = node.namespace.command(&binary);
    let left = command.args(["services", "--from-maps"]).output().unwrap();
    let left = String::from_utf8(left.stdout).unwrap();
    assert_eq!(5, left.lines().count(), "{left}");
    let line = left
        .lines()
        .find(|line| line.contains("UDP    10.96.0.10:80"));
    assert!(line.unwrap().contains(" 1/1 "), "{left}");
}

fn expect_line(status: &Answer, line: &str) {
    assert!(
        status.text.lines().any(|own| own == line),
        "{}",
        status.text
    );
}

fn counter(status: &Value, name: &str) -> u64 {
    let all = status["counters"].as_array().unwrap();
    let found = all.iter().find(|counter| counter["name"] == name).unwrap();
    found["value"].as_u64().unwrap()
}
