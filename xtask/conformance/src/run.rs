//! Cases against the data path: all draws of all packets, compared with what is expected.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use kube_lottery::config::Mode;
use kube_lottery::explain::{Fate, Shot, draw};
use xtask::stats::evenness;

use crate::case::{Backend, Case, Masquerade, Outcome, Packet, Verdict};
use crate::cluster;
use crate::draws::{most_backends, that_show_all};
use crate::why;
use crate::world::World;

/// Below this probability a draw is not taken for even: in no run of many years by chance.
const UNEVEN: f64 = 1e-9;
/// Draws for each backend, so that the test for evenness has something to go by.
const DRAWS: usize = 64;
/// The first source port; the ephemeral ones of Linux, and more.
const FIRST_PORT: u16 = 20_000;

/// A packet that did not fare as it should.
#[derive(Clone, Debug)]
pub struct Failure {
    /// In which mode.
    pub mode: Mode,
    /// Of which case.
    pub case: String,
    /// Which packet.
    pub packet: String,
    /// What should become of it.
    pub expected: Outcome,
    /// What became of it.
    pub got: String,
    /// Why, as far as the tables tell.
    pub why: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = mode_name(self.mode);
        write!(
            f,
            "FAIL {mode}: {}: {}: expected {}, got {}",
            self.case, self.packet, self.expected, self.got
        )
    }
}

/// What kube-proxy calls a mode.
pub const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Iptables => "iptables",
        Mode::Nftables => "nftables",
    }
}

/// How the packets of a case fared.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Packets that fared as they should.
    pub passed: usize,
    /// The others.
    pub failures: Vec<Failure>,
    /// Packets of which nothing is expected.
    pub skipped: usize,
}

impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failures.len())?;
        if self.skipped > 0 {
            write!(f, ", {} without expectation", self.skipped)?;
        }
        Ok(())
    }
}

/// Enters a case, and sends its packets.
pub fn run(world: &mut World, case: &Case) -> Result<Report> {
    let declared = cluster::declared(case).with_context(|| format!("case {}", case.name))?;
    let left_out = declared.left_out.clone();
    world
        .enter(case, declared)
        .with_context(|| format!("case {}", case.name))?;
    let mut ports = Ports(FIRST_PORT);
    let mut report = Report::default();
    for packet in &case.packets {
        let Some(expected) = packet.expected(world.mode()) else {
            report.skipped += 1;
            continue;
        };
        let got = outcome(world, case, packet, &mut ports);
        let got = match got {
            Ok(Ok(got)) if is_same(expected, &got) => {
                report.passed += 1;
                continue;
            }
            Ok(Ok(got)) => got.to_string(),
            Ok(Err(odd)) => odd,
            Err(error) => format!("{error:#}"),
        };
        report.failures.push(Failure {
            mode: world.mode(),
            case: case.name.clone(),
            packet: packet.name.clone(),
            expected: expected.clone(),
            got,
            why: why::lines(world, packet, &left_out),
        });
    }
    Ok(report)
}

/// Source ports, each once until the flows are forgotten.
struct Ports(u16);

impl Ports {
    fn next(&mut self, world: &mut World) -> Result<u16> {
        let port = self.0;
        self.0 = if let Some(next) = port.checked_add(1) {
            next
        } else {
            world.forget_flows()?;
            FIRST_PORT
        };
        Ok(port)
    }
}

/// What becomes of a packet, or what is odd about that.
fn outcome(
    world: &mut World,
    case: &Case,
    packet: &Packet,
    ports: &mut Ports,
) -> Result<Result<Outcome, String>> {
    let own = cluster::addresses(&case.node);
    let rules = world.rules().clone();
    let most = most_backends(case, packet.to.is_ipv4());
    let mut seen: BTreeMap<Backend, [u64; 2]> = BTreeMap::new();
    let mut first: Option<Fate> = None;
    let has_affinity = has_affinity(case);
    let mut left = that_show_all(0);
    while left > 0 {
        left -= 1;
        if has_affinity {
            // One client has one endpoint, and all are to be seen.
            world.forget_clients()?;
        }
        let port = ports.next(world)?;
        let shot = Shot {
            proto: packet.proto.into(),
            from: SocketAddr::new(packet.from, port),
            to: SocketAddr::new(packet.to, packet.port),
            entry: packet.entry,
            own: &own,
            rules: &rules,
        };
        let fate = draw(world, &shot)?;
        if fate.from != shot.from {
            return Ok(Err(format!("the source has become {}", fate.from)));
        }
        let known = *first.get_or_insert_with(|| {
            if fate.verdict == Verdict::Forward && most > 1 {
                left = that_show_all(most).max(DRAWS * most);
            }
            fate
        });
        if known.verdict != fate.verdict {
            let both = format!("{} once, {} once", known.verdict, fate.verdict);
            return Ok(Err(both));
        }
        if let Some(to) = fate.to {
            let [kept, masqueraded] = seen.entry(to).or_default();
            *(if fate.is_masqueraded {
                masqueraded
            } else {
                kept
            }) += 1;
        }
    }
    let verdict = first.map_or(Verdict::Pass, |fate| fate.verdict);
    if verdict != Verdict::Forward {
        return Ok(Ok(Outcome::of(verdict)));
    }
    Ok(forwarded(&seen))
}

/// Whether clients of a Service keep their endpoints.
fn has_affinity(case: &Case) -> bool {
    let mut objects = case.objects.iter();
    objects.any(|object| {
        object
            .pointer("/spec/sessionAffinity")
            .and_then(|value| value.as_str())
            == Some("ClientIP")
    })
}

fn forwarded(seen: &BTreeMap<Backend, [u64; 2]>) -> Result<Outcome, String> {
    let counts: Vec<u64> = seen
        .values()
        .map(|[kept, masqueraded]| kept + masqueraded)
        .collect();
    if counts.len() > 1
        && let Ok(chance) = evenness(&counts)
        && chance < UNEVEN
    {
        return Err(format!("an uneven draw: {seen:?}"));
    }
    let mut masqueraded = BTreeSet::new();
    for (to, [kept, changed]) in seen {
        match (kept, changed) {
            (0, _) => masqueraded.insert(*to),
            (_, 0) => false,
            _ => {
                return Err(format!(
                    "masqueraded to {to} in {changed} flows, and not in {kept}"
                ));
            }
        };
    }
    let backends: BTreeSet<_> = seen.keys().copied().collect();
    Ok(Outcome {
        verdict: Verdict::Forward,
        masquerade: Some(Masquerade::of(&masqueraded, &backends)),
        backends: backends.into_iter().collect(),
    })
}

/// Whether two outcomes are the same, in whatever order they say it.
pub fn is_same(one: &Outcome, other: &Outcome) -> bool {
    let backends = |outcome: &Outcome| outcome.backends.iter().copied().collect::<BTreeSet<_>>();
    let all = backends(one);
    if one.verdict != other.verdict || all != backends(other) {
        return false;
    }
    let masqueraded = |outcome: &Outcome| {
        outcome
            .masquerade
            .as_ref()
            .map_or_else(BTreeSet::new, |which| which.among(&all))
    };
    masqueraded(one) == masqueraded(other)
}
