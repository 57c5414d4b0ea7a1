//! Draws as they were counted, and what is told of them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use super::api::{EndpointSplit, Fairness, FormerSets, Kind, PortSplit, ServiceSplit, SetSplit};
use super::listing::Scope;
use crate::fairness::{
    FALSE_DISCOVERY_RATE, Finding, Tally, Verdict, deviation, expected, judge, missing,
};
use crate::metrics::{Figures, Named};
use crate::model::{Family, ObjectName, Protocol};

/// All draws that were counted.
#[derive(Clone, Debug, Default)]
pub struct TotalDraws {
    /// Service ports in order of their Services.
    pub ports: Vec<PortDraws>,
    /// Draws from all sets that are gone, those of service ports that have ended among them.
    pub closed: u64,
}

/// Draws from the sets of a service port.
#[derive(Clone, Debug)]
pub struct PortDraws {
    /// Its Service.
    pub service: ObjectName,
    /// Its name.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its family.
    pub family: Family,
    /// Its sets.
    pub sets: Vec<SetDraws>,
    /// What the sets came to that it had.
    pub former: Tally,
}

/// Draws from a set.
#[derive(Clone, Debug)]
pub struct SetDraws {
    /// Names of the lists that it is.
    pub lists: Vec<&'static str>,
    /// Its endpoints.
    pub endpoints: Vec<SocketAddr>,
    /// How often each was drawn.
    pub counts: Vec<u64>,
}

impl PortDraws {
    fn tally(&self) -> Tally {
        let mut sum = self.former;
        for set in &self.sets {
            sum.add(&Tally::of(&set.counts));
        }
        sum
    }
}

/// Each Service with its ports, and what was found of it.
fn findings(draws: &TotalDraws) -> Vec<(&[PortDraws], Finding)> {
    let services: Vec<_> = draws
        .ports
        .chunk_by(|one, other| one.service == other.service)
        .collect();
    let tallies = services.iter().map(|ports| {
        let mut sum = Tally::default();
        for port in *ports {
            sum.add(&port.tally());
        }
        sum
    });
    let found = judge(tallies, FALSE_DISCOVERY_RATE);
    services.into_iter().zip(found).collect()
}

/// What is said of the Services that are asked for. Their verdicts depend on the others.
pub(super) fn report(draws: &TotalDraws, scope: &Scope) -> Fairness {
    let all = findings(draws);
    let count = |is_so: fn(Verdict) -> bool| {
        all.iter()
            .filter(|(_, finding)| is_so(finding.verdict))
            .count()
    };
    Fairness {
        kind: Kind::new("Fairness"),
        false_discovery_rate: FALSE_DISCOVERY_RATE,
        tested: count(|verdict| verdict != Verdict::TooFew),
        off: count(|verdict| verdict == Verdict::Off),
        items: all
            .iter()
            .filter_map(|(ports, finding)| {
                let name = &ports.first()?.service;
                scope
                    .includes(name)
                    .then(|| service(name, ports, finding, scope.name.is_some()))
            })
            .collect(),
    }
}

fn service(
    name: &ObjectName,
    ports: &[PortDraws],
    finding: &Finding,
    is_asked_for: bool,
) -> ServiceSplit {
    let is_whole = is_asked_for || finding.verdict == Verdict::Off;
    let sets = ports.iter().flat_map(|port| &port.sets);
    let missing = sets
        .filter(|set| set.counts.len() > 1)
        .map(|set| missing(&set.counts))
        .min();
    ServiceSplit {
        namespace: name.namespace().to_owned(),
        name: name.name().to_owned(),
        verdict: finding.verdict.name().to_owned(),
        draws: finding.tally.draws,
        statistic: finding.tally.statistic,
        degrees_of_freedom: finding.tally.freedom,
        p_value: finding.p_value,
        missing: missing.filter(|_| finding.verdict == Verdict::TooFew),
        ports: ports.iter().map(|own| port(own, is_whole)).collect(),
    }
}

fn port(port: &PortDraws, is_whole: bool) -> PortSplit {
    let tally = port.tally();
    let endpoints: BTreeSet<_> = port.sets.iter().flat_map(|set| &set.endpoints).collect();
    let former = &port.former;
    PortSplit {
        name: port.name.to_string(),
        protocol: port.protocol.to_string(),
        family: port.family.to_string(),
        endpoints: endpoints.len(),
        draws: tally.draws,
        statistic: tally.statistic,
        degrees_of_freedom: tally.freedom,
        p_value: tally.p_value(),
        sets: port.sets.iter().map(|own| set(own, is_whole)).collect(),
        former: FormerSets {
            sets: former.sets,
            draws: former.draws,
            statistic: former.statistic,
            degrees_of_freedom: former.freedom,
        },
    }
}

fn set(set: &SetDraws, is_whole: bool) -> SetSplit {
    let tally = Tally::of(&set.counts);
    let endpoints = set.endpoints.iter().zip(&set.counts);
    let endpoints = endpoints.map(|(at, draws)| EndpointSplit {
        address: at.ip().to_string(),
        target_port: at.port(),
        draws: *draws,
        sigmas: deviation(*draws, &set.counts),
    });
    SetSplit {
        lists: set.lists.iter().map(ToString::to_string).collect(),
        size: set.counts.len(),
        draws: tally.draws,
        expected: expected(&set.counts),
        counts: tally.sets > 0,
        statistic: tally.statistic,
        endpoints: endpoints.filter(|_| is_whole).collect(),
    }
}

/// The same in few numbers.
pub(super) fn figures(draws: &TotalDraws) -> Figures {
    let all = findings(draws);
    let tested = all.iter().filter_map(|(_, finding)| finding.p_value);
    let off = all
        .iter()
        .filter(|(_, finding)| finding.verdict == Verdict::Off);
    let standing: u64 = draws
        .ports
        .iter()
        .flat_map(|port| &port.sets)
        .flat_map(|set| &set.counts)
        .sum();
    Figures {
        draws: draws.closed + standing,
        tested: tested.clone().count(),
        least_p_value: tested.fold(1.0, f64::min),
        off: off
            .filter_map(|(ports, finding)| {
                let name = &ports.first()?.service;
                Some(Named {
                    service: name.clone(),
                    p_value: finding.p_value?,
                })
            })
            .collect(),
    }
}
