//! Holds what `explain` says of every packet of our files against what is expected of it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use conformance::case::{self, Case, Masquerade, Outcome, Packet, Verdict};
use conformance::cluster;
use conformance::run::is_same;
use kube_lottery::config::Mode;
use kube_lottery::control::api::explain::Explanation;
use kube_lottery::dataplane::Private;
use kube_lottery::explain::{Offline, Question, Run};

const MODES: [Mode; 2] = [Mode::Iptables, Mode::Nftables];
const FILES: [(&str, usize); 2] = [
    ("packet-flows.yaml", 219),
    ("packet-flows-random.yaml", 800),
];

fn cases(file: &str) -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases");
    case::read(&folder.join(file)).unwrap()
}

fn offline(case: &Case, mode: Mode) -> Offline {
    let config = cluster::config(&case.node, mode).unwrap();
    let declared = cluster::declared(case).unwrap();
    Offline::plan(declared.changes, [].into(), &case.node.name, config)
}

fn explain(
    offline: &Offline,
    packet: &Packet,
    run: Run,
    instance: &mut Option<Private>,
) -> Explanation {
    let question = Question {
        src: packet.from,
        sport: None,
        dst: SocketAddr::new(packet.to, packet.port),
        proto: packet.proto.into(),
        entry: Some(packet.entry),
    };
    let scene = offline.sight().scene(question).unwrap();
    scene.explain(run, instance).unwrap()
}

/// What an explanation says becomes of a packet.
fn said(all: &Explanation) -> Outcome {
    let verdict = all.outcome.verdict;
    if verdict != Verdict::Forward {
        return Outcome::of(verdict);
    }
    let taking = || all.endpoints.iter().filter(|own| own.is_in);
    let set = |masqueraded: bool| -> BTreeSet<SocketAddr> {
        taking()
            .filter(|own| !masqueraded || own.masquerade)
            .map(|own| own.address.parse().unwrap())
            .collect()
    };
    let backends = set(false);
    Outcome {
        verdict,
        masquerade: Some(Masquerade::of(&set(true), &backends)),
        backends: backends.into_iter().collect(),
    }
}

/// What must hold in itself.
fn check(all: &Explanation, place: &str) {
    let taking: Vec<_> = all.endpoints.iter().filter(|own| own.is_in).collect();
    let n = taking.len();
    let sum: f64 = all.endpoints.iter().map(|own| own.probability).sum();
    assert!(n == 0 || (sum - 1.0).abs() < 1e-9, "{place}: {sum}");
    assert!(
        taking
            .iter()
            .all(|own| (own.probability * n as f64 - 1.0).abs() < 1e-9),
        "{place}: odds"
    );
    let rules = all.lottery.as_ref().map_or(&[][..], |own| &own.rules);
    assert_eq!(n, rules.len(), "{place}: rules");
    // The cascade comes to the same odds for each.
    let mut left = 1.0;
    for rule in rules {
        let fires = left / rule.one_in as f64;
        assert!((fires - rule.probability).abs() < 1e-9, "{place}: {rule:?}");
        left -= fires;
    }
    // A reason for the tables' choice and one against it never meet.
    assert!(
        all.endpoints.iter().all(|own| own.reason != "no-room"),
        "{place}: {all:#?}"
    );
    if let Some(endpoint) = &all.outcome.endpoint {
        assert!(
            taking.iter().any(|own| own.address == *endpoint),
            "{place}: {endpoint}"
        );
        let own = taking.iter().find(|own| own.address == *endpoint).unwrap();
        assert_eq!(own.masquerade, all.outcome.masquerade, "{place}");
    }
    assert!(
        !all.steps.is_empty() && !all.conntrack.is_empty(),
        "{place}"
    );
}

/// Explains every packet of both files in both modes.
pub(super) fn agrees(run: Run) {
    for mode in MODES {
        let mut instance = None;
        for (file, packets) in FILES {
            let (mut seen, mut wrong) = (0, Vec::new());
            for case in cases(file) {
                let offline = offline(&case, mode);
                for packet in &case.packets {
                    let Some(expected) = packet.expected(mode) else {
                        continue;
                    };
                    seen += 1;
                    let place = format!("{mode:?}: {}: {}", case.name, packet.name);
                    let all = explain(&offline, packet, run, &mut instance);
                    check(&all, &place);
                    let got = said(&all);
                    if !is_same(expected, &got) {
                        wrong.push(format!("{place}: expected {expected}, got {got}"));
                    }
                }
            }
            assert!(wrong.is_empty(), "{}", wrong.join("\n"));
            assert_eq!(packets, seen);
        }
    }
}
