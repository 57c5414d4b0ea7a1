//! Service ports whose frontends lead to different endpoints.

use std::net::SocketAddr;

use proxy_common::abi::{Detector, EndpointSet, FrontendFlags};

use super::super::drawn::Left;
use super::super::ports::Ports;
use super::super::testing::ORIGINS;
use super::super::wanted::{FrontendKind, List, PortKey, Wanted, WantedEndpoint, WantedFrontend};
use super::*;
use crate::model::IpNet;

const VIP: &str = "10.96.0.1";
const EXTERNAL: &str = "192.0.2.1";

/// Service ports and the tables that they make.
struct Bench {
    ports: Ports,
    tables: Tables,
}

impl Bench {
    fn new() -> Self {
        Self {
            ports: Ports::new(Limits::default()),
            tables: Tables::default(),
        }
    }

    fn ask(&mut self, wanted: &Wanted) -> Vec<Op> {
        self.ask_as("web", wanted, Duration::ZERO);
        self.carry_out()
    }

    fn ask_as(&mut self, name: &str, wanted: &Wanted, now: Duration) {
        let name = ObjectName::new("default", name);
        let all = |_: &ObjectName| vec![wanted.clone()];
        self.ports
            .replan(BTreeSet::from([name]), all, |_| None, now);
    }

    fn carry_out(&mut self) -> Vec<Op> {
        let ops = self.ports.drain();
        for op in &ops {
            self.tables.apply(op);
        }
        self.ports.applied(Duration::ZERO);
        ops
    }

    /// Another controller begins with the tables as they are.
    fn restart(&mut self) {
        self.ports = Ports::new(Limits::default());
        self.ports.adopt(self.tables.snapshot());
    }

    fn sets(&self, ip: &str) -> [EndpointSet; 2] {
        let value = self.tables.frontends[&at(ip)];
        ORIGINS.map(|origin| value.set(origin))
    }

    fn flags(&self, last: u8) -> EndpointFlags {
        let mut records = self.tables.records.values();
        let record = records.find(|record| record.addr == addr(last)).unwrap();
        record.flags
    }
}

fn addr(last: u8) -> IpAddr {
    IpAddr::from([10, 1, 0, last])
}

fn frontend(ip: &str, inside: List, outside: List) -> WantedFrontend {
    let local = |list, origin| FrontendFlags::local(origin).only_if(list == List::Local);
    WantedFrontend {
        at: at(ip),
        kind: FrontendKind::ExternalIp,
        flags: local(inside, Origin::Inside).with(local(outside, Origin::Outside)),
        inside,
        outside,
    }
}

/// A cluster IP for everybody and an external address for local endpoints; endpoints by their last
/// byte, the local ones as well.
fn wanted(cluster: &[u8], local: &[u8]) -> Wanted {
    let all: BTreeSet<_> = cluster.iter().chain(local).copied().collect();
    Wanted {
        key: PortKey {
            name: "".into(),
            proto: Proto::TCP,
            family: Family::V4,
        },
        frontends: vec![
            frontend(VIP, List::Cluster, List::Cluster),
            frontend(EXTERNAL, List::Cluster, List::Local),
        ],
        endpoints: all
            .into_iter()
            .map(|last| WantedEndpoint {
                addr: addr(last),
                port: 8080,
                is_local: local.contains(&last),
                in_cluster: cluster.contains(&last),
                in_local: local.contains(&last),
            })
            .collect(),
        idle: Vec::new(),
        affinity_timeout: 0,
        sources: Vec::new(),
    }
}

fn sets_written(ops: &[Op]) -> usize {
    ops.iter().filter(|op| matches!(op, Op::Set { .. })).count()
}

fn records_written(ops: &[Op]) -> Vec<EndpointFlags> {
    let records = ops.iter().filter_map(|op| match op {
        Op::Endpoint { record, .. } => Some(record.flags),
        _ => None,
    });
    records.collect()
}

#[test]
fn equal_sets_share_a_region_and_different_ones_do_not() {
    let mut bench = Bench::new();
    let ops = bench.ask(&wanted(&[1, 2], &[1, 2]));
    assert_eq!(1, sets_written(&ops));
    let [cluster, _] = bench.sets(VIP);
    assert_eq!([cluster; 2], bench.sets(EXTERNAL));
    // The other list gets a set of its own beside that.
    let ops = bench.ask(&wanted(&[1, 2], &[1]));
    assert_eq!(1, sets_written(&ops));
    let [inside, outside] = bench.sets(EXTERNAL);
    assert_eq!(cluster, inside);
    assert_eq!((1, 2), (outside.count(), cluster.count()));
    // And nothing is written where they become equal again.
    let ops = bench.ask(&wanted(&[1], &[1]));
    assert_eq!(0, sets_written(&ops));
    assert_eq!([outside; 2], bench.sets(VIP));
    assert_eq!([outside; 2], bench.sets(EXTERNAL));
}

