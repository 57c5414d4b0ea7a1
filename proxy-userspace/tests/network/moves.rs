//! Devices that are renamed, go elsewhere, come back, or become something else.

use aya::programs::{SchedClassifier, TcAttachType};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use xtask::lab::Host;
use xtask::lab::client::Connection;
use xtask::lab::manifest::Service;

use super::pinned::place;
use super::traffic::during;
use super::world::{World, device_of, ip, wait_until};

#[test]
fn a_device_that_is_renamed_stays_as_it_is() {
    let Some((world, client, service)) = world() else {
        return;
    };
    let node = world.lab.node(1);
    let device = device_of(&client);
    let before = programs_at(&node, &device);
    assert_eq!(2, before.len());
    let ((), tally) = during(
        &client,
        &service,
        |_| true,
        |_| {
            for round in 0..5 {
                let (from, to) = (
                    format!("{device}{}", tail(round)),
                    format!("{device}{}", tail(round + 1)),
                );
                ip(&node, &[format!("link set {from} name {to}")]);
                world.wait_for_device(&to, is_attached);
                assert_eq!(before, programs_at(&node, &to));
            }
        },
    );
    assert!(tally.connections.into_inner() > 0);
}

fn tail(round: u32) -> String {
    if round == 0 {
        String::new()
    } else {
        format!("n{round}")
    }
}

#[test]
fn a_device_that_goes_elsewhere_is_let_go_of_and_taken_up_when_it_comes_back() {
    let Some((world, client, service)) = world() else {
        return;
    };
    let (node, elsewhere) = (world.lab.node(1), world.lab.outside().clone());
    let device = device_of(&client);
    for _ in 0..3 {
        expect_served(&client, &service);
        hand_over(&node, &elsewhere, &device);
        wait_until("nothing translates there", || {
            programs_at(&elsewhere, &device).is_empty()
        });
        wait_until("it is not known any more", || {
            world.device(&device).is_none()
        });
        hand_over(&elsewhere, &node, &device);
        plug(&node, &client);
        world.wait_for_device(&device, is_attached);
    }
    expect_served(&client, &service);
    world.assert_unnoticed(&[&service]);
}

#[test]
fn a_device_that_goes_while_there_is_no_controller_is_let_go_of_by_the_next() {
    let Some((mut world, client, service)) = world() else {
        return;
    };
    let (node, elsewhere) = (world.lab.node(1), world.lab.outside().clone());
    let device = device_of(&client);
    world.kill();
    hand_over(&node, &elsewhere, &device);
    assert_eq!(2, programs_at(&elsewhere, &device).len());
    world.start();
    assert!(programs_at(&elsewhere, &device).is_empty());
    hand_over(&elsewhere, &node, &device);
    plug(&node, &client);
    expect_served(&client, &service);
}

#[test]
fn pins_go_with_their_device() {
    let Some((mut world, client, _service)) = world() else {
        return;
    };
    let node = world.lab.node(1);
    let links = || {
        let pins = std::fs::read_dir(place(&node).pins()).unwrap();
        let names = pins.map(|pin| pin.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains('-')).count()
    };
    let before = links();
    world.lab.remove(&client).unwrap();
    wait_until("its pins are gone", || links() == before - 2);
}

#[test]
fn a_device_that_becomes_something_else_is_taken_for_that() {
    let Some((world, client, service)) = world() else {
        return;
    };
    let node = world.lab.node(1);
    let device = device_of(&client);
    let is = |class: &'static str| move |told: &Value| told["class"] == class;
    let run = |lines: &[&str]| {
        let lines: Vec<_> = lines.iter().map(|line| (*line).to_owned()).collect();
        ip(&node, &lines);
    };
    world.wait_for_device(&device, is("pod"));

    // Traffic goes on while it is taken for an uplink, and when it is not any more.
    let ((), _) = during(
        &client,
        &service,
        |_| true,
        |_| {
            run(&[&format!("route add default dev {device} metric 4000")]);
            world.wait_for_device(&device, |told| is("uplink")(told) && is_attached(told));
            run(&[&format!("route delete default dev {device} metric 4000")]);
            world.wait_for_device(&device, |told| is("pod")(told) && is_attached(told));
        },
    );
    // The kernel says nothing of a route that goes with its device.
    run(&[&format!("route add default dev {device} metric 4000")]);
    world.wait_for_device(&device, is("uplink"));
    run(&[&format!("link set {device} down")]);
    world.wait_for_device(&device, is("pod"));
    run(&[&format!("link set {device} up")]);

    run(&[
        "link add br9 type bridge",
        &format!("link set {device} master br9"),
    ]);
    world.wait_for_device(&device, is("pod-port"));
    let bridge = world.device("br9").unwrap();
    assert_eq!("left-alone", bridge["state"], "{bridge}");
    run(&[&format!("link set {device} nomaster"), "link delete br9"]);
    world.wait_for_device(&device, |told| is("pod")(told) && is_attached(told));
    plug(&node, &client);
    expect_served(&client, &service);
}

