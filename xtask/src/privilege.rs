//! Becoming root for single commands, so that cargo and its files stay the user's.

use std::io::{IsTerminal as _, stdin};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::process;

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Fails where no command could be run as root.
pub(crate) fn check() -> Result<()> {
    ensure!(
        is_root() || process::find("sudo").is_some(),
        "this needs root, and there is no sudo here: start the same command as root"
    );
    Ok(())
}

/// `program` with extra variables, as root: directly, or by sudo.
pub(crate) fn as_root(program: &str, variables: &[(&str, &str)]) -> Command {
    if is_root() {
        let mut command = Command::new(program);
        command.envs(variables.iter().copied());
        return command;
    }
    let mut command = Command::new("sudo");
    if !stdin().is_terminal() {
        // Nobody could type a password.
        command.arg("--non-interactive");
    }
    // By env: sudo may be told not to take variables over.
    let variables = variables
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    command.arg("env").args(variables).arg(program);
    command
}
