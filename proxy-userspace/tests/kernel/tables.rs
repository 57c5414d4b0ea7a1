//! The controller's writes to real maps, and what it reads back.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytemuck::Zeroable as _;
use kube_lottery::dataplane::{Dataplane, Options, Tables, apply, load};
use kube_lottery::model::{Family, IpNet};
use kube_lottery::plan::{Bitmap, Limits, Op, Record, Socket};
use proxy_common::abi::{
    Affinity, Detector, EndpointFlags, EndpointSet, Family as _, Frontend, FrontendFlags, Settings,
    Slot, V4, V6,
};
use proxy_common::net::Proto;

use super::is_root;
use super::old::for_this_kernel;

fn tables() -> Option<Tables> {
    if !is_root() {
        return None;
    }
    let (object, settings) = for_this_kernel(Settings::with_hz(250));
    let mut options = Options::new(settings);
    options.capacities.limits = Limits {
        sources: 4,
        ..Limits::new(16, 16)
    };
    if let Cow::Owned(object) = object {
        let path = std::env::temp_dir().join("kube-lottery-object");
        std::fs::write(&path, object).unwrap();
        options.object = Some(path);
    }
    let Dataplane { tables, .. } = load(&options).unwrap();
    Some(tables)
}

fn at(last: u8) -> Socket {
    Socket {
        addr: IpAddr::from([10, 96, 0, last]),
        port: 80,
        proto: Proto::TCP,
    }
}

fn frontend(last: u8) -> Op {
    let set = EndpointSet::new(0, 1);
    Op::Frontend {
        at: at(last),
        value: Frontend {
            inside: set,
            outside: set,
            service: last.into(),
            flags: FrontendFlags::NONE,
            affinity_timeout: 0,
            reserved: [0; 5],
        },
    }
}

fn endpoint(slot: u32) -> Op {
    Op::Endpoint {
        slot,
        record: Record {
            addr: IpAddr::from([10, 1, 0, 1]),
            port: 8080,
            flags: EndpointFlags::HELD,
            generation: 7,
            service: 3,
        },
    }
}

#[test]
fn what_is_missing_does_not_keep_a_batch_from_the_rest() {
    let Some(mut tables) = tables() else {
        return;
    };
    let all = (1..=4).map(frontend).collect();
    assert!(apply(&mut tables, all).is_empty());
    // The second and the last are not there.
    let gone = [1, 9, 3, 8].map(|last| Op::FrontendGone { at: at(last) });
    assert!(apply(&mut tables, gone.to_vec()).is_empty());
    let mut left: Vec<_> = tables.snapshot().unwrap().frontends;
    left.sort_by_key(|(at, _)| *at);
    let left: Vec<_> = left.into_iter().map(|(at, _)| at).collect();
    assert_eq!([at(2), at(4)], *left);
}

#[test]
fn the_clients_of_one_service_port_are_forgotten_and_no_others() {
    let Some(mut tables) = tables() else {
        return;
    };
    let affinity = Affinity::zeroed();
    // More than are removed at once.
    for client in 0..10_000_u32 {
        let key = V4::affinity_key(client % 3, Ipv4Addr::from(client).into());
        tables.v4.affinity.insert(&key, &affinity).unwrap();
    }
    let other = V6::affinity_key(1, Ipv6Addr::LOCALHOST.into());
    tables.v6.affinity.insert(&other, &affinity).unwrap();
    let forget = Op::ForgetClients {
        family: Family::V4,
        service: 1,
    };
    assert!(apply(&mut tables, vec![forget]).is_empty());
    let left = tables.v4.affinity.iter().map(|entry| entry.unwrap().0);
    let left: Vec<_> = left.collect();
    assert_eq!(6_667, left.len());
    assert!(left.iter().all(|key| key.service != 1));
    assert_eq!(Some(affinity), tables.v6.affinity.get(&other).unwrap());
}

#[test]
fn an_index_out_of_range_fails_alone() {
    let Some(mut tables) = tables() else {
        return;
    };
    let ops = [0, 16, 3, 99].map(endpoint).to_vec();
    let failures = apply(&mut tables, ops);
    let failed: Vec<_> = failures.into_iter().map(|failure| failure.op).collect();
    assert_eq!([endpoint(16), endpoint(99)], *failed);
    let mut records = tables.snapshot().unwrap().records;
    records.sort_by_key(|(slot, _)| *slot);
    let written: Vec<_> = records
        .into_iter()
        .map(|(slot, record)| Op::Endpoint { slot, record })
        .collect();
    assert_eq!([endpoint(0), endpoint(3)], *written);
}

#[test]
fn a_full_table_refuses_what_is_too_much() {
    let Some(mut tables) = tables() else {
        return;
    };
    let failures = apply(&mut tables, (1..=18).map(frontend).collect());
    let failed: Vec<_> = failures.into_iter().map(|failure| failure.op).collect();
    assert_eq!([frontend(17), frontend(18)], *failed);
    assert_eq!(16, tables.snapshot().unwrap().frontends.len());
}