#[test]
fn what_happens_unheard_is_made_up_for() {
    let Some((mut world, client, service)) = world() else {
        return;
    };
    let node = world.lab.node(1);
    let stopped = Pid::from_raw(world.pid().cast_signed()).unwrap();
    kill_process(stopped, Signal::STOP).unwrap();
    // More than the socket has room for; what is lost is the end of it.
    let lines: Vec<_> = (0..4_000)
        .map(|round| format!("link set eth0 alias n{round}"))
        .collect();
    xtask::lab::command::ip(Some(node.namespace.name()), &lines).unwrap();
    let late = world.lab.pod(1).unwrap();
    world.lab.remove(&client).unwrap();
    kill_process(stopped, Signal::CONT).unwrap();
    world.wait_for_device(&device_of(&late), is_attached);
    wait_until("the one that is gone is not known", || {
        world.device(&device_of(&client)).is_none()
    });
    assert!(
        world.log().contains("messages were lost"),
        "{}",
        world.log()
    );
    expect_served(&late, &service);
}

/// A world with a client, and a Service on another pod.
pub(super) fn world() -> Option<(World, Host, Service)> {
    world_with(&[])
}

/// The same with more flags for the proxy.
pub(super) fn world_with(flags: &[&str]) -> Option<(World, Host, Service)> {
    let mut world = World::new(1)?;
    let client = world.lab.pod(1).unwrap();
    let (pods, servers) = world.servers(1, 1);
    world.hold(servers);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.manifests.write_service(&service).unwrap();
    let mut proxy = world.spawn(flags);
    proxy.wait_until_ready().unwrap();
    world.keep(proxy);
    Some((world, client, service))
}

pub(super) fn is_attached(device: &Value) -> bool {
    device["state"] == "attached"
}

pub(super) fn expect_served(client: &Host, service: &Service) {
    for family in xtask::lab::Family::ALL {
        let mut open = Connection::open(client, service.target(family)).unwrap();
        open.echo("hello").unwrap();
        open.close().unwrap();
    }
}

/// Numbers of the programs at a device.
pub(super) fn programs_at(host: &Host, device: &str) -> Vec<u32> {
    hooks(host, device).concat()
}

/// The same at ingress and at egress.
pub(super) fn hooks(host: &Host, device: &str) -> [Vec<u32>; 2] {
    let query = || {
        let query = |direction| {
            let (_, programs) = SchedClassifier::query_tcx(device, direction)?;
            Ok(programs
                .iter()
                .map(aya::programs::ProgramInfo::id)
                .collect())
        };
        let ingress: anyhow::Result<_> = query(TcAttachType::Ingress);
        Ok([ingress?, query(TcAttachType::Egress)?])
    };
    host.namespace.enter(query).unwrap()
}

/// Gives a device from one host to another.
fn hand_over(from: &Host, to: &Host, device: &str) {
    ip(
        from,
        &[format!("link set {device} netns {}", to.namespace.name())],
    );
}

/// Connects the node to a pod by a device that has lost its addresses and routes.
fn plug(node: &Host, pod: &Host) {
    let device = device_of(pod);
    let mac = format!("02:00:00:00:01:{:02x}", pod.addresses.v4.octets()[3]);
    let (v4, v6) = (pod.addresses.v4, pod.addresses.v6);
    ip(
        node,
        &[
            format!("link set {device} up"),
            format!("address replace fe80::1/64 dev {device} nodad"),
            format!("neighbour replace {v4} lladdr {mac} dev {device} nud permanent"),
            format!("neighbour replace {v6} lladdr {mac} dev {device} nud permanent"),
            format!("route replace {v4} dev {device}"),
            format!("route replace {v6} dev {device}"),
        ],
    );
}
