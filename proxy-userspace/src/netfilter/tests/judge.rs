//! What the tables do with packets.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proptest::prelude::*;
use proxy_common::net::Proto;

use super::super::counter::Counter;
use super::super::destination::Destination;
use super::super::judge::{Judgement, Packet, Path, Rules};
use super::super::options::Options;
use super::{MODES, options};
use crate::config::Mode;

const MASQUERADE: u32 = 1 << 14;
const REJECT: u32 = 1 << 15;
/// Somebody else's.
const OTHER: u32 = 0x42;

/// Of each family: a Service, an address that none has, a pod.
const ADDRESSES: [[&str; 3]; 2] = [
    ["10.96.0.10", "10.96.0.99", "10.244.1.2"],
    ["fd00:10:96::a", "fd00:10:96::63", "fd00:10:244:1::2"],
];

/// The rules of a node with a Service that has port 80 of TCP.
fn rules(options: &Options) -> Rules {
    let held = ADDRESSES.map(|[service, ..]| {
        let address = service.parse().unwrap();
        match options.mode {
            Mode::Iptables => Destination::port(address, Proto::TCP, 80),
            Mode::Nftables => Destination::address(address),
        }
    });
    Rules::new(options, BTreeSet::from(held))
}

fn to(destination: &str, port: u16) -> Packet {
    Packet {
        path: Path::Forward,
        destination: destination.parse().unwrap(),
        is_local: false,
        proto: Proto::TCP,
        port,
        mark: OTHER,
    }
}

fn drop(counter: Counter) -> Judgement {
    Judgement::Drop(Some(counter))
}

#[test]
fn what_nobody_translates_is_dropped_as_the_mode_has_it() {
    for [service, unallocated, pod] in ADDRESSES {
        for path in [Path::Forward, Path::Output] {
            let judge = |mode, destination, port| {
                let packet = Packet {
                    path,
                    ..to(destination, port)
                };
                rules(&options(mode)).judge(&packet)
            };
            let pass = Judgement::Pass(OTHER);
            let untranslated = drop(Counter::Untranslated);
            assert_eq!(untranslated, judge(Mode::Iptables, service, 80));
            assert_eq!(untranslated, judge(Mode::Nftables, service, 80));
            assert_eq!(pass, judge(Mode::Iptables, service, 81));
            assert_eq!(untranslated, judge(Mode::Nftables, service, 81));
            assert_eq!(pass, judge(Mode::Iptables, unallocated, 80));
            assert_eq!(
                drop(Counter::Unallocated),
                judge(Mode::Nftables, unallocated, 80)
            );
            assert_eq!(pass, judge(Mode::Iptables, pod, 80));
            assert_eq!(pass, judge(Mode::Nftables, pod, 80));
        }
    }
}

#[test]
fn without_known_ranges_no_address_is_unallocated() {
    let mut options = options(Mode::Nftables);
    options.service_cidrs.clear();
    for [_, unallocated, _] in ADDRESSES {
        let judged = rules(&options).judge(&to(unallocated, 80));
        assert_eq!(Judgement::Pass(OTHER), judged);
    }
}

#[test]
fn an_address_of_the_node_is_left_alone() {
    for mode in MODES {
        for [service, unallocated, _] in ADDRESSES {
            for destination in [service, unallocated] {
                for path in [Path::Input, Path::Output] {
                    let packet = Packet {
                        path,
                        is_local: true,
                        ..to(destination, 80)
                    };
                    let judged = rules(&options(mode)).judge(&packet);
                    assert_eq!(Judgement::Pass(OTHER), judged, "{mode:?} {packet:?}");
                }
            }
        }
    }
}

#[test]
fn a_mark_decides_before_the_address_does() {
    for mode in MODES {
        for all in ADDRESSES {
            for destination in all {
                for path in [Path::Forward, Path::Input, Path::Output] {
                    let mut packet = to(destination, 80);
                    packet.path = path;
                    packet.mark |= REJECT;
                    assert_eq!(Judgement::Reject, rules(&options(mode)).judge(&packet));
                }
            }
            let [.., pod] = all;
            let mut packet = to(pod, 80);
            packet.mark |= MASQUERADE;
            let judged = rules(&options(mode)).judge(&packet);
            assert_eq!(Judgement::Masquerade(OTHER), judged);
            // What stays on this node keeps its source.
            packet.path = Path::Input;
            packet.is_local = true;
            let judged = rules(&options(mode)).judge(&packet);
            assert_eq!(Judgement::Pass(OTHER), judged);
        }
    }
}

proptest! {
    #[test]
    fn only_our_bits_are_taken_off_a_mark(
        mark in any::<u32>(),
        path in prop_oneof![Just(Path::Forward), Just(Path::Input), Just(Path::Output)],
        is_local in any::<bool>(),
        bits in (0..32_u8, 1..32_u8),
        destination in prop_oneof![
            any::<[u8; 4]>().prop_map(IpAddr::from),
            Just([10, 96, 0, 10].into()),
            any::<[u8; 16]>().prop_map(IpAddr::from),
        ],
        port in 79..82_u16,
    ) {
        for mode in MODES {
            let options = Options {
                masquerade_mark: 1 << bits.0,
                reject_mark: 1 << ((bits.0 + bits.1) % 32),
                ..options(mode)
            };
            let packet = Packet { path, destination, is_local, proto: Proto::TCP, port, mark };
            let others = mark & !options.masquerade_mark & !options.reject_mark;
            let goes_out = path != Path::Input;
            match rules(&options).judge(&packet) {
                Judgement::Pass(left) => {
                    prop_assert_eq!(others, left);
                    prop_assert!(!goes_out || mark & options.masquerade_mark == 0);
                }
                Judgement::Masquerade(left) => {
                    prop_assert_eq!(others, left);
                    prop_assert!(goes_out && mark & options.masquerade_mark != 0);
                }
                Judgement::Reject => prop_assert!(mark & options.reject_mark != 0),
                Judgement::Drop(counter) => {
                    prop_assert!(counter.is_some() && mark & options.reject_mark == 0);
                }
            }
        }
    }
}
