//! `flows` and `drops` at a running proxy.

use std::net::SocketAddr;

use serde_json::Value;
use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::Service;
use xtask::lab::{Family, Host};

use super::world::{World, wait_until};

fn flows(world: &World, more: &[&str]) -> Vec<Value> {
    let mut words = vec!["flows"];
    words.extend(more);
    let list = world.json(&words);
    assert_eq!("FlowList", list["kind"]);
    let items = list["items"].as_array().unwrap().clone();
    assert_eq!(items.len() as u64, list["matched"].as_u64().unwrap());
    items
}

fn states(world: &World, more: &[&str]) -> Vec<String> {
    let all = flows(world, more);
    let state = |flow: &Value| flow["state"].as_str().unwrap().to_owned();
    let mut states: Vec<_> = all.iter().map(state).collect();
    states.sort_unstable();
    states
}

#[test]
fn connections_are_shown_with_names_and_states_from_opening_to_closing() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 1);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    assert_eq!(Vec::<Value>::new(), flows(&world, &[]));

    let mut connections = Vec::new();
    for family in Family::ALL {
        let target = service.target(family);
        connections.push(Connection::open(&client, target).unwrap());
        let endpoint = SocketAddr::new(pods[0].addresses.of(family), service.target_port);
        let own = connections.last_mut().unwrap();
        own.echo("hello").unwrap();
        let seen = own.answer().peer.to_string();
        let shown = flows(&world, &["--client", &format!("{}", own.answer().peer)]);
        let [flow] = &*shown else {
            panic!("{shown:?}");
        };
        for (name, expected) in [
            ("protocol", "TCP"),
            ("client", &seen),
            ("frontend", &target.to_string()),
            ("endpoint", &endpoint.to_string()),
            ("namespace", "default"),
            ("service", "web"),
            ("port", "web-tcp"),
            ("node", "node1"),
            ("state", "established"),
        ] {
            assert_eq!(expected, flow[name], "{name}: {flow}");
        }
        assert_eq!(
            1,
            flows(&world, &["--backend", &endpoint.to_string()]).len()
        );
    }
    let datagrams = Datagrams::open(&client, service.target(Family::V4)).unwrap();
    datagrams.ask().unwrap();
    assert_eq!(["half-open"], *states(&world, &["--proto", "udp"]));
    assert_eq!(["established"; 2], *states(&world, &["--proto", "tcp"]));
    assert_eq!(3, flows(&world, &["--service", "web"]).len());
    assert_eq!(0, flows(&world, &["--service", "other"]).len());
    assert_eq!(0, flows(&world, &["-n", "shop"]).len());

    // Six of them, and the last line says so.
    let table = world.look(&[
        "flows",
        "--limit",
        "1",
        "--no-headers",
        "--sort-by",
        "client",
    ]);
    assert_eq!(1, table.text.lines().count(), "{table:?}");
    assert_eq!("1 of 3 flows shown; --limit 0 shows all\n", table.notes);
    let table = world.look(&["flows", "--proto", "udp"]).text;
    let words: Vec<Vec<_>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        [
            "PROTO", "CLIENT", "FRONTEND", "ENDPOINT", "SERVICE", "STATE", "IDLE", "EXPIRES"
        ],
        *words[0]
    );
    assert_eq!(("UDP", "default/web:web-udp"), (words[1][0], words[1][4]));

    let reset = connections.pop().unwrap();
    reset.reset().unwrap();
    connections.pop().unwrap().close().unwrap();
    wait_until("they are shown as they ended", || {
        states(&world, &["--proto", "tcp"]) == ["closed", "reset"]
    });
    assert_eq!(1, flows(&world, &["--state", "closed"]).len());
    assert_eq!(2, world.look(&["flows", "--client", "nonsense"]).code);

    // Numbers are left when nobody tells names.
    world.stop();
    let node = world.lab.node(1);
    let binary = super::world::binary().display().to_string();
    let mut command = node.namespace.command(&binary);
    let left = command.args(["flows", "--from-maps"]).output().unwrap();
    let left = String::from_utf8(left.stdout).unwrap();
    assert_eq!(4, left.lines().count(), "{left}");
    assert!(left.contains("-/#"), "{left}");
}

#[test]
fn what_did_not_get_through_is_told_with_what_to_do_next() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let service = Service::new("web", 10);
    world.start_with(&service);
    let nothing = world.look(&["drops"]);
    assert_eq!((0, "nothing was dropped\n"), (nothing.code, &*nothing.text));
    refused(&client, service.target(Family::V4));
    let text = world.look(&["drops"]).text;
    for part in [
        "\nreject ",
        "\nrejected ",
        "    next: kube-lottery services: a Service with READY 0",
    ] {
        assert!(text.contains(part), "{part:?}: {text}");
    }
    assert!(!text.contains("no-endpoint"), "{text}");
    let all = world.look(&["drops", "--all"]).text;
    assert!(all.contains("\nno-endpoint "), "{all}");
    let list = world.json(&["drops"]);
    let names: Vec<_> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|own| own["name"].clone())
        .collect();
    assert_eq!(["reject", "rejected"], *names);
}

fn refused(client: &Host, target: SocketAddr) {
    let error = Connection::open(client, target).err().unwrap();
    let text = format!("{error:#}");
    assert!(text.contains("refused"), "{text}");
}
