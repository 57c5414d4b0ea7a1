//! The two accepts in the chain FORWARD of `iptables-nft`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use kube_lottery::config::Mode;
use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::Service;
use xtask::lab::network::Network;
use xtask::lab::{Family, Host};

use super::marks::{MASQUERADE, Scene, mark};
use super::netfilter::{keeping, options};
use super::nftables::nft;
use super::world::{World, wait_until};

/// The chains as `iptables-nft` makes them, with the policy that Docker sets.
pub(super) const CHAINS: &str = "\
add table ip filter
add chain ip filter FORWARD { type filter hook forward priority filter; policy drop; }
add table ip6 filter
add chain ip6 filter FORWARD { type filter hook forward priority filter; policy drop; }
";

const COMMANDS: [&str; 2] = ["iptables-nft", "ip6tables-nft"];

const RULES: [&str; 2] = [
    "-A FORWARD -m mark --mark 0x4000/0x4000 -m comment --comment \
     \"kube-lottery: to be masqueraded (0x4000)\" -j ACCEPT",
    "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -m comment --comment \
     \"kube-lottery: related, established\" -j ACCEPT",
];

/// How many accepts of ours the chains have.
pub(super) fn accepts(host: &Host) -> [usize; 2] {
    ["ip", "ip6"].map(|family| {
        let mut list = host.namespace.command("nft");
        let output = list.args(["list", "chain", family, "filter", "FORWARD"]);
        let output = String::from_utf8(output.output().unwrap().stdout).unwrap();
        output.matches(" accept").count()
    })
}

fn iptables(host: &Host, command: &str, args: &str) -> String {
    let output = host
        .namespace
        .command(command)
        .args(args.split(' '))
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{command} {args}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The rules of the chain in the words of `iptables`.
fn rules(host: &Host, command: &str) -> Vec<String> {
    let listed = iptables(host, command, "-S FORWARD");
    listed.lines().map(str::to_owned).collect()
}

/// Waits until the chain has these rules.
fn wait_for_rules(host: &Host, expected: &[String], commands: &[&str]) {
    let end = Instant::now() + Duration::from_secs(30);
    for command in commands {
        while rules(host, command) != expected && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(expected, rules(host, command), "{command}");
    }
}

#[test]
fn marked_and_established_packets_pass_where_the_policy_is_to_drop() {
    let Some(scene) = Scene::new(1, Network::default()) else {
        return;
    };
    let Scene {
        mut world,
        node,
        client,
        endpoint,
        ..
    } = scene;
    for command in COMMANDS {
        iptables(&node, command, "-P FORWARD DROP");
        iptables(
            &node,
            command,
            "-A FORWARD -p udp --dport 8080 -m mark --mark 0/0x4000 -j DROP",
        );
    }
    world.start_with(&Service::new("web", 10));
    let last = "-A FORWARD -p udp -m udp --dport 8080 -m mark --mark 0x0/0x4000 -j DROP";
    let all = ["-P FORWARD DROP", RULES[0], RULES[1], last].map(str::to_owned);
    wait_for_rules(&node, &all, &COMMANDS);
    let status = world.json(&["status"]);
    let families = serde_json::json!(["IPv4", "IPv6"]);
    assert_eq!(families, status["netfilter"]["forwardAccepts"]);

    for family in Family::ALL {
        let target = SocketAddr::new(endpoint.addresses.of(family), 8080);
        let flow = Datagrams::open(&client, target).unwrap();
        // Not marked: what is sent counts at the rule behind ours.
        let send = || {
            let from = SocketAddr::new(client.addresses.of(family), 0);
            let socket = std::net::UdpSocket::bind(from)?;
            Ok(socket.send_to(b"hello", target)?)
        };
        client.namespace.enter(send).unwrap();
        let command = COMMANDS[usize::from(family == Family::V6)];
        wait_until("it is dropped", || {
            let listed = iptables(&node, command, "-v -S FORWARD");
            let line = listed.lines().find(|line| line.contains("0x0/0x4000"));
            line.unwrap().contains("-c 1 ")
        });
        mark(
            &node,
            &format!(
                "meta l4proto {{ tcp, udp }} th dport 8080 ip{} daddr {}",
                if family == Family::V6 { "6" } else { "" },
                target.ip()
            ),
            MASQUERADE,
        );
        let mut open = Connection::open(&client, target).unwrap();
        open.upload(100_000, 1).unwrap();
        open.download(100_000, 2).unwrap();
        open.close().unwrap();
        assert_eq!(endpoint.name, flow.ask().unwrap().name);
    }
}

#[test]
fn the_accepts_are_kept_and_nothing_else_is_touched() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let node = world.lab.node(1);
    world.start_with(&Service::new("web", 10));
    // No table is made for them.
    assert_eq!(
        serde_json::json!([]),
        world.json(&["status"])["netfilter"]["forwardAccepts"]
    );
    let own = "-A FORWARD -s 192.0.2.1/32 -j DROP";
    let all = |others: &[&str]| {
        let mut all = vec!["-P FORWARD ACCEPT".to_owned()];
        all.extend(RULES.iter().chain(others).map(|rule| (*rule).to_owned()));
        all
    };
    let wait_for = |expected: &[String]| wait_for_rules(&node, expected, &COMMANDS[..1]);
    iptables(&node, COMMANDS[0], "-A FORWARD -s 192.0.2.1 -j DROP");
    wait_for(&all(&[own]));
    iptables(&node, COMMANDS[0], "-F FORWARD");
    wait_for(&all(&[]));
    iptables(&node, COMMANDS[0], "-D FORWARD 2");
    wait_for(&all(&[]));
    // Whoever wants to be first may be.
    iptables(&node, COMMANDS[0], "-I FORWARD -s 192.0.2.1 -j DROP");
    let mut first = all(&[]);
    first.insert(1, own.to_owned());
    // What iptables has saved and restored is what it was.
    let saved = node
        .namespace
        .command("iptables-nft-save")
        .output()
        .unwrap();
    let path = world.lab.folder().join("saved");
    std::fs::write(&path, saved.stdout).unwrap();
    iptables(&node, "iptables-nft-restore", path.to_str().unwrap());
    wait_for(&first);
    iptables(&node, COMMANDS[0], "-D FORWARD -s 192.0.2.1 -j DROP");
    iptables(&node, COMMANDS[0], "-A FORWARD -s 192.0.2.1 -j DROP");
    // Another copy of one.
    nft(
        &node,
        "add rule ip filter FORWARD accept comment \"kube-lottery: strange\"",
    );
    wait_for(&all(&[own]));

    let families = || world.json(&["status"])["netfilter"]["forwardAccepts"].clone();
    assert_eq!(serde_json::json!(["IPv4"]), families());
    nft(&node, "delete table ip filter");
    wait_until("it is told", || families() == serde_json::json!([]));
    assert_eq!(0, world.look(&["status"]).code);
}

#[test]
fn the_mode_of_nftables_has_none() {
    let Some(world) = World::new(1) else {
        return;
    };
    let node = world.lab.node(1);
    nft(&node, CHAINS);
    keeping(&node, None, options(Mode::Iptables), |mut keeping| {
        keeping.wait_for(|state| state.accepts.len() == 2);
    });
    assert_eq!([2, 2], accepts(&node));
    keeping(&node, None, options(Mode::Nftables), |mut keeping| {
        wait_until("they are gone", || accepts(&node) == [0, 0]);
        let state = keeping.wait_for(|_| true);
        assert_eq!(None, state.trouble);
    });
}