#[test]
fn what_no_frontend_uses_takes_no_room() {
    let mut bench = Bench::new();
    let mut only_local = wanted(&[1, 2, 3], &[2]);
    only_local.frontends = vec![frontend(VIP, List::Nobody, List::Local)];
    let ops = bench.ask(&only_local);
    assert_eq!(1, sets_written(&ops));
    assert_eq!(1, bench.tables.records.len());
    assert_eq!(
        [EndpointSet::EMPTY, EndpointSet::new(0, 1)],
        bench.sets(VIP)
    );
    assert!(!bench.flags(2).has(EndpointFlags::IN_CLUSTER_SET));
}

#[test]
fn a_record_is_in_a_set_before_the_set_lists_it_and_until_it_does_not() {
    let mut bench = Bench::new();
    bench.ask(&wanted(&[1, 2], &[1]));
    let both = EndpointFlags::IN_CLUSTER_SET.with(EndpointFlags::IN_LOCAL_SET);
    let [before, _] = bench.sets(VIP);
    assert!(bench.flags(1).has(both));
    // From one list to the other.
    let ops = bench.ask(&wanted(&[1], &[1, 2]));
    let [between, end] = *records_written(&ops) else {
        panic!("{ops:?}")
    };
    assert!(between.has(both));
    assert!(end.has(EndpointFlags::ALIVE) && end.has(EndpointFlags::IN_LOCAL_SET));
    assert!(!end.has(EndpointFlags::IN_CLUSTER_SET));
    let first = ops.first().unwrap();
    assert!(matches!(first, Op::Endpoint { .. }), "{ops:?}");
    let last = ops.last().unwrap();
    assert!(matches!(last, Op::Endpoint { .. }), "{ops:?}");
    assert_ne!(before, bench.sets(VIP)[0]);
}

#[test]
fn what_a_frontend_is_changes_without_its_sets() {
    let mut bench = Bench::new();
    let mut wanted = wanted(&[1, 2], &[1]);
    bench.ask(&wanted);
    wanted.affinity_timeout = 10_800;
    let ops = bench.ask(&wanted);
    assert_eq!(2, ops.len(), "{ops:?}");
    assert_eq!(10_800, bench.tables.frontends[&at(VIP)].affinity_timeout);
    wanted.frontends[1].flags = wanted.frontends[1]
        .flags
        .with(FrontendFlags::masquerade(Origin::Outside));
    let ops = bench.ask(&wanted);
    let value = bench.tables.frontends[&at(EXTERNAL)];
    assert_eq!(
        [Op::Frontend {
            at: at(EXTERNAL),
            value
        }],
        *ops
    );
    assert_eq!(wanted.frontends[1].flags, value.flags);
}

#[test]
fn clients_are_forgotten_when_nobody_asks_for_them_any_more_even_after_a_restart() {
    for restarts in [false, true] {
        let mut bench = Bench::new();
        let mut wanted = wanted(&[1, 2], &[1]);
        wanted.affinity_timeout = 60;
        bench.ask(&wanted);
        wanted.affinity_timeout = 30;
        bench.ask(&wanted);
        assert_eq!(Vec::<u32>::new(), bench.tables.forgotten);
        if restarts {
            bench.restart();
        }
        wanted.affinity_timeout = 0;
        let ops = bench.ask(&wanted);
        // Behind the frontends: nothing that they remember is left behind.
        assert!(
            matches!(ops.last(), Some(Op::ForgetClients { .. })),
            "{ops:?}"
        );
        let number = bench.tables.frontends[&at(VIP)].service;
        assert_eq!([number], *bench.tables.forgotten);
        assert_eq!(Vec::<Op>::new(), bench.ask(&wanted));
    }
}

#[test]
fn of_two_frontends_at_one_socket_the_first_counts() {
    let mut bench = Bench::new();
    let mut twice = wanted(&[1, 2], &[1]);
    let again = frontend(VIP, List::Nobody, List::Nobody);
    twice.frontends.push(again);
    bench.ask(&twice);
    let expected = Bench::new().ask(&wanted(&[1, 2], &[1]));
    let mut fresh = Bench::new();
    assert_eq!(expected, fresh.ask(&twice));
    assert_eq!(Vec::<Op>::new(), bench.ask(&wanted(&[1, 2], &[1])));
}

