//! The nftables tables: what is in them, and that it stays so.

use std::io::Write as _;
use std::net::UdpSocket;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use kube_lottery::netfilter::{Counter, counts};
use xtask::lab::manifest::Service;
use xtask::lab::{Family, Host};

use super::traffic::during;
use super::world::{Paused, World, wait_until};

/// Feeds `nft` inside of a host.
pub(super) fn nft(host: &Host, input: &str) {
    let mut command = host.namespace.command("nft");
    let mut child = command
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{input}: {said}");
}

/// What `nft` says of our tables, less what counters have; empty where there is none.
pub(super) fn listed(host: &Host) -> String {
    let mut all = String::new();
    for family in ["ip", "ip6"] {
        let mut command = host.namespace.command("nft");
        let output = command
            .args(["list", "table", family, "kube-lottery"])
            .output();
        for line in String::from_utf8(output.unwrap().stdout).unwrap().lines() {
            let is_count = line.trim_start().starts_with("packets ");
            all += if is_count { "\t\tpackets …" } else { line };
            all.push('\n');
        }
    }
    all
}

/// How many packets were dropped because nobody had translated them.
pub(super) fn counted(host: &Host) -> u64 {
    packets(host, Counter::Untranslated)
}

/// How many packets a counter of ours has seen.
pub(super) fn packets(host: &Host, counter: Counter) -> u64 {
    let counts = host.namespace.enter(|| Ok(counts()?)).unwrap();
    counts.get(&counter).copied().unwrap_or_default().packets
}

/// The tables of two Services, in the words of `nft`.
fn tables() -> String {
    let v4 = ["10.96.0.10", "10.96.0.11"];
    let v6 = ["fd00:10:96::a", "fd00:10:96::b"];
    table("ip", "ipv4_addr", &v4) + &table("ip6", "ipv6_addr", &v6)
}

fn table(family: &str, kind: &str, addresses: &[&str]) -> String {
    let ports = ["tcp", "udp"].into_iter().flat_map(|protocol| {
        let all = addresses.iter();
        all.map(move |address| format!("{address} . {protocol} . 80"))
    });
    let elements = ports.collect::<Vec<_>>().join(",\n\t\t\t     ");
    let late = format!(
        "meta mark & 0x00008000 == 0x00000000 \
         {family} daddr . meta l4proto . th dport @cluster-ip-ports \
         fib daddr type != local counter name \"untranslated\" drop"
    );
    let reject =
        "meta mark & 0x00008000 != 0x00000000 ct state new counter name \"rejected\" reject";
    format!(
        "\
table {family} kube-lottery {{
	counter untranslated {{
		packets …
	}}

	counter rejected {{
		packets …
	}}

	counter invalid {{
		packets …
	}}

	set cluster-ip-ports {{
		type {kind} . inet_proto . inet_service
		elements = {{ {elements} }}
	}}

	chain prerouting {{
		type filter hook prerouting priority 200; policy accept;
		{late}
	}}

	chain forward {{
		type filter hook forward priority -110; policy accept;
		{reject}
		ct state invalid counter name \"invalid\" drop
	}}

	chain input {{
		type filter hook input priority -110; policy accept;
		{reject}
	}}

	chain output {{
		type filter hook output priority 200; policy accept;
		{reject}
		{late}
	}}

	chain postrouting {{
		type nat hook postrouting priority srcnat - 5; policy accept;
		meta mark & 0x00004000 != 0x00000000 meta mark set meta mark & 0xffffbfff masquerade fully-random
	}}

	chain clear-postrouting {{
		type filter hook postrouting priority 200; policy accept;
		meta mark set meta mark & 0xffff3fff
	}}

	chain clear-input {{
		type filter hook input priority 200; policy accept;
		meta mark set meta mark & 0xffff3fff
	}}
}}
"
    )
}

#[test]
fn what_anybody_else_changes_is_put_right_under_traffic() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    let other = Service::new("other", 11).with(world.endpoints(1, &pods));
    world.manifests.write_service(&other).unwrap();
    world.start_with(&service);
    let node = world.lab.node(1);
    let tables = tables();
    assert_eq!(tables, listed(&node));
    // Something to lose.
    let lost = || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        Ok(socket.send_to(b"hello", service.target(Family::V4)))
    };
    node.namespace.enter(lost).unwrap().unwrap_err();
    assert_eq!(1, counted(&node));
    wait_until("the controller has seen it", || {
        world.look(&["status"]).text.contains("untranslated 1 ")
    });

    let ((), _) = during(
        &client,
        &service,
        |_| true,
        |_| {
            for change in [
                "flush table ip kube-lottery",
                "flush set ip kube-lottery cluster-ip-ports",
                "flush chain ip kube-lottery postrouting",
                "add rule ip6 kube-lottery clear-input drop",
                "delete table ip6 kube-lottery",
                "delete table ip kube-lottery\ndelete table ip6 kube-lottery",
                "delete element ip kube-lottery cluster-ip-ports { 10.96.0.10 . tcp . 80 }",
                "add element ip kube-lottery cluster-ip-ports { 10.244.1.10 . udp . 8080 }",
                "insert rule ip kube-lottery prerouting accept",
                "add table ip kube-lottery { flags dormant; }",
                "add chain ip6 kube-lottery strange { type filter hook input priority 0; policy drop; }",
                "add set ip kube-lottery strange { type inet_service; elements = { 80 }; }
             add rule ip kube-lottery output tcp dport @strange accept",
                "add quota ip kube-lottery strange { 10 mbytes }",
                "flush chain ip kube-lottery output
             flush chain ip kube-lottery prerouting
             delete set ip kube-lottery cluster-ip-ports
             add set ip kube-lottery cluster-ip-ports { type inet_service; }",
            ] {
                let paused = Paused::new(world.pid());
                nft(&node, change);
                assert_ne!(tables, listed(&node), "{change}");
                paused.resume();
                wait_until("it is put right", || tables == listed(&node));
            }
        },
    );
    // Counters that were deleted went on from where they were.
    assert_eq!(1, counted(&node));
    wait_until("all is well", || world.look(&["status"]).code == 0);
}

