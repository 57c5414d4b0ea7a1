//! What is true of one Service and must not touch another: that it is bad, that its port leads where
//! another's does, that it knows one family only.

use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::Service;
use xtask::lab::{Addresses, Family, Host};

use super::pinned::Live;
use super::recreated::wait_for_endpoints;
use super::traffic::during;
use super::world::{World, wait_until};

const NODE_PORTS: u16 = 50;

/// Specifications that no API server lets pass, each with what is said of it.
const BAD: [(&str, &str); 4] = [
    ("externalIPs: [\"10.96.0.300\"]", "spec.externalIPs"),
    ("sessionAffinity: Cookie", "spec.sessionAffinity"),
    ("internalTrafficPolicy: Near", "spec.internalTrafficPolicy"),
    (
        "loadBalancerSourceRanges: [\"10.0.0.0/33\"]",
        "spec.loadBalancerSourceRanges",
    ),
];

// B141
#[test]
fn a_bad_service_keeps_no_other_from_what_it_has_or_wants() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let (pods, _servers) = world.servers(1, 2);
    let endpoints = world.endpoints(1, &pods);
    let client = world.lab.outside().clone();
    let node = world.lab.node(1);
    let at = |number: u16, family| (node.addresses.of(family), 30_000 + number).into();
    for number in 0..NODE_PORTS {
        let low = u8::try_from(number).unwrap();
        let service = Service::new(&format!("good{number}"), 20 + low)
            .with(endpoints.clone())
            .at_node_port(30_000 + number);
        world.manifests.write_service(&service).unwrap();
    }
    let web = Service::new("web", 10).balanced(11).with(endpoints.clone());
    world.start_with(&web);
    let balanced = Service {
        addresses: web.balancer.unwrap(),
        ..web
    };
    let mut held: Vec<_> = (0..NODE_PORTS)
        .flat_map(|number| Family::ALL.map(|family| at(number, family)))
        .map(|door| Connection::open(&client, door).unwrap())
        .collect();
    let everybody_is_served = |doors: u16| {
        for number in 0..doors {
            for family in Family::ALL {
                let door = at(number, family);
                Connection::open(&client, door).unwrap().close().unwrap();
                Datagrams::open(&client, door).unwrap().ask().unwrap();
            }
        }
    };
    let (mut doors, mut late) = (NODE_PORTS, endpoints);
    during(
        &client,
        &balanced,
        |_| true,
        |_| {
            for (number, (line, field)) in (0_u8..).zip(BAD) {
                let bad = Service::new("bad", 200)
                    .at_node_port(31_000)
                    .specified(line);
                world.manifests.write_service(&bad).unwrap();
                wait_until("the bad one is named", || {
                    let status = world.look(&["status"]).text;
                    status.contains(field) && status.contains("default/bad")
                });
                everybody_is_served(doors);
                // A good one that comes after it is served as well.
                let good = Service::new(&format!("late{number}"), 100 + number)
                    .with(late.clone())
                    .at_node_port(30_000 + doors);
                late.reverse();
                world.manifests.write_service(&good).unwrap();
                doors += 1;
                wait_until("the new one is served", || {
                    let new = at(doors - 1, Family::V6);
                    Connection::open(&client, new).is_ok()
                });
            }
            world.manifests.remove("service-bad").unwrap();
            everybody_is_served(doors);
        },
    );
    for connection in &mut held {
        connection.echo("still there?").unwrap();
    }
}

/// A Service and its slices as files, with several ports in place of its one.
fn with_ports(service: &Service, ports: &[(&str, u16)]) -> [(String, String); 3] {
    let instead = |text: &str| {
        let (head, tail) = text.split_once("ports:\n").unwrap();
        let is_port = |line: &&str| line.trim_start().starts_with("- {name:");
        let (own, rest): (Vec<_>, Vec<_>) = tail.lines().partition(is_port);
        let mut lines = vec![format!("{head}ports:")];
        for (name, number) in ports {
            lines.extend(own.iter().map(|line| {
                line.replace("web-", &format!("{name}-"))
                    .replace("port: 80,", &format!("port: {number},"))
            }));
        }
        lines.extend(rest.iter().map(|line| (*line).to_owned()));
        lines.join("\n") + "\n"
    };
    let slice = |family| {
        let name = service.slice_name(family);
        let all = service.endpoints.iter();
        let all = all.map(|own| (own.addresses.of(family), own.node.as_str()));
        let yaml = service.slice_yaml(&name, family, &all.collect::<Vec<_>>());
        (name, instead(&yaml))
    };
    [
        (
            format!("service-{}", service.name),
            instead(&service.yaml()),
        ),
        slice(Family::V4),
        slice(Family::V6),
    ]
}

