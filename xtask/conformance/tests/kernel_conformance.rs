//! Kernel ring: our files of cases against the loaded programs, in both modes.
//!
//! Needs root; without it every test says that it was skipped, or fails where the ring is required
//! (`KUBE_LOTTERY_RINGS=required`).

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "all of this is test code: a panic is how a test fails"
)]

use std::path::Path;

use conformance::case::{self, Case, Outcome, Verdict};
use conformance::run::{Report, run};
use conformance::world::World;
use kube_lottery::config::Mode;

const MODES: [Mode; 2] = [Mode::Iptables, Mode::Nftables];

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    assert!(
        root || std::env::var_os("KUBE_LOTTERY_RINGS").is_none(),
        "the kernel ring needs root"
    );
    if !root {
        println!("skipped: the kernel ring needs root");
    }
    root
}

fn cases(file: &str) -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases");
    case::read(&folder.join(file)).unwrap()
}

fn report(mode: Mode, cases: &[Case]) -> Report {
    let mut world = World::load(mode).unwrap();
    let mut total = Report::default();
    for case in cases {
        total += run(&mut world, case).unwrap();
    }
    total
}

/// Every packet fares as on kube-proxy.
fn conforms(file: &str, packets: usize) {
    if !is_root() {
        return;
    }
    let cases = cases(file);
    for mode in MODES {
        let total = report(mode, &cases);
        let failures: Vec<_> = total.failures.iter().map(ToString::to_string).collect();
        assert!(failures.is_empty(), "{total}\n{}", failures.join("\n"));
        assert_eq!(packets, total.passed, "{mode:?}");
    }
}

#[test]
fn packets_of_proxy_tests_fare_as_on_kube_proxy() {
    conforms("packet-flows.yaml", 219);
}

#[test]
fn packets_at_random_fare_as_on_kube_proxy() {
    conforms("packet-flows-random.yaml", 800);
}

#[test]
fn what_is_expected_wrongly_is_found() {
    if !is_root() {
        return;
    }
    let mut cases = cases("packet-flows.yaml");
    cases.truncate(6);
    let mut changed = 0;
    for packet in cases.iter_mut().flat_map(|case| &mut case.packets) {
        packet.expect_iptables = None;
        let Some(expected) = &mut packet.expect else {
            continue;
        };
        changed += 1;
        match expected.verdict {
            // One of several is never seen, or one is seen that nobody expects.
            Verdict::Forward if expected.backends.len() > 1 && changed % 2 == 0 => {
                expected.backends.pop();
            }
            Verdict::Forward => expected.backends.push("10.9.9.9:99".parse().unwrap()),
            Verdict::Drop => *expected = Outcome::of(Verdict::Pass),
            Verdict::Reject => *expected = Outcome::of(Verdict::Drop),
            Verdict::Pass => *expected = Outcome::of(Verdict::Reject),
        }
    }
    let total = report(Mode::Nftables, &cases);
    assert_eq!(
        (0, changed),
        (total.passed, total.failures.len()),
        "{total}"
    );
}