#[test]
fn a_restart_finds_the_tables_and_goes_on_counting() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let (pods, _servers) = world.servers(1, 2);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    let other = Service::new("other", 11).with(world.endpoints(1, &pods));
    world.manifests.write_service(&other).unwrap();
    world.start_with(&service);
    let node = world.lab.node(1);
    let client = world.lab.pod(1).unwrap();
    world.kill();
    // In force without a controller, at a device that may not have been attached.
    let late = world.lab.pod(1).unwrap();
    let socket = late.namespace.enter(|| Ok(UdpSocket::bind("0.0.0.0:0")?));
    let socket = socket.unwrap();
    wait_until("several are counted", || {
        let target = service.target(Family::V4);
        socket.send_to(b"hello", target).unwrap();
        counted(&node) >= 5
    });
    drop(socket);
    let dropped = counted(&node);

    // As long as not all is known, what is not declared any more may yet be.
    world.manifests.remove("service-other").unwrap();
    world.manifests.write("broken", "kind: [").unwrap();
    world.start();
    assert_eq!(tables(), listed(&node));
    world.manifests.remove("broken").unwrap();
    let left =
        table("ip", "ipv4_addr", &["10.96.0.10"]) + &table("ip6", "ipv6_addr", &["fd00:10:96::a"]);
    wait_until("what nobody declares is gone", || left == listed(&node));
    assert_eq!(dropped, counted(&node));

    // While there was none, somebody took the table away.
    world.kill();
    nft(&node, "delete table ip kube-lottery");
    let ((), _) = during(&client, &service, |_| true, |_| world.start());
    assert_eq!(left, listed(&node));
}

/// A configuration of the mode of nftables, with another bit for masquerading.
pub(super) fn configured_for_nftables(world: &World) -> String {
    let path = world.lab.folder().join("config.yaml");
    let config = "apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
nftables: {masqueradeBit: 10}
";
    std::fs::write(&path, config).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn another_mode_or_bit_replaces_the_tables_at_a_restart_and_no_connection_notices() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let (pods, _servers) = world.servers(1, 2);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    let other = Service::new("other", 11).with(world.endpoints(1, &pods));
    world.manifests.write_service(&other).unwrap();
    world.start_with(&service);
    let node = world.lab.node(1);
    let client = world.lab.pod(1).unwrap();
    let config = configured_for_nftables(&world);
    let ((), _) = during(
        &client,
        &service,
        |_| true,
        |_| {
            world.kill();
            let mut proxy = world.spawn(&["--config", &config]);
            proxy.wait_until_ready().unwrap();
            world.keep(proxy);
            let listed = listed(&node);
            assert!(
                listed.contains("elements = { 10.96.0.10, 10.96.0.11 }"),
                "{listed}"
            );
            assert!(
                listed.contains("mark & 0x00000400 != 0x00000000"),
                "{listed}"
            );
            assert!(!listed.contains("0x00004000"), "{listed}");
            assert!(!listed.contains("cluster-ip-ports"), "{listed}");
            assert!(!listed.contains("counter invalid"), "{listed}");
            world.kill();
            world.start();
        },
    );
    assert_eq!(tables(), listed(&node));
}

#[test]
fn a_table_that_cannot_be_had_is_told_once_and_costs_nothing_else() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    let node = world.lab.node(1);
    // A table with an owner is nobody else's to change, and goes with its owner.
    let mut owner = node.namespace.command("nft");
    let mut owner = owner
        .arg("-i")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = owner.stdin.take().unwrap();
    stdin
        .write_all(b"add table ip kube-lottery { flags owner; }\n")
        .unwrap();
    wait_until("the name is taken", || !listed(&node).is_empty());

    world.start_with(&service);
    let status = world.look(&["status"]);
    assert_eq!(1, status.code, "{status:?}");
    let line = "Wrong      nftables rules not in force: IPv4: Operation not permitted";
    assert!(status.text.contains(line), "{}", status.text);
    let ((), _) = during(
        &client,
        &service,
        |_| true,
        |_| {
            for number in 11..15 {
                let other = Service::new(&format!("web{number}"), number);
                world.manifests.write_service(&other).unwrap();
            }
            wait_until("all are served", || {
                world.look(&["status"]).text.contains("20 frontends")
            });
        },
    );
    let told = world.log().matches("nftables rules not in force").count();
    assert_eq!(1, told, "{}", world.log());

    drop(stdin);
    owner.wait().unwrap();
    // Nobody tells that an owner has gone.
    let end = Instant::now() + Duration::from_mins(1);
    while world.look(&["status"]).code != 0 && Instant::now() < end {
        thread::sleep(Duration::from_millis(50));
    }
    assert!(listed(&node).contains("10.96.0.14"), "{}", world.log());
}