#[test]
fn a_set_past_the_end_is_not_written_at_all() {
    let Some(mut tables) = tables() else {
        return;
    };
    let slots = |count| {
        vec![
            Slot {
                endpoint: 5,
                service: 6
            };
            count
        ]
    };
    let beyond = Op::Set {
        base: 30,
        slots: slots(3),
    };
    let within = Op::Set {
        base: 29,
        slots: slots(3),
    };
    let failures = apply(&mut tables, vec![beyond.clone()]);
    assert_eq!(
        [beyond],
        *failures
            .iter()
            .map(|failure| failure.op.clone())
            .collect::<Vec<_>>()
    );
    let is_written = |slot: &Slot| slot.service == 6;
    assert!(!tables.snapshot().unwrap().sets.iter().any(is_written));
    assert!(apply(&mut tables, vec![within]).is_empty());
    let sets = tables.snapshot().unwrap().sets;
    assert_eq!(
        (32, 3),
        (
            sets.len(),
            sets.iter().filter(|slot| is_written(slot)).count()
        )
    );
}

fn range(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn source(service: u32, text: &str) -> Op {
    let range = range(text);
    Op::Source { service, range }
}

#[test]
fn source_ranges_of_both_families_are_read_back_as_they_were_written() {
    let Some(mut tables) = tables() else {
        return;
    };
    let all = [
        (3, "0.0.0.0/0"),
        (3, "10.0.0.0/8"),
        (4, "10.0.0.0/8"),
        (0x0100_0000, "192.0.2.7/32"),
        (3, "::/0"),
        (3, "fd00::/63"),
        (7, "fd00::1/128"),
    ];
    let ops = all.map(|(service, text)| source(service, text));
    assert!(apply(&mut tables, ops.to_vec()).is_empty());
    // Once more is no other one.
    assert!(apply(&mut tables, ops.to_vec()).is_empty());
    // The fifth of a family finds no room, and one that is not there is as good as removed.
    let full = [source(9, "10.1.0.0/16"), source(9, "fd01::/16")];
    let failures = apply(&mut tables, full.to_vec());
    let failed: Vec<_> = failures.into_iter().map(|failure| failure.op).collect();
    assert_eq!([source(9, "10.1.0.0/16")], *failed);
    let gone = [(9, "fd01::/16"), (3, "10.0.0.0/8"), (3, "10.0.0.0/9")];
    let gone = gone.map(|(service, text)| Op::SourceGone {
        service,
        range: range(text),
    });
    assert!(apply(&mut tables, gone.to_vec()).is_empty());
    let mut left = tables.snapshot().unwrap().sources;
    left.sort_unstable();
    let mut expected: Vec<_> = all
        .into_iter()
        .map(|(service, text)| (service, range(text)))
        .collect();
    expected.remove(1);
    expected.sort_unstable();
    assert_eq!(expected, left);
}

#[test]
fn who_is_inside_is_read_back() {
    let Some(mut tables) = tables() else {
        return;
    };
    let nobody: Detector = bytemuck::Zeroable::zeroed();
    assert_eq!(Some(nobody), tables.snapshot().unwrap().detector);
    let value = Detector {
        has4: 1,
        addr4: Ipv4Addr::new(10, 244, 0, 0).into(),
        mask4: Ipv4Addr::new(255, 255, 0, 0).into(),
        ..nobody
    };
    assert!(apply(&mut tables, vec![Op::Detector { value }]).is_empty());
    assert_eq!(Some(value), tables.snapshot().unwrap().detector);
}

#[test]
fn what_was_written_is_read_back_and_numbers_are_reserved() {
    let Some(mut tables) = tables() else {
        return;
    };
    let reverse = Op::Reverse {
        endpoint: Socket {
            addr: "fd00::1".parse().unwrap(),
            port: 53,
            proto: Proto::UDP,
        },
        frontends: vec![
            ("fd00::2".parse().unwrap(), 53),
            ("fd00::3".parse().unwrap(), 54),
        ],
    };
    let bits = Op::Bits {
        bitmap: Bitmap::Endpoints,
        word: 77,
        value: 5,
    };
    assert!(apply(&mut tables, vec![reverse.clone(), bits]).is_empty());
    let snapshot = tables.snapshot().unwrap();
    let [(endpoint, frontends)] = &snapshot.reverse[..] else {
        panic!()
    };
    let read = Op::Reverse {
        endpoint: *endpoint,
        frontends: frontends.clone(),
    };
    assert_eq!(reverse, read);
    assert_eq!(
        (5, 0),
        (snapshot.endpoint_bits[77], snapshot.frontend_bits[77])
    );
    tables.reserve_numbers(9).unwrap();
    let reserved = tables.meta.get(0).unwrap().next_service;
    assert!(reserved >= 9);
    tables.reserve_numbers(8).unwrap();
    assert_eq!(reserved, tables.meta.get(0).unwrap().next_service);
}
