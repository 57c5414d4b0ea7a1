//! What the kernel does with packets is what `netfilter::Rules` says.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use kube_lottery::config::Mode;
use kube_lottery::netfilter::{Counter, Destination, Judgement, Packet, Path, Rules, counts};
use proxy_common::net::Proto;
use xtask::lab::{Addresses, Family, Host};

use super::netfilter::{keeping, options};
use super::nftables::{listed, nft};
use super::world::{World, wait_until};

/// Marks by the length of the payload, and looks at what is left behind all rules of ours. A packet
/// that ours masquerades does not come to another chain of type nat.
const WATCH: &str = "table inet watch {
  counter passed { }
  counter taken { }
  counter whole { }
  chain in { type filter hook prerouting priority mangle;
    udp length 9 meta mark set 0x1
    udp length 10 meta mark set 0x4001
    udp length 11 meta mark set 0x8001
    udp length 12 meta mark set 0xc001
  }
  chain out { type filter hook output priority mangle;
    udp length 9 meta mark set 0x1
    udp length 10 meta mark set 0x4001
    udp length 11 meta mark set 0x8001
    udp length 12 meta mark set 0xc001
  }
  chain nat { type nat hook postrouting priority 97;
    meta l4proto udp counter name passed
  }
  chain input { type filter hook input priority 300;
    meta l4proto udp meta mark 0x1 counter name taken
  }
  chain postrouting { type filter hook postrouting priority 300;
    meta l4proto udp meta mark 0x1 counter name whole
  }
}
";
const MARKS: [u32; 4] = [0x1, 0x4001, 0x8001, 0xc001];

/// What the counters have, ours and those above.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    ours: [u64; 3],
    passed: u64,
    taken: u64,
    whole: u64,
}

const OURS: [Counter; 3] = [
    Counter::Untranslated,
    Counter::Unallocated,
    Counter::Rejected,
];

fn seen(node: &Host) -> Seen {
    let ours = node.namespace.enter(|| Ok(counts()?)).unwrap();
    let mut list = node.namespace.command("nft");
    let output = list
        .args(["list", "counters", "table", "inet", "watch"])
        .output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let packets = |counter: &str| -> u64 {
        let (_, rest) = text.split_once(&format!("counter {counter} ")).unwrap();
        let mut words = rest
            .split_whitespace()
            .skip_while(|word| *word != "packets");
        words.nth(1).unwrap().parse().unwrap()
    };
    Seen {
        ours: OURS.map(|counter| ours.get(&counter).copied().unwrap_or_default().packets),
        passed: packets("passed"),
        taken: packets("taken"),
        whole: packets("whole"),
    }
}

/// What the counters should have after a packet.
fn expect(before: &Seen, packet: &Packet, judgement: Judgement) -> Seen {
    let mut seen = before.clone();
    let mut count = |counter| {
        let index = OURS.iter().position(|own| *own == counter).unwrap();
        seen.ours[index] += 1;
    };
    match judgement {
        Judgement::Drop(counter) => count(counter.unwrap()),
        Judgement::Reject => count(Counter::Rejected),
        Judgement::Pass(mark) => {
            assert_eq!(1, mark);
            if packet.path == Path::Input {
                seen.taken += 1;
            } else {
                seen.passed += 1;
                seen.whole += 1;
            }
        }
        Judgement::Masquerade(mark) => {
            assert_eq!(1, mark);
            seen.whole += 1;
        }
    }
    seen
}

fn send(from: &Host, packet: &Packet) {
    let length = MARKS.iter().position(|mark| *mark == packet.mark).unwrap() + 1;
    let any = if packet.destination.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let send = || {
        let socket = UdpSocket::bind(any)?;
        // What is dropped on its way out is told to the sender.
        let target = SocketAddr::new(packet.destination, packet.port);
        socket.send_to(&vec![0; length], target).ok();
        Ok(())
    };
    from.namespace.enter(send).unwrap();
}

#[test]
fn the_kernel_does_with_packets_what_the_tables_say() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let [client, pod] = [1, 1].map(|node| world.lab.pod(node).unwrap());
    let node = world.lab.node(1);
    nft(&node, WATCH);
    let [service, held, unallocated] = [10, 11, 99].map(Addresses::service);
    for family in Family::ALL {
        world.lab.add_address(&node, held.of(family)).unwrap();
    }
    let ranges = ["10.96.0.0/16", "fd00:10:96::/112"].map(|range| range.parse().unwrap());
    for mode in [Mode::Iptables, Mode::Nftables] {
        let services = [service, held].into_iter();
        let addresses = services.flat_map(|own| Family::ALL.map(|family| own.of(family)));
        let destinations: BTreeSet<_> = addresses
            .map(|address| match mode {
                Mode::Iptables => Destination::port(address, Proto::UDP, 80),
                Mode::Nftables => Destination::address(address),
            })
            .collect();
        let mut options = options(mode);
        options.service_cidrs = ranges.into();
        let rules = Rules::new(&options, destinations.clone());
        options.service_cidrs.clear();
        let count = keeping(&node, None, options, |mut keeping| {
            keeping.netfilter.add(destinations);
            keeping.netfilter.set_service_cidrs(ranges.into());
            keeping.wait_for(|state| state.cluster_ips == 4);
            if mode == Mode::Nftables {
                wait_until("the ranges are known", || {
                    let listed = listed(&node);
                    listed.contains("10.96.0.0/16") && listed.contains("fd00:10:96::/112")
                });
            }
            let mut count = 0;
            for family in Family::ALL {
                let to = |path, addresses: Addresses| {
                    let is_local = path == Path::Input;
                    let destination: IpAddr = addresses.of(family);
                    (path, destination, is_local)
                };
                let ways = [
                    to(Path::Forward, service),
                    to(Path::Forward, unallocated),
                    to(Path::Forward, pod.addresses),
                    to(Path::Input, node.addresses),
                    to(Path::Input, held),
                    to(Path::Output, service),
                    to(Path::Output, unallocated),
                    to(Path::Output, pod.addresses),
                ];
                for (path, destination, is_local) in ways {
                    for (mark, port) in MARKS.into_iter().flat_map(|mark| [(mark, 80), (mark, 81)])
                    {
                        let packet = Packet {
                            path,
                            destination,
                            is_local,
                            proto: Proto::UDP,
                            port,
                            mark,
                        };
                        let from = if path == Path::Output { &node } else { &client };
                        let before = seen(&node);
                        let expected = expect(&before, &packet, rules.judge(&packet));
                        send(from, &packet);
                        wait_until("something has become of it", || seen(&node) != before);
                        assert_eq!(expected, seen(&node), "{mode:?} {packet:?}");
                        count += 1;
                    }
                }
            }
            count
        });
        assert_eq!(2 * 8 * 8, count);
    }
}
