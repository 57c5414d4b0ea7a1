//! What is found in a table, in what order, and what it is called.

use std::net::SocketAddr;

use proxy_common::abi::{FlowFlags, Kind, State, Tier};
use proxy_common::net::Proto;

use super::*;
use crate::model::{Family, ObjectName, Protocol};
use crate::plan::{Condition, EndpointView, PortView, ServiceView};

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn row(client: &str, service: u32) -> FlowRow {
    FlowRow {
        proto: Proto::TCP,
        client: at(client),
        frontend: at("10.96.0.10:80"),
        endpoint: at("10.244.2.3:8080"),
        source_port: at(client).port(),
        service,
        slot: 5,
        kind: Kind::DNAT,
        tier: Tier::Established,
        state: State::REPLIED,
        flags: FlowFlags::NONE,
        idle: 1,
        left: 9,
        is_over: false,
        is_halved: false,
    }
}

/// Service port 1 is shop/web:http, 2 is shop/api, 3 is other/web.
fn names() -> Names {
    let endpoint = EndpointView {
        addr: "10.244.2.3".parse().unwrap(),
        port: 8080,
        slot: Some(5),
        is_listed: true,
        lists: Vec::new(),
        is_local: false,
        condition: Condition::Ready,
        node: Some("node7".into()),
        slice: None,
    };
    let view = |number, namespace, name, port: &str| ServiceView {
        name: ObjectName::new(namespace, name),
        ports: vec![PortView {
            name: port.into(),
            protocol: Protocol::Tcp,
            family: Family::V4,
            number: Some(number),
            frontends: Vec::new(),
            endpoints: vec![endpoint.clone()],
        }],
        notices: Vec::new(),
    };
    Names::of(&[
        view(1, "shop", "web", "http"),
        view(2, "shop", "api", ""),
        view(3, "other", "web", ""),
    ])
}

fn found(query: &str, rows: &[FlowRow]) -> (u64, Vec<String>) {
    let (query, names) = (FlowQuery::from_query(query).unwrap(), names());
    let mut best = Best::new(&query, &names);
    for row in rows {
        if is_wanted(&query, &names, row) {
            best.push(row.clone());
        }
    }
    let found = best.finish();
    let clients = found.rows.iter().map(|row| row.client.to_string());
    (found.matched, clients.collect())
}

#[test]
fn what_is_asked_for_is_found_and_nothing_else() {
    let rows = [
        row("10.0.0.1:1", 1),
        FlowRow {
            proto: Proto::UDP,
            endpoint: at("10.244.2.4:8080"),
            tier: Tier::HalfOpen,
            ..row("10.0.0.2:2", 2)
        },
        FlowRow {
            state: State::REPLIED.with(State::FIN_CLIENT),
            frontend: at("192.0.2.1:443"),
            ..row("10.0.1.3:3", 3)
        },
        FlowRow {
            state: State::FIN_CLIENT.with(State::FIN_ENDPOINT),
            is_over: true,
            ..row("10.0.1.4:4", 9)
        },
        FlowRow {
            is_over: true,
            left: 0,
            ..row("10.0.1.5:5", 1)
        },
        FlowRow {
            kind: Kind::PASS,
            ..row("10.0.1.6:6", 0)
        },
    ];
    let ports = |query: &str| {
        let (matched, clients) = found(query, &rows);
        assert_eq!(matched, clients.len() as u64);
        let mut ports: Vec<_> = clients.iter().map(|client| at(client).port()).collect();
        ports.sort_unstable();
        ports
    };
    assert_eq!([1, 2, 3, 4], *ports(""));
    assert_eq!([1, 2, 3, 4, 6], *ports("notes=true"));
    assert_eq!([1, 2], *ports("namespace=shop"));
    assert_eq!([1], *ports("namespace=shop&name=web"));
    assert_eq!([1, 3], *ports("name=web"));
    assert_eq!([4], *ports("namespace=-"));
    assert_eq!([3, 4], *ports("client=10.0.1.0/24"));
    assert_eq!([2], *ports("client=:2"));
    assert_eq!([3], *ports("frontend=192.0.2.1"));
    assert_eq!([2], *ports("endpoint=10.244.2.4:8080"));
    assert_eq!([2], *ports("protocol=udp"));
    for (state, port) in [
        ("established", 1),
        ("half-open", 2),
        ("closing", 3),
        ("closed", 4),
        ("expired", 5),
    ] {
        assert_eq!([port], *ports(&format!("state={state}")), "{state}");
    }
    assert!(ports("state=reset").is_empty());
}

#[test]
fn the_first_in_order_are_kept() {
    let mut rows: Vec<_> = (1..=100)
        .map(|n| FlowRow {
            idle: 1000 - n,
            ..row(&format!("10.0.0.1:{n}"), 1 + n % 3)
        })
        .collect();
    rows.reverse();
    let clients = |ports: &[u32]| {
        ports
            .iter()
            .map(|port| format!("10.0.0.1:{port}"))
            .collect()
    };
    let expect = |query, ports: &[u32]| assert_eq!((100, clients(ports)), found(query, &rows));
    expect("sort=client&limit=3", &[1, 2, 3]);
    expect("sort=idle&limit=2", &[100, 99]);
    // Of other/web, before any of shop.
    expect("limit=2", &[2, 5]);
    assert_eq!(100, found("sort=client", &rows).1.len());
}

#[test]
fn names_are_joined_in_where_they_are_known() {
    let names = names();
    let known = flow(&row("10.0.0.1:1", 1), &names);
    let name = |flow: &Flow| {
        [&flow.namespace, &flow.service, &flow.port]
            .map(|part| part.clone().unwrap_or_else(|| "none".into()))
            .join(" ")
    };
    assert_eq!("shop web http", name(&known));
    assert_eq!(Some("node7"), known.node.as_deref());
    assert_eq!("- #9 none", name(&flow(&row("10.0.0.1:1", 9), &names)));
    assert_eq!("none none none", name(&flow(&row("10.0.0.1:1", 0), &names)));
}
