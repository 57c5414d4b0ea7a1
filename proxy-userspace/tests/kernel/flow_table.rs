//! What is read from the flow tables: each flow once, whatever is left of it, and fast.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use aya::maps::HashMap;
use kube_lottery::control::api::{Flow, FlowState};
use kube_lottery::control::{FlowQuery, unnamed_flows};
use kube_lottery::dataplane::{LogLevel, Plain};
use proxy_common::abi::{
    Endpoint4, EndpointFlags, FlowFlags, FlowKey4, Kind, Settings, State, Tier, V4,
};
use proxy_common::datapath::flow::{Chosen, Path};
use proxy_common::datapath::tables::Past;
use proxy_common::net::{Port, Proto};

use super::is_root;
use super::object::Object;

/// Of the flows, in a table for twice as many halves and as many again.
const FLOWS: u32 = 100_000;
const NOW: u32 = 5_000;

fn object(flows: u32) -> Object {
    let object = kube_lottery::dataplane::load::OBJECT;
    Object::load_with(object, Settings::with_hz(250), LogLevel::Off, flows, &[])
}

/// The `n`th flow to one of three endpoints.
fn path(n: u32) -> Path<V4> {
    let key = <FlowKey4 as proxy_common::abi::flow::FlowKey>::new(
        Ipv4Addr::from(0x0a00_0000 + n / 1000).into(),
        Ipv4Addr::new(10, 96, 0, 10).into(),
        Port::new((1024 + n % 1000) as u16),
        Port::new(80),
        Proto::TCP,
        proxy_common::abi::Hook::INGRESS,
    );
    let endpoint = Endpoint4 {
        addr: Ipv4Addr::new(10, 244, 0, (n % 3) as u8).into(),
        port: Port::new(8080),
        flags: EndpointFlags::ALIVE,
        generation: 1,
        service: 7,
        ..bytemuck::Zeroable::zeroed()
    };
    let chosen = Chosen {
        service: 7,
        slot: n % 3,
        flags: FlowFlags::NONE,
    };
    let mut path = Path::empty();
    path.begin(&key, chosen, &endpoint);
    path
}

fn put(object: &mut Object, tier: Tier, path: &Path<V4>, kind: Kind, state: State) {
    let past = Past {
        state,
        proof: 0,
        now: NOW - 10,
    };
    let mut map: HashMap<_, Plain<FlowKey4>, _> = object.flow_map::<V4>(tier);
    let (key, half) = (path.key(tier, kind), path.half(kind, past));
    map.insert(Plain(key), Plain(half), 0).unwrap();
}

fn flows(object: &Object, query: &str) -> (u64, Vec<Flow>) {
    let query = FlowQuery::from_query(query).unwrap();
    let list = unnamed_flows(&object.reader(), NOW, &query).unwrap();
    (list.matched, list.items)
}

#[test]
fn a_flow_is_one_row_whatever_is_left_of_it() {
    if !is_root() {
        return;
    }
    let mut object = object(1 << 12);
    let replied = State::REPLIED;
    let both = [Kind::DNAT, Kind::UNDNAT];
    // Whole; without its client's half; without its endpoint's; on its way between the tiers; about
    // to be put in the place of another; direct traffic.
    for kind in both {
        put(&mut object, Tier::Established, &path(1), kind, replied);
    }
    put(
        &mut object,
        Tier::HalfOpen,
        &path(2),
        Kind::UNDNAT,
        State::NEW,
    );
    put(
        &mut object,
        Tier::Established,
        &path(3),
        Kind::DNAT,
        replied,
    );
    for tier in [Tier::Established, Tier::HalfOpen] {
        for kind in both {
            put(&mut object, tier, &path(4), kind, replied);
        }
    }
    for tier in [Tier::Renewal, Tier::HalfOpen] {
        put(&mut object, tier, &path(5), Kind::DNAT, State::NEW);
    }
    let mut note = Path::empty();
    note.begin_direct(&path(6).key(Tier::HalfOpen, Kind::DNAT));
    put(&mut object, Tier::HalfOpen, &note, Kind::PASS, State::NEW);

    let (matched, all) = flows(&object, "sort=client&notes=true");
    assert_eq!(6, matched);
    let rows: Vec<_> = all
        .iter()
        .map(|flow| {
            let client: SocketAddr = flow.client.parse().unwrap();
            (client.port() - 1024, flow.state, flow.halved)
        })
        .collect();
    let (open, whole) = (FlowState::HalfOpen, FlowState::Established);
    let expected = [
        (1, whole, false),
        (2, open, true),
        (3, whole, false),
        (4, whole, false),
        (5, open, false),
        (6, open, false),
    ];
    assert_eq!(expected, *rows);
    assert_eq!(Some("direct"), all[5].note.as_deref());
    assert_eq!(
        ("10.96.0.10:80", "10.96.0.10:80"),
        (&*all[5].frontend, &*all[5].endpoint)
    );
    assert_eq!("10.244.0.2:8080", all[1].endpoint);
    assert_eq!((10, 50), (all[1].idle_seconds, all[1].expires_seconds));
    assert_eq!(24 * 60 * 60 - 10, all[0].expires_seconds);
    assert_eq!(5, flows(&object, "").0);
    assert_eq!(1, flows(&object, "endpoint=10.244.0.1:8080&client=:1025").0);
}

#[test]
fn a_hundred_thousand_flows_are_read_and_the_time_is_printed() {
    if !is_root() {
        return;
    }
    let mut object = object(4 * FLOWS);
    for n in 0..FLOWS {
        let path = path(n);
        put(
            &mut object,
            Tier::Established,
            &path,
            Kind::DNAT,
            State::REPLIED,
        );
        put(
            &mut object,
            Tier::Established,
            &path,
            Kind::UNDNAT,
            State::REPLIED,
        );
    }
    for query in ["limit=1000", "client=10.0.0.7:1100", ""] {
        let start = Instant::now();
        let (matched, rows) = flows(&object, query);
        let read = start.elapsed();
        let text = serde_json::to_vec(&rows).unwrap();
        println!(
            "flows?{query}: {matched} matched, {} shown, read in {read:.0?}, {} bytes written after {:.0?}",
            rows.len(),
            text.len(),
            start.elapsed(),
        );
        let expected = if query.starts_with("client") {
            1
        } else {
            FLOWS.into()
        };
        assert_eq!(expected, matched);
        let shown = if query.starts_with("limit") {
            1000
        } else {
            matched as usize
        };
        assert_eq!(shown, rows.len());
    }
}
