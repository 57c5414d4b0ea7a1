//! What netfilter does with packets that a program has marked. Here rules mark them, before all
//! others.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};

use kube_lottery::config::Mode;
use kube_lottery::netfilter::Counter;
use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::Service;
use xtask::lab::network::Network;
use xtask::lab::server::Server;
use xtask::lab::{Addresses, Family, Host};

use super::netfilter::{keeping, options};
use super::nftables::{nft, packets};
use super::world::{World, serve, wait_until};

/// The bit that asks for masquerading.
pub(super) const MASQUERADE: u32 = 1 << 14;
/// The bit that asks for rejection.
const REJECT: u32 = 1 << 15;

/// Has packets that match marked when they come in, and when the host sends them.
pub(super) fn mark(host: &Host, matching: &str, bits: u32) {
    let rule = format!("{matching} meta mark set meta mark | {bits:#x}");
    nft(
        host,
        &format!(
            "table inet marks {{
  chain in {{ type filter hook prerouting priority mangle; {rule}; }}
  chain out {{ type filter hook output priority mangle; {rule}; }}
}}
"
        ),
    );
}

/// Packets of a counter in a table of the test.
fn seen(host: &Host, counter: &str) -> u64 {
    let mut list = host.namespace.command("nft");
    let output = list
        .args(["list", "counter", "inet", "watch", counter])
        .output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let mut words = text
        .split_whitespace()
        .skip_while(|word| *word != "packets");
    words.nth(1).unwrap().parse().unwrap()
}

/// What the tests take place in. No Service has the endpoint: it is spoken to directly.
pub(super) struct Scene {
    pub(super) world: World,
    pub(super) node: Host,
    pub(super) client: Host,
    pub(super) endpoint: Host,
    _server: Server,
}

impl Scene {
    /// A client on the first node, and a server on the last one; no proxy yet.
    pub(super) fn new(nodes: u8, network: Network) -> Option<Self> {
        let mut world = World::on(nodes, network)?;
        let [client, endpoint] = [1, nodes].map(|node| world.lab.pod(node).unwrap());
        Some(Self {
            node: world.lab.node(1),
            _server: serve(&endpoint),
            world,
            client,
            endpoint,
        })
    }

    fn start(&mut self) {
        self.world.start_with(&Service::new("web", 10));
    }
}

#[test]
fn what_is_marked_leaves_with_an_address_of_the_node_and_a_port_that_is_drawn() {
    let Some(mut scene) = Scene::new(1, Network::default()) else {
        return;
    };
    scene.start();
    let Scene {
        node,
        client,
        endpoint,
        ..
    } = &scene;
    mark(node, "meta l4proto { tcp, udp } th dport 8080", MASQUERADE);
    for family in Family::ALL {
        let target = SocketAddr::new(endpoint.addresses.of(family), 8080);
        let mut ports = Vec::new();
        for _ in 0..4 {
            let mut open = Connection::open(client, target).unwrap();
            open.upload(100_000, 1).unwrap();
            open.download(100_000, 2).unwrap();
            let flow = Datagrams::open(client, target).unwrap();
            for (answer, local) in [
                (open.answer().clone(), open.local().unwrap()),
                (flow.ask().unwrap(), flow.local().unwrap()),
            ] {
                assert_eq!(node.addresses.of(family), answer.peer.ip());
                ports.push((local.port(), answer.peer.port()));
            }
            open.close().unwrap();
        }
        let kept = ports.iter().filter(|(local, seen)| local == seen).count();
        assert!(kept < 3, "{ports:?}");
    }
    scene.world.assert_unnoticed(&[]);
}

#[test]
fn what_carries_a_marked_packet_through_a_tunnel_has_no_mark() {
    let Some(mut scene) = Scene::new(2, Network::vxlan(false)) else {
        return;
    };
    scene.start();
    let Scene {
        node,
        client,
        endpoint,
        ..
    } = &scene;
    mark(node, "meta l4proto { tcp, udp } th dport 8080", MASQUERADE);
    nft(
        node,
        "table inet watch {
  counter carriers { }
  counter carrying { }
  chain output { type filter hook output priority filter;
    udp dport { 4789, 8472 } counter name carriers
    udp dport { 4789, 8472 } meta mark & 0xc000 != 0 counter name carrying
  }
}
",
    );
    for family in Family::ALL {
        let target = SocketAddr::new(endpoint.addresses.of(family), 8080);
        let before = seen(node, "carriers");
        let mut open = Connection::open(client, target).unwrap();
        assert_ne!(client.addresses.of(family), open.answer().peer.ip());
        for _ in 0..5 {
            open.echo("hello").unwrap();
        }
        open.close().unwrap();
        assert!(seen(node, "carriers") >= before + 7);
    }
    assert_eq!(0, seen(node, "carrying"));
}

pub(super) fn refused(from: &Host, target: SocketAddr) {
    let connect = || Ok(TcpStream::connect(target));
    let error = from.namespace.enter(connect).unwrap().unwrap_err();
    assert_eq!(
        io::ErrorKind::ConnectionRefused,
        error.kind(),
        "TCP {} {target}",
        from.name
    );
}

pub(super) fn refused_datagram(from: &Host, target: SocketAddr) {
    let ask = || {
        let any = SocketAddr::new(from.addresses.of(family_of(target)), 0);
        let socket = UdpSocket::bind(any)?;
        socket.set_read_timeout(Some(std::time::Duration::from_secs(20)))?;
        socket.connect(target)?;
        socket.send(b"hello")?;
        Ok(socket.recv(&mut [0; 9]))
    };
    let error = from.namespace.enter(ask).unwrap().unwrap_err();
    assert_eq!(
        io::ErrorKind::ConnectionRefused,
        error.kind(),
        "UDP {} {target}",
        from.name
    );
}

