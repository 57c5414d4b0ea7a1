//! Echo requests to addresses of Services, which are no port of theirs.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, connect, ipproto, socket};
use xtask::lab::manifest::Service;
use xtask::lab::network::Network;
use xtask::lab::{Family, Host};

use super::marks::without_limits;
use super::nftables::nft;
use super::world::{World, wait_until};

/// An ICMP socket; what it sends are echo requests.
fn echo(from: &Host, to: IpAddr) -> UdpSocket {
    let (family, proto) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let open = || {
        let socket = socket(family, SocketType::DGRAM, Some(proto))?;
        connect(&socket, &SocketAddr::new(to, 0))?;
        Ok(socket)
    };
    from.namespace
        .set(&[("ipv4/ping_group_range".to_owned(), "0 0")])
        .unwrap();
    let socket = UdpSocket::from(from.namespace.enter(open).unwrap());
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // Type 8 or 128, code 0; the kernel fills in the rest.
    let kind = if to.is_ipv4() { 8 } else { 128 };
    socket.send(&[kind, 0, 0, 0, 0, 0, 0, 1]).unwrap();
    socket
}

/// Fails unless an address answers an echo request.
pub(super) fn echoed(from: &Host, to: IpAddr) {
    let length = echo(from, to).recv(&mut [0; 100]);
    assert_eq!(8, length.unwrap(), "{} {to}", from.name);
}

fn passed(node: &Host) -> u64 {
    let mut list = node.namespace.command("nft");
    let output = list
        .args(["list", "counter", "inet", "watch", "echoes"])
        .output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let mut words = text
        .split_whitespace()
        .skip_while(|word| *word != "packets");
    words.nth(1).unwrap().parse().unwrap()
}

/// As in kube-proxy: one mode leaves them alone, and they go where the route says, once; the other
/// refuses them.
// B226
#[test]
fn an_echo_request_to_a_cluster_ip_goes_round_in_no_circle() {
    for mode in ["iptables", "nftables"] {
        let Some(mut world) = World::on(1, Network::default()) else {
            return;
        };
        world.configure(&format!("mode: {mode}"));
        let client = world.lab.pod(1).unwrap();
        let (pods, _servers) = world.servers(1, 1);
        let service = Service::new("web", 10).with(world.endpoints(1, &pods));
        world.start_with(&service);
        let node = world.lab.node(1);
        without_limits(&node);
        nft(
            &node,
            "table inet watch {
  counter echoes { }
  chain forward { type filter hook forward priority -200;
    icmp type echo-request counter name echoes
    icmpv6 type echo-request counter name echoes
  }
}
",
        );
        let mut sent = 0;
        for family in Family::ALL {
            for from in [&client, world.lab.outside()] {
                let socket = echo(from, service.target(family).ip());
                sent += 1;
                if mode == "nftables" {
                    let error = socket.recv(&mut [0; 100]).unwrap_err();
                    assert_eq!(ErrorKind::ConnectionRefused, error.kind(), "{}", from.name);
                }
                wait_until("it has come by", || passed(&node) >= sent);
            }
        }
        // Longer than a packet lives that goes round: until an endpoint has answered another one.
        for _ in 0..50 {
            for family in Family::ALL {
                echoed(&client, pods[0].addresses.of(family));
                sent += 1;
            }
        }
        assert_eq!(sent, passed(&node));
    }
}
