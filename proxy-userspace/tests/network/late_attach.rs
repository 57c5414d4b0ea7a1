//! What comes in by a device before programs are attached to it is lost, and never refused.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::Service;
use xtask::lab::server::Server;
use xtask::lab::{Family, Host};

use super::nftables::{counted, nft};
use super::world::{Paused, World, wait_until};

/// A firewall that refuses what it does not know, as many a host has one.
const REFUSES: &str = "table inet refuses {
  chain forward {
    type filter hook forward priority filter - 1; policy accept;
    ip daddr 10.96.0.0/16 reject
    ip6 daddr fd00:10:96::/64 reject
  }
}
";

#[test]
fn a_connect_before_the_device_is_attached_is_delayed_and_not_refused() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let (pods, _servers) = world.servers(1, 2);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let node = world.lab.node(1);
    nft(&node, REFUSES);
    let before = counted(&node);

    let paused = Paused::new(world.pid());
    let client = world.lab.pod(1).unwrap();
    thread::scope(|scope| {
        let connects = Family::ALL.map(|family| {
            let target = service.target(family);
            let client = &client;
            scope.spawn(move || greeted(client, target))
        });
        wait_until("both SYNs are dropped", || counted(&node) >= before + 2);
        for family in Family::ALL {
            let socket = datagrams(&client, service.target(family));
            let before = counted(&node);
            wait_until("several datagrams are dropped", || {
                // An ICMP error would come back here, as ECONNREFUSED.
                socket.send(b"hello").unwrap();
                counted(&node) >= before + 3
            });
        }
        assert!(connects.iter().all(|connect| !connect.is_finished()));
        paused.resume();
        for connect in connects {
            let name = connect.join().unwrap();
            assert!(pods.iter().any(|pod| name.contains(&pod.name)), "{name}");
        }
    });
    let after = counted(&node);
    for family in Family::ALL {
        Connection::open(&client, service.target(family)).unwrap();
        Datagrams::open(&client, service.target(family))
            .unwrap()
            .ask()
            .unwrap();
    }
    assert_eq!(
        after,
        counted(&node),
        "nothing is dropped of a device that is served"
    );
    let status = world.look(&["status"]);
    let line = format!("Drops      untranslated {after} ");
    assert!(status.text.contains(&line), "{}", status.text);
    assert_eq!(0, status.code, "{status:?}");
    world.assert_unnoticed(&[&service]);
}

#[test]
fn an_address_that_the_node_has_itself_is_left_alone() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let (pods, _servers) = world.servers(1, 1);
    let service = Service::new("dns", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let node = world.lab.node(1);
    let caches = Family::ALL.map(|family| SocketAddr::new(service.target(family).ip(), 8080));
    for cache in caches {
        world.lab.add_address(&node, cache.ip()).unwrap();
    }
    let _cache = Server::start_at(&node, "cache", &caches).unwrap();
    let paused = Paused::new(world.pid());
    let client = world.lab.pod(1).unwrap();
    let before = counted(&node);
    for cache in caches {
        for from in [&client, &node] {
            let connection = Connection::open(from, cache).unwrap();
            assert_eq!("cache", connection.answer().name);
            let answer = Datagrams::open(from, cache).unwrap().ask().unwrap();
            assert_eq!("cache", answer.name);
        }
    }
    assert_eq!(before, counted(&node));
    paused.resume();
}

#[test]
fn whoever_else_translates_comes_first() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let (pods, _servers) = world.servers(1, 1);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let node = world.lab.node(1);
    let rules = Family::ALL.map(|family| {
        let protocol = ["ip", "ip6"][usize::from(family == Family::V6)];
        let target = service.target(family).ip();
        let to = SocketAddr::new(pods[0].addresses.of(family), 8080);
        format!("{protocol} daddr {target} meta l4proto {{ tcp, udp }} dnat {protocol} to {to}")
    });
    let rules = rules.join("\n");
    nft(
        &node,
        &format!(
            "table inet other {{
  chain prerouting {{ type nat hook prerouting priority dstnat; {rules}
  }}
  chain output {{ type nat hook output priority -100; {rules}
  }}
}}
"
        ),
    );
    let paused = Paused::new(world.pid());
    let client = world.lab.pod(1).unwrap();
    let before = counted(&node);
    for family in Family::ALL {
        for from in [&client, &node] {
            Connection::open(from, service.target(family)).unwrap();
            let flow = Datagrams::open(from, service.target(family)).unwrap();
            assert_eq!(pods[0].name, flow.ask().unwrap().name);
        }
    }
    assert_eq!(before, counted(&node));
    paused.resume();
}

#[test]
fn what_the_node_itself_sends_to_a_service_stays_on_it() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let (pods, _servers) = world.servers(1, 1);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let node = world.lab.node(1);
    for family in Family::ALL {
        let socket = datagrams(&node, service.target(family));
        let before = counted(&node);
        // The sender is told that its packet was not let out.
        let error = socket.send(b"hello").unwrap_err();
        assert_eq!(std::io::ErrorKind::PermissionDenied, error.kind());
        assert_eq!(before + 1, counted(&node));
    }
}

/// Connects, with patience for several SYNs, and reads what the server says of itself.
fn greeted(client: &Host, target: SocketAddr) -> String {
    let connect = || {
        Ok(TcpStream::connect_timeout(
            &target,
            Duration::from_secs(40),
        )?)
    };
    let stream = client.namespace.enter(connect).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

fn datagrams(client: &Host, target: SocketAddr) -> UdpSocket {
    let any = if target.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let open = || {
        let socket = UdpSocket::bind(any)?;
        socket.connect(target)?;
        Ok(socket)
    };
    client.namespace.enter(open).unwrap()
}
