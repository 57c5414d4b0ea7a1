//! Programs that are attached by filters, as before Linux 6.6, and filters of others.

use serde_json::Value;
use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::{Endpoint, Service};
use xtask::lab::proxy::Proxy;
use xtask::lab::{Family, Host};

use super::cleanup::run;
use super::foreign::{Foreign, NEXT, OK};
use super::moves::{expect_served, hooks, is_attached, world_with};
use super::pinned::place;
use super::traffic::during;
use super::world::{World, binary, device_of, serve, wait_until};

const FLAGS: [&str; 2] = ["--attach", "clsact"];

#[test]
fn filters_serve_over_restarts_and_leave_nothing_behind() {
    let Some((mut world, client, service)) = world_with(&FLAGS) else {
        return;
    };
    let node = world.lab.node(1);
    let device = device_of(&client);
    let told = world.wait_for_device(&device, is_attached);
    assert_eq!("clsact", told["mode"]);
    assert_eq!([0, 0], hooks(&node, &device).map(|programs| programs.len()));
    expect_served(&client, &service);
    let ((), tally) = during(
        &client,
        &service,
        |_| true,
        |_| {
            for _ in 0..5 {
                restart(&mut world);
                assert_eq!([1, 1], filters(&node, &device).map(|filters| filters.len()));
            }
        },
    );
    assert!(tally.connections.into_inner() > 0);
    // A pod that comes later, and one that goes.
    let late = world.lab.pod(1).unwrap();
    world.wait_for_device(&device_of(&late), is_attached);
    expect_served(&late, &service);
    expect_served(&client, &service);
    world.assert_unnoticed(&[&service]);

    world.kill();
    let removed = run(&node, &["cleanup"]);
    assert!(removed.status.success(), "{removed:?}");
    let left = tc(&node, &["qdisc", "show"]);
    assert!(!left.contains("clsact"), "{left}");
    assert!(!place(&node).folder().exists());
    assert!(Connection::open(&client, service.target(Family::V4)).is_err());
}

#[test]
fn every_path_works_by_filters() {
    let Some(mut world) = World::new(2) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let outside = world.lab.outside().clone();
    let hosts = [
        client.clone(),
        world.lab.pod(1).unwrap(),
        world.lab.pod(2).unwrap(),
        world.lab.node(1),
    ];
    let servers = hosts.iter().map(serve).collect();
    world.hold(servers);
    let endpoints = [1, 1, 2, 1].map(|number| world.lab.node(number));
    let endpoints = hosts.iter().zip(&endpoints);
    let all = Service::new("all", 10);
    let all = all.with(endpoints.map(|(host, node)| Endpoint::new(host, node)));
    // Answers of another node would not come back by this one.
    let here = Service::new("here", 11).with(world.endpoints(1, &hosts[..2]));
    for service in [&all, &here] {
        world.manifests.write_service(service).unwrap();
    }
    for node in world.lab.nodes().to_vec() {
        let proxy = world
            .lab
            .start_proxy_with(&node, &binary(), &world.manifests, &FLAGS);
        world.keep(proxy.unwrap());
    }
    for (from, service, hosts) in [(&client, &all, &hosts[..]), (&outside, &here, &hosts[..2])] {
        for family in Family::ALL {
            reach_all(from, service, family, hosts);
        }
    }
    world.assert_unnoticed(&[&all, &here]);
}

/// Each of these endpoints is drawn, and works in every way.
fn reach_all(from: &Host, service: &Service, family: Family, hosts: &[Host]) {
    let target = service.target(family);
    for host in hosts {
        // 200 draws miss one of four once in 10^25 times.
        let found = (0..200).any(|_| {
            let mut open = Connection::open(from, target).unwrap();
            open.upload(10_000, 1).unwrap();
            let found = open.answer().name == host.name;
            open.close().unwrap();
            Datagrams::open(from, target).unwrap().ask().unwrap();
            found
        });
        assert!(found, "{} was never drawn over {family}", host.name);
    }
}

#[test]
fn what_others_have_hung_on_a_device_stays_there() {
    let Some((mut world, client, service)) = world_with(&FLAGS) else {
        return;
    };
    let node = world.lab.node(1);
    world.kill();
    // A queueing discipline that was there before, and a filter of another at the place of ours.
    let other = world.lab.pod(1).unwrap();
    let theirs = device_of(&other);
    tc(&node, &["qdisc", "add", "dev", &theirs, "clsact"]);
    let program = Foreign::new("theirs", OK);
    program.filter(&node, &theirs, "ingress prio 1", "theirs");
    program.filter(&node, &theirs, "egress prio 7", "theirs");
    restart(&mut world);
    let told = world.wait_for_device(&theirs, |told| {
        is_attached(told) && told["warnings"].to_string().contains("theirs")
    });
    assert_eq!("clsact", told["mode"]);
    // Ours comes first: else the other would let everything pass untranslated.
    expect_served(&other, &service);

    // One that comes before ours is gone before again.
    let ((), _) = during(
        &client,
        &service,
        |_| true,
        |_| {
            let device = device_of(&client);
            let program = Foreign::new("later", NEXT);
            for way in ["ingress", "egress"] {
                program.filter(&node, &device, &format!("{way} prio 1"), "later");
            }
            wait_until("ours is first again", || {
                filters(&node, &device)
                    .iter()
                    .all(|filters| filters.len() == 2 && filters[0].contains("kube-lottery"))
            });
        },
    );

    world.kill();
    assert!(run(&node, &["cleanup"]).status.success());
    let left = filters(&node, &theirs);
    assert_eq!([1, 1], left.each_ref().map(Vec::len), "{left:?}");
    // Ours to begin with, but used by another since.
    let left = filters(&node, &device_of(&client));
    assert_eq!([1, 1], left.each_ref().map(Vec::len), "{left:?}");
}

