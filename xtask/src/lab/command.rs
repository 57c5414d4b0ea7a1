//! Running other programs, with errors that say which one failed and why.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Runs a command to its end and returns what it printed.
pub(super) fn output(command: &mut Command) -> Result<String> {
    fed(command, "")
}

/// Runs a command with `input` as its standard input and returns what it printed.
pub(super) fn fed(command: &mut Command, input: &str) -> Result<String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    // A program that ended early says so by its exit code, not by our broken pipe.
    if let Some(mut stdin) = child.stdin.take() {
        drop(stdin.write_all(input.as_bytes()));
    }
    let output = child
        .wait_with_output()
        .with_context(|| format!("cannot wait for {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?} failed ({}): {}\n{input}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim(),
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs many `ip` commands in one process, where wanted inside of a namespace.
pub fn ip(namespace: Option<&str>, lines: &[String]) -> Result<()> {
    let mut command = Command::new("ip");
    if let Some(namespace) = namespace {
        command.args(["-n", namespace]);
    }
    fed(command.args(["-batch", "-"]), &(lines.join("\n") + "\n"))?;
    Ok(())
}
