//! Makes a case that fails small: what can be taken away without changing that is.

use anyhow::Result;
use serde_json::Value;

use crate::case::Case;
use crate::draws::items;
use crate::oracle::Oracle;
use crate::run::run;
use crate::world::World;

/// How often something is taken away.
const ROUNDS: usize = 12;
/// Parts of Services and endpoints that can be without.
const SERVICE_PARTS: [&str; 3] = [
    "/spec/externalIPs",
    "/spec/loadBalancerSourceRanges",
    "/status",
];
const ENDPOINT_PARTS: [&str; 3] = ["hints", "conditions", "nodeName"];

/// The case with this packet alone, as small as it still fails in the mode of the world.
pub(crate) fn shrink(
    world: &mut World,
    case: &Case,
    packet: &str,
    oracle: &Oracle,
) -> Result<Case> {
    let mut small = case.clone();
    small.packets.retain(|own| own.name == packet);
    for _ in 0..ROUNDS {
        let candidates = smaller(&small);
        let failing = failing(world, candidates, oracle)?;
        // The smallest is the one with most taken away.
        match failing.into_iter().min_by_key(size) {
            Some(next) if size(&next) < size(&small) => small = next,
            _ => break,
        }
    }
    Ok(small)
}

fn size(case: &Case) -> usize {
    let objects: usize = case
        .objects
        .iter()
        .map(|object| object.to_string().len())
        .sum();
    objects + format!("{:?}", case.node).len()
}

/// Those of the cases that fail in the mode of the world.
fn failing(world: &mut World, cases: Vec<Case>, oracle: &Oracle) -> Result<Vec<Case>> {
    let mode = world.mode();
    let observed = oracle.observe(&cases, mode)?;
    let mut failing = Vec::new();
    for (mut case, observed) in cases.into_iter().zip(observed) {
        let (Some(packet), Some(Ok(outcome))) =
            (case.packets.first_mut(), observed.into_iter().next())
        else {
            continue;
        };
        packet.expect = Some(outcome);
        packet.expect_iptables = None;
        if !run(world, &case)?.failures.is_empty() {
            failing.push(case);
        }
    }
    Ok(failing)
}

/// The case with one thing or another taken away; first with much, then with little.
fn smaller(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    let count = case.objects.len();
    let mut part = count.div_ceil(2);
    while part > 0 {
        for start in (0..count).step_by(part) {
            let mut next = case.clone();
            next.objects.drain(start..count.min(start + part));
            all.push(next);
        }
        part /= 2;
    }
    for (at, object) in case.objects.iter().enumerate() {
        let mut without = |changed: Option<Value>| {
            let mut next = case.clone();
            if let (Some(changed), Some(place)) = (changed, next.objects.get_mut(at)) {
                *place = changed;
                all.push(next);
            }
        };
        for pointer in SERVICE_PARTS {
            without(removed(object, pointer));
        }
        let ports = object
            .pointer("/spec/ports")
            .map_or(0, |ports| items(ports).count());
        for n in (0..ports).filter(|_| ports > 1) {
            without(removed(object, &format!("/spec/ports/{n}")));
        }
        let endpoints = items(&object["endpoints"]).count();
        for n in 0..endpoints {
            without(removed(object, &format!("/endpoints/{n}")));
            for part in ENDPOINT_PARTS {
                without(removed(object, &format!("/endpoints/{n}/{part}")));
            }
        }
    }
    let mut node = case.clone();
    node.node.config.node_port_addresses.clear();
    all.push(node);
    let mut node = case.clone();
    node.node.zone.clear();
    all.push(node);
    all
}

/// The value without what a pointer points to, if there is something.
fn removed(value: &Value, pointer: &str) -> Option<Value> {
    let mut value = value.clone();
    let (parent, last) = pointer.rsplit_once('/')?;
    match value.pointer_mut(parent)? {
        Value::Object(fields) => fields.remove(last).map(drop),
        Value::Array(items) => {
            let at: usize = last.parse().ok()?;
            (at < items.len()).then(|| drop(items.remove(at)))
        }
        _ => None,
    }?;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn what_is_tried_is_smaller() {
        let case = Random::new(3).case().unwrap();
        let all = smaller(&case);
        assert!(all.len() > case.objects.len());
        assert!(all.iter().all(|next| size(next) <= size(&case)));
    }
}
