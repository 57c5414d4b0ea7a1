//! `fairness` of real connections.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use proxy_common::net::Proto;
use serde_json::Value;
use xtask::lab::draw::draw;
use xtask::lab::manifest::Service;
use xtask::lab::{Family, Protocol};

use super::pinned::Live;
use super::scene::NODE_PORT;
use super::world::{World, wait_until};

/// Connections to each list in each family.
const DRAWS: u64 = 400;

#[test]
fn fair_services_are_not_named_and_one_that_is_not_is() {
    let Some(mut world) = World::new(2) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let outside = world.lab.outside().clone();
    let (near, _near_servers) = world.servers(1, 3);
    let (far, _far_servers) = world.servers(2, 2);
    let mut endpoints = world.endpoints(1, &near);
    endpoints.extend(world.endpoints(2, &far));
    // Those outside draw from three, those inside from five of which these are some.
    let mut web = Service::new("web", 10)
        .with(endpoints)
        .at_node_port(NODE_PORT)
        .specified("externalTrafficPolicy: Local");
    let sticky = Service::new("cart", 11)
        .with(world.endpoints(1, &near))
        .specified("sessionAffinity: ClientIP");
    world.manifests.write_service(&sticky).unwrap();
    world.start_with(&web);

    for family in Family::ALL {
        let door = (world.lab.node(1).addresses.of(family), NODE_PORT).into();
        draw(&client, Protocol::Tcp, web.target(family), DRAWS, &|_| {}).unwrap();
        draw(&outside, Protocol::Tcp, door, DRAWS, &|_| {}).unwrap();
        draw(
            &client,
            Protocol::Tcp,
            sticky.target(family),
            DRAWS,
            &|_| {},
        )
        .unwrap();
    }
    let answer = world.look(&["fairness"]);
    assert_eq!(0, answer.code, "{answer:?}");
    let split = world.json(&["fairness", "default/web"]);
    assert_eq!((&1.into(), &0.into()), (&split["tested"], &split["off"]));
    let service = &split["items"][0];
    assert_eq!("fair", service["verdict"], "{service}");
    assert_eq!(DRAWS * 4, service["draws"]);
    // (5 - 1) + (3 - 1), twice.
    assert_eq!(12, service["degreesOfFreedom"]);
    for family in ["IPv4", "IPv6"] {
        let sets = &port(service, family)["sets"];
        for (index, list, size) in [(0, "cluster", 5), (1, "local", 3)] {
            assert_eq!(Value::from(vec![list]), sets[index]["lists"]);
            assert_eq!(
                (&size.into(), &DRAWS.into()),
                (&sets[index]["size"], &sets[index]["draws"])
            );
        }
    }
    // The client drew once in each family, however often it came back; two CPUs that open its first
    // connections at once may both draw.
    let cart = world.json(&["fairness", "cart"]);
    assert_eq!("too-few", cart["items"][0]["verdict"]);
    let drawn = cart["items"][0]["draws"].as_u64().unwrap();
    assert!((2..20).contains(&drawn), "{drawn}");
    assert!(metrics(&world).contains("\nkube_lottery_unfair_services 0\n"));

    let live = Live::open(&world.lab.node(1));
    live.favour_first(web.target(Family::V4), Proto::TCP, 200);
    assert_named(&world);
    let metrics = metrics(&world);
    assert!(
        metrics.contains("\nkube_lottery_unfair_services 1\n"),
        "{metrics}"
    );
    let series = "\nkube_lottery_fairness_p_value{namespace=\"default\",service=\"web\"} ";
    assert!(metrics.contains(series), "{metrics}");
    let total = 4 * DRAWS + 200 + drawn;
    let counted = format!("\nkube_lottery_draws_total {total}\n");
    assert!(metrics.contains(&counted), "{metrics}");

    // What is counted outlives the controller.
    world.kill();
    world.start();
    assert_named(&world);

    // Other endpoints begin at zero, and what was is not forgotten.
    web.endpoints.truncate(4);
    world.manifests.write_service(&web).unwrap();
    wait_until("there is another set", || {
        let split = world.json(&["fairness", "web"]);
        port(&split["items"][0], "IPv4")["former"]["sets"] == 1
    });
    let split = world.json(&["fairness", "web"]);
    let service = &split["items"][0];
    assert_eq!("off", service["verdict"]);
    assert_eq!(DRAWS * 4 + 200, service["draws"]);
    assert_eq!(0, port(service, "IPv4")["sets"][0]["draws"]);
    assert_eq!(DRAWS + 200, port(service, "IPv4")["former"]["draws"]);
    assert_eq!(DRAWS, port(service, "IPv4")["sets"][1]["draws"]);
}

/// The TCP port of a Service in a family.
fn port<'a>(service: &'a Value, family: &str) -> &'a Value {
    let mut ports = service["ports"].as_array().unwrap().iter();
    ports
        .find(|port| port["protocol"] == "TCP" && port["family"] == family)
        .unwrap()
}

fn assert_named(world: &World) {
    let answer = world.look(&["fairness"]);
    assert_eq!(1, answer.code, "{answer:?}");
    let named = "\ndefault/web: its draws are not spread evenly\n  most ";
    assert!(answer.text.contains(named), "{answer:?}");
    assert_eq!(1, answer.text.matches("not spread evenly").count());
    assert_eq!(0, world.look(&["fairness", "cart"]).code);
    let whole = world.look(&["fairness", "web"]);
    assert_eq!(1, whole.code);
    let local = whole
        .text
        .lines()
        .filter(|line| line.starts_with("web-tcp") && line.contains(" local "));
    assert_eq!(6, local.count(), "{whole:?}");
}

fn metrics(world: &World) -> String {
    let mut stream = UnixStream::connect(world.control_socket()).unwrap();
    stream
        .write_all(b"GET /v1/metrics HTTP/1.0\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(
        text.contains("content-type: application/openmetrics-text"),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
    text
}