const fn family_of(target: SocketAddr) -> Family {
    if target.is_ipv4() {
        Family::V4
    } else {
        Family::V6
    }
}

/// Has a node answer whatever comes: else ICMP errors are limited to some a second.
pub(super) fn without_limits(node: &Host) {
    let settings = ["ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit"];
    let settings = settings.map(|name| (name.to_owned(), "0"));
    node.namespace.set(&settings).unwrap();
}

#[test]
fn what_is_marked_for_rejection_is_refused_at_once() {
    let Some(mut scene) = Scene::new(1, Network::default()) else {
        return;
    };
    without_limits(&scene.node);
    scene.start();
    let Scene {
        world,
        node,
        client,
        endpoint,
        ..
    } = &scene;
    let _on_node = serve(node);
    let outside = world.lab.outside();
    mark(node, "meta l4proto { tcp, udp } th dport 8080", REJECT);
    for family in Family::ALL {
        for from in [client, outside] {
            for target in [
                SocketAddr::new(endpoint.addresses.of(family), 8080),
                SocketAddr::new(node.addresses.of(family), 8080),
            ] {
                refused(from, target);
                refused_datagram(from, target);
            }
        }
        // A port that no Service has.
        let undefined = SocketAddr::new(Addresses::service(10).of(family), 8080);
        refused(client, undefined);
        refused(node, SocketAddr::new(endpoint.addresses.of(family), 8080));
    }
    // The last one of a family may have been sent again.
    assert!(packets(node, Counter::Rejected) >= 20);
    assert_eq!(0, packets(node, Counter::Untranslated));
    let status = world.look(&["status"]).text;
    assert!(status.contains(" rejected "), "{status}");
}

/// Here a program marks them.
#[test]
fn who_speaks_to_a_service_without_endpoints_is_refused_at_once() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let (pods, _servers) = world.servers(1, 1);
    let client = world.lab.pod(1).unwrap();
    let node = world.lab.node(1);
    without_limits(&node);
    let empty = Service::new("empty", 10);
    let web = Service::new("web", 11).with(world.endpoints(1, &pods));
    world.manifests.write_service(&web).unwrap();
    world.start_with(&empty);
    let clients = [&client, world.lab.outside()];
    for family in Family::ALL {
        for from in clients {
            refused(from, empty.target(family));
            refused_datagram(from, empty.target(family));
        }
    }
    world.kill();
    let config = super::nftables::configured_for_nftables(&world);
    let mut proxy = world.spawn(&["--config", &config]);
    proxy.wait_until_ready().unwrap();
    for family in Family::ALL {
        for from in [&client, world.lab.outside()] {
            refused(from, empty.target(family));
            // A port that the Service does not have.
            let undefined = SocketAddr::new(web.target(family).ip(), 81);
            refused(from, undefined);
            refused_datagram(from, undefined);
        }
        Connection::open(&client, web.target(family)).unwrap();
    }
    assert_eq!(0, packets(&node, Counter::Untranslated));
}

#[test]
fn an_established_connection_is_not_rejected() {
    let Some(mut scene) = Scene::new(1, Network::default()) else {
        return;
    };
    without_limits(&scene.node);
    scene.start();
    let Scene {
        node,
        client,
        endpoint,
        ..
    } = &scene;
    let targets = Family::ALL.map(|family| SocketAddr::new(endpoint.addresses.of(family), 8080));
    let mut open = targets.map(|target| Connection::open(client, target).unwrap());
    let flows = targets.map(|target| Datagrams::open(client, target).unwrap());
    for flow in &flows {
        flow.ask().unwrap();
    }
    mark(node, "meta l4proto { tcp, udp } th dport 8080", REJECT);
    for target in targets {
        refused(client, target);
    }
    for connection in &mut open {
        connection.upload(100_000, 1).unwrap();
        connection.echo("still there?").unwrap();
    }
    for flow in &flows {
        flow.ask().unwrap();
    }
}

#[test]
fn what_conntrack_does_not_know_is_dropped_unless_it_is_told_to_be_liberal() {
    let Some(mut scene) = Scene::new(1, Network::default()) else {
        return;
    };
    scene.start();
    let Scene {
        mut world,
        node,
        client,
        endpoint,
        _server,
    } = scene;
    let node = &node;
    for (family, seen) in Family::ALL.into_iter().zip(1..) {
        let target = SocketAddr::new(endpoint.addresses.of(family), 8080);
        let open = Connection::open(&client, target).unwrap();
        xtask::lab::observe::forget_connections(&node.namespace).unwrap();
        open.reset().unwrap();
        wait_until("it is counted", || packets(node, Counter::Invalid) == seen);
    }
    world.stop();
    let chain = || {
        let mut list = node.namespace.command("nft");
        let output = list
            .args(["list", "chain", "ip6", "kube-lottery", "forward"])
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert!(chain().contains("ct state invalid"), "{}", chain());
    let liberal = ("netfilter/nf_conntrack_tcp_be_liberal".to_owned(), "1");
    node.namespace.set(&[liberal]).unwrap();
    keeping(node, None, options(Mode::Iptables), |_keeping| {
        wait_until("it is gone", || !chain().contains("ct state invalid"));
    });
    // In the other mode it is never there.
    let strict = ("netfilter/nf_conntrack_tcp_be_liberal".to_owned(), "0");
    node.namespace.set(&[strict]).unwrap();
    keeping(node, None, options(Mode::Nftables), |_keeping| {
        wait_until("the mode is another", || {
            chain().contains("reject") && {
                super::nftables::listed(node).contains("set cluster-ips ")
            }
        });
    });
    assert!(!chain().contains("ct state invalid"), "{}", chain());
}