#[test]
fn devices_without_a_place_for_both_programs_are_refused() {
    let Some((mut world, _client, service)) = world_with(&FLAGS) else {
        return;
    };
    let node = world.lab.node(1);
    world.kill();
    let (shaped, guarded) = (world.lab.pod(1).unwrap(), world.lab.pod(1).unwrap());
    tc(
        &node,
        &["qdisc", "add", "dev", &device_of(&shaped), "ingress"],
    );
    let device = device_of(&guarded);
    tc(&node, &["qdisc", "add", "dev", &device, "clsact"]);
    // Another protocol at the first place keeps ours from there.
    let program = Foreign::new("guard", OK);
    program.filter(&node, &device, "ingress prio 1 protocol ip", "guard");
    restart(&mut world);
    let reason = |pod: &Host| {
        let told = world.wait_for_device(&device_of(pod), |told| told["state"] == "refused");
        told["reason"].as_str().unwrap().to_owned()
    };
    assert!(reason(&shaped).contains("ingress queueing discipline"));
    assert!(reason(&guarded).contains("bpf filter at ingress"));
    assert_eq!(1, world.look(&["status"]).code);
    // Nothing of ours is left at one that cannot have both.
    assert!(filters(&node, &device)[1].is_empty());
    // As soon as there is a place they are served.
    tc(
        &node,
        &["qdisc", "delete", "dev", &device_of(&shaped), "ingress"],
    );
    tc(&node, &["filter", "delete", "dev", &device, "ingress"]);
    for pod in [&shaped, &guarded] {
        world.wait_for_device(&device_of(pod), is_attached);
        expect_served(pod, &service);
    }
    assert_eq!(0, world.look(&["status"]).code);
}

#[test]
fn another_mode_takes_over() {
    let Some((mut world, client, service)) = world_with(&FLAGS) else {
        return;
    };
    let node = world.lab.node(1);
    let device = device_of(&client);
    world.kill();
    world.start();
    assert_eq!("tcx", world.device(&device).unwrap()["mode"]);
    assert_eq!([0, 0], filters(&node, &device).map(|filters| filters.len()));
    assert_eq!([1, 1], hooks(&node, &device).map(|programs| programs.len()));
    expect_served(&client, &service);
    restart(&mut world);
    assert_eq!([1, 1], filters(&node, &device).map(|filters| filters.len()));
    assert_eq!([0, 0], hooks(&node, &device).map(|programs| programs.len()));
    expect_served(&client, &service);
}

#[test]
fn filters_of_others_are_told_of_beside_tcx() {
    let Some((world, client, service)) = world_with(&[]) else {
        return;
    };
    let node = world.lab.node(1);
    let device = device_of(&client);
    tc(&node, &["qdisc", "add", "dev", &device, "clsact"]);
    let program = Foreign::new("policy", NEXT);
    program.filter(&node, &device, "ingress prio 1", "policy");
    let warned = |word: &'static str| {
        move |told: &Value| is_attached(told) && told["warnings"].to_string().contains(word)
    };
    world.wait_for_device(&device, warned("policy"));
    assert_eq!(1, world.look(&["status"]).code);
    expect_served(&client, &service);
    program.filter(&node, &device, "egress prio 1", "cil_to_container");
    world.wait_for_device(&device, warned("Cilium"));
    tc(&node, &["qdisc", "delete", "dev", &device, "clsact"]);
    wait_until("all is well", || world.look(&["status"]).code == 0);
}

fn restart(world: &mut World) {
    world.kill();
    let mut proxy: Proxy = world.spawn(&FLAGS);
    proxy.wait_until_ready().unwrap();
    world.keep(proxy);
}

fn tc(host: &Host, args: &[&str]) -> String {
    let output = host.namespace.command("tc").args(args).output().unwrap();
    assert!(output.status.success(), "tc {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The filters of a device in their order, at ingress and at egress.
fn filters(host: &Host, device: &str) -> [Vec<String>; 2] {
    ["ingress", "egress"].map(|way| {
        let mut command = host.namespace.command("tc");
        let output = command
            .args(["filter", "show", "dev", device, way])
            .output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let filters = text.lines().filter(|line| line.contains("handle"));
        filters.map(str::to_owned).collect()
    })
}
