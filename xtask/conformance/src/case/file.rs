//! Reading and writing files of cases.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::{Case, check};

/// Reads a file of cases.
pub fn read(path: &Path) -> Result<Vec<Case>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("{} is no file of cases", path.display()))
}

fn parse(text: &str) -> Result<Vec<Case>> {
    // Cases at random are many; what could make a small file large stays bounded.
    let options = serde_saphyr::options! {
        budget: None,
        emit_comments: false,
        with_snippet: false,
    };
    let cases: Vec<Case> = serde_saphyr::from_str_with_options(text, options)?;
    check::all(&cases)?;
    Ok(cases)
}

/// The comment lines that a file begins with.
pub fn header(path: &Path) -> Result<String> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let comments = text
        .split_inclusive('\n')
        .take_while(|line| line.starts_with('#') || line.trim().is_empty());
    Ok(comments.collect())
}

/// Writes a file of cases, with comment lines before them.
pub fn write(path: &Path, header: &str, cases: &[Case]) -> Result<()> {
    let text = format!("{header}{}", text(cases)?);
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Cases as text: a line for each object and each packet. JSON is YAML.
pub fn text(cases: &[Case]) -> Result<String> {
    let mut text = String::new();
    for case in cases {
        let name = json(&case.name)?;
        writeln!(text, "- case: {name}")?;
        for (key, value) in [("source", &case.source), ("note", &case.note)] {
            if !value.is_empty() {
                writeln!(text, "  {key}: {}", json(value)?)?;
            }
        }
        writeln!(text, "  node: {}", json(&case.node)?)?;
        list(&mut text, "objects", &case.objects)?;
        list(&mut text, "packets", &case.packets)?;
    }
    Ok(text)
}

fn list<T: Serialize>(text: &mut String, key: &str, items: &[T]) -> Result<()> {
    if items.is_empty() {
        writeln!(text, "  {key}: []")?;
        return Ok(());
    }
    writeln!(text, "  {key}:")?;
    for item in items {
        writeln!(text, "  - {}", json(item)?)?;
    }
    Ok(())
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    Ok(serde_json::to_string(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [&str; 2] = [
        include_str!("../../../cases/packet-flows.yaml"),
        include_str!("../../../cases/packet-flows-random.yaml"),
    ];

    #[test]
    fn cases_that_are_written_are_read_again() {
        for file in OURS {
            let cases = parse(file).unwrap();
            assert_eq!(cases, parse(&text(&cases).unwrap()).unwrap());
        }
    }

    #[test]
    fn our_files_hold_what_they_say() {
        let [some, random] = OURS.map(|file| parse(file).unwrap());
        let packets = |cases: &[Case]| cases.iter().map(|case| case.packets.len()).sum::<usize>();
        assert_eq!((55, 219), (some.len(), packets(&some)));
        assert_eq!((80, 800), (random.len(), packets(&random)));
    }

    const NODE: &str = "node: {name: a, ips: [192.0.2.1], config: {iptablesLocalhostNodePorts: true, \
                        detectLocalMode: ClusterCIDR, masqueradeAll: false}}";

    fn refused(packet: &str) -> String {
        let text = format!("- {{case: one, {NODE}, objects: [], packets: [{packet}]}}");
        format!("{:#}", parse(&text).unwrap_err())
    }

    #[test]
    fn a_bad_file_is_told_what_is_wrong_with_it() {
        let start = "{name: p, proto: TCP, from: 10.0.0.1, in: pod";
        for (packet, message) in [
            (
                format!("{start}, to: 'fd00::1', port: 80}}"),
                "are not of one family",
            ),
            (
                format!("{start}, to: 10.0.0.2, port: 80, verdict: drop}}"),
                "unknown field `verdict`",
            ),
            (
                format!("{start}, to: 10.0.0.2, port: 80, expect: {{verdict: forward}}}}"),
                "0 backends do not go with verdict forward",
            ),
            (
                format!("{start}, to: 10.0.0.2, port: 80, expect: {{verdict: lost}}}}"),
                "unknown variant `lost`",
            ),
        ] {
            let said = refused(&packet);
            assert!(said.contains(message), "{said}");
        }
        let twice = format!("- {{case: one, {NODE}, objects: [], packets: []}}\n").repeat(2);
        let said = parse(&twice).unwrap_err().to_string();
        assert_eq!("case one: the name is there twice", said);
    }
}
