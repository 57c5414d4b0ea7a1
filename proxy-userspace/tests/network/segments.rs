//! Segments that do not belong into the connection that they claim to be of.

use std::net::SocketAddr;

use etherparse::TcpHeader;
use rustix::net::ipproto;
use xtask::lab::client::Connection;
use xtask::lab::manifest::Service;
use xtask::lab::{Family, Host};

use super::nftables::nft;
use super::raw::Raw;
use super::world::{World, wait_until};

/// What comes of a table's counter.
fn packets(host: &Host, family: &str, table: &str, counter: &str) -> u64 {
    let mut list = host.namespace.command("nft");
    let output = list.args(["list", "counter", family, table, counter]);
    let text = String::from_utf8(output.output().unwrap().stdout).unwrap();
    let mut words = text
        .split_whitespace()
        .skip_while(|word| *word != "packets");
    words.nth(1).unwrap().parse().unwrap()
}

fn invalid(node: &Host, family: Family) -> u64 {
    let family = if family == Family::V4 { "ip" } else { "ip6" };
    packets(node, family, "kube-lottery", "invalid")
}

/// Half of all numbers apart: to whatever the connection has come, one of them lies far ahead, which
/// is what conntrack calls invalid. What lies behind may be a late copy.
const NUMBERS: [u32; 2] = [0x1234_5678, 0x9234_5678];

/// A segment from one socket to another with a number that is nowhere near theirs.
fn stray(from: SocketAddr, to: SocketAddr, seq: u32, is_reset: bool) -> Vec<u8> {
    let mut header = TcpHeader::new(from.port(), to.port(), seq, 1000);
    header.acknowledgment_number = 0x8765_4321;
    header.ack = true;
    header.rst = is_reset;
    let payload: &[u8] = if is_reset { b"" } else { b"out of order" };
    header.checksum = match (from, to) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => {
            header.calc_checksum_ipv4_raw(from.ip().octets(), to.ip().octets(), payload)
        }
        (SocketAddr::V6(from), SocketAddr::V6(to)) => {
            header.calc_checksum_ipv6_raw(from.ip().octets(), to.ip().octets(), payload)
        }
        _ => panic!("two families"),
    }
    .unwrap();
    [&header.to_bytes()[..], payload].concat()
}

/// As in kube-proxy: one mode drops what conntrack finds invalid and counts it, the other lets it
/// pass, where the firewall does. In both the client sees nothing of the endpoint, and
/// the connection goes on.
// B054
#[test]
fn a_stray_segment_of_the_endpoint_neither_shows_it_nor_ends_the_connection() {
    for mode in ["iptables", "nftables"] {
        let Some(mut world) = World::new(2) else {
            return;
        };
        world.configure(&format!("mode: {mode}"));
        let client = world.lab.pod(1).unwrap();
        let (pods, _servers) = world.servers(2, 1);
        let nodes = [1, 2].map(|node| world.lab.node(node));
        if mode == "nftables" {
            for node in &nodes {
                nft(node, "insert rule inet cni forward ct state invalid accept");
            }
        }
        let service = Service::new("web", 10).with(world.endpoints(2, &pods));
        world.start_with(&service);
        let addresses = pods[0].addresses;
        nft(
            &client,
            &format!(
                "table inet watch {{
  counter strangers {{ }}
  counter strays {{ }}
  chain input {{ type filter hook input priority -300;
    ip saddr {} counter name strangers
    ip6 saddr {} counter name strangers
    tcp sequence {{ {}, {} }} counter name strays
  }}
}}
",
                addresses.v4, addresses.v6, NUMBERS[0], NUMBERS[1]
            ),
        );
        let mut sent = 0;
        for family in Family::ALL {
            let mut open = Connection::open(&client, service.target(family)).unwrap();
            open.upload(100_000, 1).unwrap();
            let (from, to) = (
                SocketAddr::new(addresses.of(family), service.target_port),
                open.answer().peer,
            );
            let raw = Raw::new(&pods[0], from.ip(), ipproto::TCP);
            for is_reset in [false, true, false] {
                let dropped = || nodes.iter().map(|node| invalid(node, family)).sum::<u64>();
                let arrived = || packets(&client, "inet", "watch", "strays");
                let before = if mode == "iptables" { dropped() } else { 0 };
                for seq in NUMBERS {
                    raw.send(to.ip(), &stray(from, to, seq, is_reset));
                    sent += 1;
                }
                if mode == "iptables" {
                    wait_until("one is dropped", || dropped() > before);
                } else {
                    wait_until("they are here", || arrived() == sent);
                }
                open.echo("still there?").unwrap();
                open.download(100_000, 2).unwrap();
            }
        }
        assert_eq!(0, packets(&client, "inet", "watch", "strangers"));
    }
}
