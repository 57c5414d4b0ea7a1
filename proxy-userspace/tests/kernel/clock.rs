//! The controller reads the time that the programs note.

use std::net::SocketAddr;

use kube_lottery::control::{FlowQuery, unnamed_flows};
use kube_lottery::dataplane::{reader, settings};
use proxy_common::abi::flow::Flow as _;
use proxy_common::abi::{Settings, Tier, V4};
use proxy_common::datapath::memory::world::{World, client_addr, endpoint_addr, vip};
use proxy_common::net::Proto;

use super::frames::{Tcp, frame};
use super::is_root;
use super::object::Object;

// B209
#[test]
fn what_a_program_notes_is_the_time_that_the_controller_reads() {
    if !is_root() {
        return;
    }
    let settings = settings::detect();
    let mut world = World::new(settings);
    let served = (endpoint_addr(false, 1), 8080);
    world.service((vip(false, 1), 80), Proto::TCP, &[served]);
    let mut object = Object::load(settings);
    object.write(&world.tables);
    for port in 40_000..40_100 {
        let from = SocketAddr::new(client_addr(false, 1), port);
        let to = SocketAddr::new(vip(false, 1), 80);
        let before = reader::now(settings.hz);
        object
            .run("tc_in", &frame(Proto::TCP, from, to, Tcp::SYN))
            .unwrap();
        let after = reader::now(settings.hz);
        let flows = object.flows::<V4>(Tier::HalfOpen);
        let noted = flows.values().map(|flow| flow.state().last_seen).max();
        let noted = noted.unwrap();
        // Each of the two clocks may be just about to go on.
        assert!(
            (before - 1..=after + 1).contains(&noted),
            "{before} {noted} {after}"
        );
    }
}

/// When each flow is shown to expire, in seconds from `now`.
fn shown(object: &Object, now: u32) -> Vec<u32> {
    let query = FlowQuery::from_query("").unwrap();
    let list = unnamed_flows(&object.reader(), now, &query).unwrap();
    let mut all: Vec<_> = list.items.iter().map(|flow| flow.expires_seconds).collect();
    all.sort_unstable();
    all
}

// B209
#[test]
fn a_flow_is_there_as_long_as_it_is_shown_to_be_and_no_longer() {
    if !is_root() {
        return;
    }
    let mut settings = Settings::with_hz(250);
    settings.test_sources = 1;
    let mut world = World::new(settings);
    let endpoint = endpoint_addr(false, 1);
    world.service((vip(false, 1), 80), Proto::TCP, &[(endpoint, 8080)]);
    world.service((vip(false, 1), 80), Proto::UDP, &[(endpoint, 8080)]);
    let tables = &mut world.tables;
    let mut object = Object::load(settings);
    object.write(tables);
    let served = SocketAddr::new(endpoint, 8080);
    let to = SocketAddr::new(vip(false, 1), 80);
    // One after the other; asked only, answered, and gone on with.
    for (n, proto) in (0..).zip([Proto::TCP, Proto::UDP].repeat(3)) {
        tables.now += 3;
        object.set_sources(tables.now, 1);
        let from = SocketAddr::new(client_addr(false, 1), 40_000 + n);
        let packets = [
            ("tc_in", from, to, Tcp::SYN),
            ("tc_eg", served, from, Tcp::SYN_ACK),
            ("tc_in", from, to, Tcp::ACK),
        ];
        for (program, from, to, tcp) in &packets[..=usize::from(n / 2)] {
            let bytes = frame(proto, *from, *to, *tcp);
            object.run(program, &bytes).unwrap();
        }
    }
    let (begin, sweeper) = (tables.now, object.sweeper());
    let all = shown(&object, begin);
    assert_eq!(6, all.len());
    assert_ne!(all[0], all[5]);
    let mut times = all.clone();
    times.dedup();
    for left in times {
        let later = all.iter().filter(|other| **other > left).count();
        let here = all.iter().filter(|other| **other >= left).count();
        for (time, expected) in [(begin + left, here), (begin + left + 1, later)] {
            object.set_sources(time, 1);
            sweeper.round(time, false).unwrap();
            assert_eq!(expected, shown(&object, time).len(), "{left} of {all:?}");
        }
    }
}
