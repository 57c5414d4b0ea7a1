//! Becoming root for single commands, so that cargo and its files stay the user's.

use std::ffi::OsStr;
use std::io::{IsTerminal as _, stdin};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::process;

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// `program` with extra variables, as root: directly, or by sudo.
pub(crate) fn as_root(program: &OsStr, variables: &[(&str, &str)]) -> Result<Command> {
    if is_root() {
        let mut command = Command::new(program);
        command.envs(variables.iter().copied());
        return Ok(command);
    }
    ensure!(
        process::find("sudo").is_some(),
        "{} must run as root, and there is no sudo here: start this command as root",
        program.display()
    );
    let mut command = Command::new("sudo");
    if !stdin().is_terminal() {
        // Nobody could type a password.
        command.arg("--non-interactive");
    }
    // By env: sudo may be told not to take variables over.
    command
        .arg("env")
        .args(
            variables
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        )
        .arg(program);
    Ok(command)
}