#[test]
fn source_ranges_come_before_the_frontend_and_go_after_it() {
    let range = |text: &str| -> IpNet { text.parse().unwrap() };
    let mut bench = Bench::new();
    let mut filtered = wanted(&[1], &[1]);
    filtered.sources = vec![range("10.0.0.0/8"), range("192.0.2.0/24")];
    // Nobody is restricted so far.
    let ops = bench.ask(&filtered);
    assert!(!ops.iter().any(|op| matches!(op, Op::Source { .. })));
    filtered.frontends[1].flags = filtered.frontends[1].flags.with(FrontendFlags::FILTERED);
    let ops = bench.ask(&filtered);
    let kinds = [Op::Source {
        service: 1,
        range: range("10.0.0.0/8"),
    }];
    assert_eq!(kinds, ops[..1]);
    assert!(matches!(ops[2], Op::Frontend { .. }), "{ops:?}");
    assert_eq!(3, ops.len());
    // One leaves, and then the frontend.
    filtered.sources.pop();
    let service = 1;
    let ops = bench.ask(&filtered);
    let range = range("192.0.2.0/24");
    assert_eq!([Op::SourceGone { service, range }], *ops);
    filtered.frontends.pop();
    let ops = bench.ask(&filtered);
    assert!(matches!(ops[0], Op::FrontendGone { .. }), "{ops:?}");
    assert!(matches!(ops.last(), Some(Op::SourceGone { .. })), "{ops:?}");
    assert!(bench.tables.sources.is_empty());
}

#[test]
fn packets_of_the_nodes_own_are_found_where_they_leave_from() {
    let mut bench = Bench::new();
    let mut own = wanted(&[1], &[1]);
    let external = at(EXTERNAL);
    bench.ask(&own);
    assert!(!bench.tables.has_socket_bits(external));
    own.frontends[1].flags = own.frontends[1].flags.with(FrontendFlags::OWN_ADDRESS);
    let ops = bench.ask(&own);
    assert!(bench.tables.has_socket_bits(external));
    assert!(matches!(ops.last(), Some(Op::Frontend { .. })), "{ops:?}");
}

#[test]
fn all_of_it_is_known_again_after_a_restart() {
    let mut bench = Bench::new();
    let mut all = wanted(&[1, 2, 3], &[1]);
    all.affinity_timeout = 60;
    all.sources = vec!["10.0.0.0/8".parse().unwrap()];
    all.frontends[1].flags = all.frontends[1]
        .flags
        .with(FrontendFlags::FILTERED)
        .with(FrontendFlags::OWN_ADDRESS);
    let inside = Detector {
        by_device: 1,
        ..bytemuck::Zeroable::zeroed()
    };
    bench.ports.detect(inside);
    let ops = bench.ask(&all);
    assert_eq!(Op::Detector { value: inside }, ops[0]);
    bench.restart();
    // Of a service port that nobody knows.
    let stray = "10.9.0.0/16".parse().unwrap();
    bench.tables.sources.insert((99, stray));
    bench.restart();
    bench.ports.end_keeping();
    bench.ports.detect(inside);
    assert_eq!(Vec::<Op>::new(), bench.ask(&all));
    assert_eq!(0, bench.ports.retire());
    let gone = Op::SourceGone {
        service: 99,
        range: stray,
    };
    assert_eq!([gone], *bench.carry_out());
    assert_eq!(100, bench.ports.next_number());
    // It goes on from there.
    let ops = bench.ask(&wanted(&[1, 2, 3], &[]));
    assert_eq!(0, sets_written(&ops));
    assert!(!bench.flags(1).has(EndpointFlags::IN_LOCAL_SET));
    assert!(bench.tables.sources.is_empty());
}

/// A node port that was another Service's tells nothing about whose service port it is: that
/// Service may only be unknown for the moment.
#[test]
fn a_frontend_that_moves_takes_no_service_port_with_it() {
    let mut bench = Bench::new();
    bench.ask(&wanted(&[1, 2], &[1]));
    let number = bench.tables.frontends[&at(VIP)].service;
    bench.restart();
    let mut other = wanted(&[3], &[3]);
    other.frontends[0] = frontend("10.96.0.2", List::Cluster, List::Cluster);
    bench.ask(&other);
    assert_eq!(number, bench.tables.frontends[&at(VIP)].service);
    assert_ne!(number, bench.tables.frontends[&at(EXTERNAL)].service);
    let reachable = bench.tables.reachable(at(VIP)).unwrap();
    assert_eq!(
        BTreeSet::from([1, 2].map(|last| (addr(last), 8080))),
        reachable
    );
}

