//! Builds every test executable once, as the user.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::ring::Ring;
use crate::cargo;

/// One test executable.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Executable {
    pub(crate) file: PathBuf,
    pub(crate) ring: Ring,
    /// For the reader, as cargo names it: package and source file.
    pub(crate) title: String,
    /// Where cargo would start it.
    pub(crate) directory: PathBuf,
}

/// What cargo is to build for all rings.
pub(super) const ALL: &[&str] = &["--all-targets"];

/// Builds these targets of the whole workspace, whatever ring is wanted: the same features for
/// all, so that no ring's build throws away another's.
pub(crate) fn executables(targets: &[&str]) -> Result<Vec<Executable>> {
    let mut cargo = cargo::command()
        .args([
            "test",
            "--workspace",
            "--no-run",
            "--message-format",
            "json-render-diagnostics",
        ])
        .args(targets)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let messages = BufReader::new(cargo.stdout.take().context("cargo's messages are piped")?);
    let mut found = Vec::new();
    for line in messages.lines() {
        let line = line.context("cannot read cargo's messages")?;
        found.extend(
            serde_json::from_str(&line)
                .ok()
                .as_ref()
                .and_then(executable),
        );
    }
    let status = cargo.wait().context("cannot wait for cargo")?;
    ensure!(status.success(), "the tests did not build");
    // Cargo tells of them as they get ready, in another order each time.
    found.sort_by(|one, other| one.title.cmp(&other.title));
    Ok(found)
}

/// The test executable that a message of cargo's tells of.
fn executable(message: &Value) -> Option<Executable> {
    let text = |value: &'_ Value| value.as_str().map(str::to_owned);
    if message.pointer("/profile/test") != Some(&Value::Bool(true)) {
        return None;
    }
    let target = message.get("target")?;
    let manifest = PathBuf::from(text(message.get("manifest_path")?)?);
    let directory = manifest.parent()?.to_owned();
    let source = PathBuf::from(text(target.get("src_path")?)?);
    let ring = match target.pointer("/kind/0").and_then(Value::as_str) {
        Some("test") => Ring::of_test(target.get("name")?.as_str()?),
        Some("bench") => Ring::Bench,
        _ => Ring::Host,
    };
    let relative = source.strip_prefix(&directory).unwrap_or(&source);
    Some(Executable {
        file: text(message.get("executable")?)?.into(),
        ring,
        title: format!(
            "{} {}",
            directory.file_name()?.display(),
            relative.display()
        ),
        directory,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, name: &str, is_test: bool) -> Value {
        serde_json::json!({
            "reason": "compiler-artifact",
            "manifest_path": "/repository/proxy-userspace/Cargo.toml",
            "target": { "kind": [kind], "name": name, "src_path": format!("/repository/proxy-userspace/tests/{name}.rs") },
            "profile": { "test": is_test },
            "executable": "/repository/target/debug/deps/x-1",
        })
    }

    #[test]
    fn an_integration_test_is_sorted_into_its_ring() {
        let found = executable(&message("test", "kernel", true)).expect("a test");
        assert_eq!(Ring::Kernel, found.ring);
        assert_eq!("proxy-userspace tests/kernel.rs", found.title);
        assert_eq!(
            PathBuf::from("/repository/proxy-userspace"),
            found.directory
        );
    }

    #[test]
    fn unit_tests_are_in_the_host_ring_whatever_the_crate_is_called() {
        assert_eq!(
            Some(Ring::Host),
            executable(&message("lib", "kernel", true)).map(|found| found.ring)
        );
    }

    #[test]
    fn benchmarks_have_a_ring_of_their_own() {
        assert_eq!(
            Some(Ring::Bench),
            executable(&message("bench", "program", true)).map(|found| found.ring)
        );
    }

    #[test]
    fn what_is_not_a_test_is_left_out() {
        assert_eq!(None, executable(&message("bin", "kube-lottery", false)));
        assert_eq!(
            None,
            executable(&serde_json::json!({ "reason": "build-finished", "success": true }))
        );
    }
}
