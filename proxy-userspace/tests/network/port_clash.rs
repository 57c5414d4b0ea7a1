//! Ports of the node that are node ports as well: whoever draws one still gets its answers.

use std::net::SocketAddr;

use xtask::lab::client::{Answer, Connection, Datagrams};
use xtask::lab::{Addresses, Family, Host, observe};

use super::nftables::nft;
use super::scene::{NODE_PORT, Scene};
use super::world::{serve, wait_until};

/// Enough for one masqueraded connection in 64 to draw one of them.
const PORTS: u16 = 1000;

/// Whether an endpoint sees a client at a port that is a node port.
fn is_node_port(answer: &Answer) -> bool {
    (NODE_PORT..NODE_PORT + PORTS).contains(&answer.peer.port())
}

#[test]
fn a_masqueraded_connection_whose_port_is_a_node_port_gets_its_answers() {
    let Some(scene) = Scene::with_endpoint_on(2, "", |service| service.at_node_port(NODE_PORT))
    else {
        return;
    };
    // One more Service has all the others.
    let mut many = scene.service.clone();
    many.name = "many".to_owned();
    many.addresses = Addresses::service(11);
    let yaml = many.yaml();
    let (head, ports) = yaml.split_once("  ports:\n").unwrap();
    let mut yaml = format!("{head}  ports:\n");
    for number in 1..PORTS {
        let ports = ports.replace(&format!("{NODE_PORT}"), &format!("{}", NODE_PORT + number));
        let ports = ports.replace("port: 80,", &format!("port: {number},"));
        yaml += &ports.replace("web-", &format!("web-{number}-"));
    }
    scene.world.manifests.write("service-many", &yaml).unwrap();
    wait_until("all are served", || {
        let frontends = scene.world.json(&["status"])["tables"]["frontends"].as_u64();
        frontends.unwrap() > 2 * 2 * 2 * u64::from(PORTS)
    });
    let client = scene.outside();
    for family in Family::ALL {
        let door = scene.door(1, family);
        let connections = (0..DRAWS).filter(|_| {
            let mut open = Connection::open(&client, door).unwrap();
            let is_hit = is_node_port(open.answer());
            if is_hit {
                open.upload(100_000, 1).unwrap();
                open.download(100_000, 2).unwrap();
                open.close().unwrap();
            } else {
                open.reset().unwrap();
            }
            is_hit
        });
        assert_eq!(HITS, connections.take(HITS).count(), "TCP {family}");
        let flows = (0..DRAWS).filter(|_| {
            let flow = Datagrams::open(&client, door).unwrap();
            let is_hit = is_node_port(&flow.ask().unwrap());
            if is_hit {
                flow.ask_with(&[7; 1000]).unwrap();
            }
            is_hit
        });
        assert_eq!(HITS, flows.take(HITS).count(), "UDP {family}");
    }
    scene.assert_unnoticed(&[]);
}

/// Chance to be all misses: once in 10^12 times.
const DRAWS: usize = 3000;
const HITS: usize = 2;

#[test]
fn what_a_cni_masquerades_to_a_node_port_gets_its_answers() {
    let Some(scene) = Scene::new("", |service| service.at_node_port(NODE_PORT)) else {
        return;
    };
    let outside = scene.outside();
    let _server = serve(&outside);
    let node = scene.world.lab.node(1);
    nft(
        &node,
        &format!(
            "table inet another-cni {{
  chain postrouting {{
    type nat hook postrouting priority srcnat - 1; policy accept;
    meta l4proto {{ tcp, udp }} th dport 8080 oifname eth0 masquerade to :{NODE_PORT}
  }}
}}
"
        ),
    );
    let client = scene.client.clone();
    for family in Family::ALL {
        let target: SocketAddr = (outside.addresses.of(family), 8080).into();
        let seen = scene.door(1, family);
        for _ in 0..2 {
            let mut open = Connection::open(&client, target).unwrap();
            open.upload(100_000, 1).unwrap();
            open.download(100_000, 2).unwrap();
            assert_from(&outside, seen, open.answer());
            open.close().unwrap();
            forget(&node);
            let flow = Datagrams::open(&client, target).unwrap();
            for _ in 0..3 {
                assert_from(&outside, seen, &flow.ask().unwrap());
            }
            // And the node port is served all the same, also to that very host.
            for client in [&outside, &client] {
                let mut open = Connection::open(client, seen).unwrap();
                open.echo("hello").unwrap();
                open.close().unwrap();
                Datagrams::open(client, seen).unwrap().ask().unwrap();
            }
            forget(&node);
        }
    }
}

/// One port is all that the rule has: what is over must be forgotten before the next.
fn forget(node: &Host) {
    observe::forget_connections(&node.namespace).unwrap();
}

fn assert_from(server: &Host, seen: SocketAddr, answer: &Answer) {
    assert_eq!(
        (server.name.as_str(), seen),
        (answer.name.as_str(), answer.peer)
    );
}