/// The update was cut short between two frontends, and what is declared of them cannot be read.
#[test]
fn where_a_former_frontend_leads_is_not_used_for_another() {
    let mut bench = Bench::new();
    bench.ask(&wanted(&[1, 2], &[1]));
    bench.ask_as("web", &wanted(&[1, 2, 3], &[1]), Duration::ZERO);
    let ops = bench.ports.drain();
    let is_switch = |op: &Op| matches!(op, Op::Frontend { .. });
    let cut = ops.iter().position(is_switch).unwrap();
    for op in &ops[..=cut] {
        bench.tables.apply(op);
    }
    let led = [VIP, EXTERNAL].map(|ip| bench.tables.reachable_from(at(ip), Origin::Inside));
    assert_ne!(led[0], led[1]);
    bench.restart();
    for (n, endpoints) in [[4, 5], [6, 7], [4, 6], [5, 7]].iter().enumerate() {
        let mut other = wanted(endpoints, &[]);
        other.frontends = vec![frontend("10.96.0.2", List::Cluster, List::Cluster)];
        bench.ask_as("other", &other, GRACE * u32::try_from(n).unwrap());
        bench.carry_out();
        let leads = [VIP, EXTERNAL].map(|ip| bench.tables.reachable_from(at(ip), Origin::Inside));
        assert_eq!(led, leads);
    }
    // Once it is known, both lead to the new endpoints.
    bench.ask(&wanted(&[1, 2, 3], &[1]));
    assert_eq!(
        led[0],
        bench.tables.reachable_from(at(EXTERNAL), Origin::Inside)
    );
}

#[test]
fn what_failed_of_either_set_is_done_again() {
    let mut bench = Bench::new();
    let ops = bench.ask(&wanted(&[1, 2, 3], &[1]));
    for op in ops {
        assert_eq!(Some(&op), bench.ports.current(&op).as_ref());
    }
}

#[test]
fn what_draws_are_counted_of_is_told_and_when_that_ends() {
    let mut bench = Bench::new();
    bench.ask(&wanted(&[1, 2], &[1, 2]));
    let at = |all: &[u8]| -> Vec<_> {
        let all = all.iter().map(|last| SocketAddr::new(addr(*last), 8080));
        all.collect()
    };
    let told = |bench: &Bench| -> Vec<_> {
        let mut ports: Vec<_> = bench.ports.sets().collect();
        let port = ports.remove(0);
        assert!(ports.is_empty());
        let sets = port.sets.into_iter();
        sets.map(|set| (set.base, set.lists, set.endpoints))
            .collect()
    };
    let [set, _] = bench.sets(VIP);
    let shared = (set.base(), vec!["cluster", "local"], at(&[1, 2]));
    assert_eq!(vec![shared], told(&bench));
    assert!(bench.ports.take_left().is_empty());

    // One list stays where it is, the other gets a set of its own: nothing is left.
    bench.ask(&wanted(&[1, 2], &[2]));
    let [_, local] = bench.sets(EXTERNAL);
    let two = vec![
        (set.base(), vec!["cluster"], at(&[1, 2])),
        (local.base(), vec!["local"], at(&[2])),
    ];
    assert_eq!(two, told(&bench));
    assert!(bench.ports.take_left().is_empty());
    // The same after a restart, which begins with what was counted.
    bench.restart();
    bench.ask(&wanted(&[1, 2], &[2]));
    assert_eq!(two, told(&bench));

    bench.ask(&wanted(&[1, 2, 3], &[2]));
    let number = bench.tables.frontends[&super::at(VIP)].service;
    let left = |sets: &[EndpointSet], is_last| Left {
        service: number,
        sets: sets.iter().map(|set| (set.base(), set.count())).collect(),
        is_last,
    };
    assert_eq!(vec![left(&[set], false)], bench.ports.take_left());
    let [cluster, local] = bench.sets(EXTERNAL);
    let mut none = wanted(&[], &[]);
    none.frontends.clear();
    bench.ask(&none);
    assert_eq!(vec![left(&[cluster, local], true)], bench.ports.take_left());
    assert_eq!(0, bench.ports.sets().count());
}
