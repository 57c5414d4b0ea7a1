//! What the oracle says of a case.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::Observation;
use crate::case::{Backend, Case, Masquerade, Outcome, Verdict};

/// What became of the packets of a case.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    packets: Option<Vec<Vec<Flows>>>,
    error: Option<String>,
}

/// What became of some flows of a packet.
#[derive(Debug, Deserialize)]
struct Flows {
    verdict: Verdict,
    to: Option<Backend>,
    /// The source address was rewritten.
    address: bool,
    /// The source port was.
    port: bool,
    problem: Option<String>,
    #[serde(rename = "flows")]
    count: u32,
}

impl Answer {
    pub(super) fn observations(self, case: &Case) -> Vec<Observation> {
        let count = case.packets.len();
        match (self.error, self.packets) {
            (Some(error), _) => vec![Err(error); count],
            (None, Some(packets)) if packets.len() == count => {
                packets.iter().map(|flows| outcome(flows)).collect()
            }
            (None, _) => vec![Err("the oracle has left packets out".to_owned()); count],
        }
    }
}

fn outcome(all: &[Flows]) -> Observation {
    if let Some(problem) = all.iter().find_map(|flows| flows.problem.clone()) {
        return Err(problem);
    }
    let verdicts: BTreeSet<_> = all.iter().map(|flows| flows.verdict).collect();
    let verdict = match verdicts.first() {
        Some(verdict) if verdicts.len() == 1 => *verdict,
        _ => return Err(format!("flows fared differently: {verdicts:?}")),
    };
    let backends: BTreeSet<_> = all.iter().filter_map(|flows| flows.to).collect();
    let mut masqueraded = BTreeSet::new();
    for backend in &backends {
        let own: Vec<_> = all
            .iter()
            .filter(|flows| flows.to == Some(*backend))
            .collect();
        if is_masqueraded(&own)? {
            masqueraded.insert(*backend);
        }
    }
    if verdict != Verdict::Forward {
        return if is_masqueraded(&all.iter().collect::<Vec<_>>())? {
            Err(format!("{verdict}, and yet masqueraded"))
        } else {
            Ok(Outcome::of(verdict))
        };
    }
    Ok(Outcome {
        verdict,
        masquerade: Some(Masquerade::of(&masqueraded, &backends)),
        backends: backends.into_iter().collect(),
    })
}

/// Whether flows to one place are masqueraded. Where that leaves the address as it is, it shows in
/// the port, which is a random one then; now and then a port changes because it is taken.
fn is_masqueraded(flows: &[&Flows]) -> Result<bool, String> {
    let [mut total, mut addresses, mut ports] = [0, 0, 0];
    for own in flows {
        total += own.count;
        addresses += if own.address { own.count } else { 0 };
        ports += if own.port { own.count } else { 0 };
    }
    if addresses > 0 && addresses < total {
        return Err(format!(
            "{addresses} of {total} flows to one place were masqueraded"
        ));
    }
    Ok(addresses > 0 || 2 * ports > total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows(to: Option<&str>, address: bool, port: bool, flows: u32) -> Flows {
        Flows {
            verdict: if to.is_some() {
                Verdict::Forward
            } else {
                Verdict::Pass
            },
            to: to.map(|to| to.parse().unwrap()),
            address,
            port,
            problem: None,
            count: flows,
        }
    }

    const ONE: &str = "10.0.0.1:80";
    const OTHER: &str = "10.0.0.2:80";

    #[test]
    fn some_backends_may_be_masqueraded() {
        let all = [
            flows(Some(ONE), true, true, 9),
            flows(Some(OTHER), false, false, 11),
        ];
        let expected = Masquerade::To(vec![ONE.parse().unwrap()]);
        assert_eq!(Some(expected), outcome(&all).unwrap().masquerade);
    }

    #[test]
    fn random_ports_tell_of_masquerading_and_single_ones_do_not() {
        let all = [
            flows(Some(ONE), false, true, 18),
            flows(Some(ONE), false, false, 1),
            flows(Some(OTHER), false, true, 1),
            flows(Some(OTHER), false, false, 20),
        ];
        let expected = Masquerade::To(vec![ONE.parse().unwrap()]);
        assert_eq!(Some(expected), outcome(&all).unwrap().masquerade);
    }

    #[test]
    fn what_is_not_certain_is_said() {
        outcome(&[
            flows(Some(ONE), true, true, 9),
            flows(Some(ONE), false, true, 9),
        ])
        .unwrap_err();
        outcome(&[
            flows(Some(ONE), false, false, 9),
            flows(None, false, false, 9),
        ])
        .unwrap_err();
        outcome(&[flows(None, true, true, 9)]).unwrap_err();
        let mut odd = flows(None, false, false, 9);
        odd.problem = Some("odd".to_owned());
        assert_eq!(Err("odd".to_owned()), outcome(&[odd]));
    }
}
