//! A controller whose clock is not that of the one before, or not the kernel's: flows keep their time.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use xtask::lab::Family;
use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::Service;

use super::world::{World, binary, wait_until};

/// The proxy in a time namespace whose clock is so many seconds ahead.
fn ahead(world: &World, seconds: i64) -> PathBuf {
    let script = world.lab.folder().join(format!("ahead{seconds}"));
    let run = format!(
        "#!/bin/sh\nexec unshare --time --monotonic={seconds} --boottime={seconds} {} \"$@\"\n",
        binary().display()
    );
    fs::write(&script, run).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    script
}

/// Whether processes can have a clock of their own here from their first instruction on (Linux 6.1).
fn has_time_namespaces() -> bool {
    let uptime = |offset: &str| {
        let mut command = std::process::Command::new("unshare");
        let command = command.args(["--time", "--boottime", offset, "cat", "/proc/uptime"]);
        let output = command.output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        text.split('.').next()?.parse::<u64>().ok()
    };
    uptime("0")
        .zip(uptime("86400"))
        .is_some_and(|(here, there)| there >= here + 86_400)
}

/// Live flows of the Service, as they are shown.
fn live(world: &World) -> u64 {
    let services = world.json(&["services"]);
    let ports = services["items"][0]["ports"].as_array().unwrap();
    ports
        .iter()
        .map(|port| port["flows"].as_u64().unwrap())
        .sum()
}

// B207, B209
#[test]
fn flows_live_as_long_as_before_under_a_controller_with_another_clock() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let mut streams: Vec<_> = Family::ALL
        .map(|family| Connection::open(&client, service.target(family)).unwrap())
        .into();
    let flows: Vec<_> = Family::ALL
        .map(|family| Datagrams::open(&client, service.target(family)).unwrap())
        .into();
    let names: Vec<_> = flows.iter().map(|flow| flow.ask().unwrap().name).collect();
    let before = live(&world);
    assert_eq!(4, before);
    if !has_time_namespaces() {
        return;
    }
    // Ahead, everything would seem to be over; behind, nothing ever.
    for seconds in [30 * 86_400, -60] {
        world.kill();
        let script = ahead(&world, seconds);
        let node = world.lab.node(1);
        let proxy = world.lab.spawn_proxy(&node, &script, &world.manifests, &[]);
        let mut proxy = proxy.unwrap();
        proxy.wait_until_ready().unwrap();
        world.keep(proxy);
        for stream in &mut streams {
            stream.echo("still here").unwrap();
        }
        for (flow, name) in flows.iter().zip(&names) {
            assert_eq!(*name, flow.ask().unwrap().name);
        }
        wait_until("the same flows are shown", || live(&world) == before);
    }
    world.assert_unnoticed(&[&service]);
}
