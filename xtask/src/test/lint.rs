//! Format and lints.

use anyhow::{Context as _, Result};
use std::process::Stdio;

use super::tally::Tally;
use crate::cargo;

const CHECKS: [(&str, &[&str]); 2] = [
    ("fmt", &["--all", "--check"]),
    (
        "clippy",
        &["--workspace", "--all-targets", "--", "-D", "warnings"],
    ),
];

pub(super) fn run() -> Result<Tally> {
    let mut total = Tally::default();
    for (component, arguments) in CHECKS {
        // A toolchain may come without them, and the code is no worse for that.
        if !is_there(component)? {
            println!("cargo {component} is not installed: skipped");
            total.skipped += 1;
            continue;
        }
        println!("cargo {component} {}", arguments.join(" "));
        let status = cargo::command()
            .arg(component)
            .args(arguments)
            .status()
            .context("cannot start cargo")?;
        total += Tally::of(status.success());
    }
    Ok(total)
}

fn is_there(component: &str) -> Result<bool> {
    let mut version = cargo::command();
    version
        .args([component, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(version.status().context("cannot start cargo")?.success())
}