// B102
#[test]
fn two_ports_that_lead_to_one_port_of_the_endpoints_are_two() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    let first = Service::new("web", 10).with(world.endpoints(1, &pods));
    let second = Service {
        port: 81,
        ..first.clone()
    };
    let write = |world: &World, ports: &[(&str, u16)]| {
        for (name, yaml) in with_ports(&first, ports) {
            world.manifests.write(&name, &yaml).unwrap();
        }
    };
    let all = [("a", 80), ("b", 81)];
    write(&world, &all);
    world.start();
    for service in [&first, &second] {
        for family in Family::ALL {
            open(&client, service, family);
        }
    }
    // From one port of the client to both: at the endpoint they would be one.
    let from = |family| (client.addresses.of(family), 40_080).into();
    for family in Family::ALL {
        let both = [&first, &second].map(|service| {
            let target = service.target(family);
            Datagrams::open_from(&client, from(family), target).unwrap_or_else(|_| {
                // One socket has the port; the other one takes any.
                Datagrams::open(&client, target).unwrap()
            })
        });
        for flow in &both {
            flow.ask().unwrap();
        }
    }
    let live = Live::open(&world.lab.node(1));
    during(
        &client,
        &second,
        |_| true,
        |_| {
            write(&world, &all[1..]);
            for family in Family::ALL {
                let gone = first.target(family);
                wait_until("the first is gone", || {
                    live.endpoints(gone, proxy_common::net::Proto::TCP)
                        .is_none()
                });
            }
        },
    );
    during(
        &client,
        &second,
        |_| true,
        |_| {
            write(&world, &all);
            wait_for_endpoints(&live, &first);
        },
    );
    for family in Family::ALL {
        open(&client, &first, family);
    }
    world.assert_unnoticed(&[&first]);
}

fn open(client: &Host, service: &Service, family: Family) {
    let target = service.target(family);
    let connection = Connection::open(client, target).unwrap();
    connection.close().unwrap();
    Datagrams::open(client, target).unwrap().ask().unwrap();
}

/// Services that have no cluster IP say little of families.
const HEADLESS: [&str; 3] = [
    "{clusterIP: None, ports: [{port: 80}]}",
    "{clusterIP: None, clusterIPs: [None]}",
    "{type: ExternalName, externalName: www.example.com}",
];

// B109 B110
#[test]
fn a_service_of_one_family_or_of_none_is_nothing_to_complain_of() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    let both = Service::new("web", 10).with(world.endpoints(1, &pods));
    let Addresses { v4, v6 } = both.addresses;
    let yaml = both
        .yaml()
        .replace(&format!("clusterIP: {v4}"), &format!("clusterIP: \"{v6}\""))
        .replace(&format!("[\"{v4}\", \"{v6}\"]"), &format!("[\"{v6}\"]"))
        .replace("[IPv4, IPv6]", "[IPv6]")
        .replace("RequireDualStack", "SingleStack");
    assert!(!yaml.contains(&v4.to_string()), "{yaml}");
    world.manifests.write("service-web", &yaml).unwrap();
    // The slice of the other family may stay behind when a Service gives that up.
    for family in Family::ALL {
        world.manifests.write_slice(&both, family).unwrap();
    }
    for (number, spec) in (0..).zip(HEADLESS) {
        let name = format!("headless{number}");
        let yaml = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: default}}\n\
             spec: {spec}\n"
        );
        world.manifests.write(&name, &yaml).unwrap();
    }
    world.start();
    open(&client, &both, Family::V6);
    let status = world.look(&["status"]);
    assert_eq!(0, status.code, "{status:?}");
    let log = world.log();
    assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
    let services = world.look(&["services", "-o", "json"]).text;
    assert!(!services.contains(&v4.to_string()), "{services}");
}
