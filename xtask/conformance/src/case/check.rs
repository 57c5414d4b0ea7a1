//! What a case must be beyond its form.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::{Case, Packet, Verdict};

/// Fails at the first case that cannot be meant.
pub(super) fn all(cases: &[Case]) -> Result<()> {
    let mut names = BTreeSet::new();
    for case in cases {
        let name = &case.name;
        ensure!(names.insert(name), "case {name}: the name is there twice");
        ensure!(!case.node.ips.is_empty(), "case {name}: node.ips is empty");
        for (index, object) in case.objects.iter().enumerate() {
            let kind = object.get("kind").and_then(serde_json::Value::as_str);
            ensure!(
                matches!(kind, Some("Service" | "EndpointSlice")),
                "case {name}: objects[{index}].kind: {} is not legal; legal are Service and EndpointSlice",
                kind.unwrap_or("nothing"),
            );
        }
        for packet in &case.packets {
            packet_of(case, packet)?;
        }
    }
    Ok(())
}

fn packet_of(case: &Case, packet: &Packet) -> Result<()> {
    let place = || format!("case {}: packet \"{}\"", case.name, packet.name);
    ensure!(
        packet.from.is_ipv4() == packet.to.is_ipv4(),
        "{}: from {} and to {} are not of one family",
        place(),
        packet.from,
        packet.to
    );
    for outcome in packet.expect.iter().chain(&packet.expect_iptables) {
        let forwards = outcome.verdict == Verdict::Forward;
        ensure!(
            forwards != outcome.backends.is_empty(),
            "{}: {} backends do not go with verdict {}",
            place(),
            outcome.backends.len(),
            outcome.verdict
        );
        ensure!(
            !forwards || outcome.masquerade.is_some(),
            "{}: verdict forward needs masquerade",
            place()
        );
    }
    Ok(())
}
