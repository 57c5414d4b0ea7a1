//! `cargo xtask run`: the demonstration, or with flags the proxy on this very node.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

mod binary;
mod change;
mod demo;
mod examples;
mod held;
mod prober;
mod table;
mod tally;

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Leave the demonstration's cluster up until Ctrl-C.
    pub keep: bool,
    /// Flags of `kube-lottery run`; if there are any, it runs with them on this node.
    pub flags: Vec<String>,
}

/// Builds the proxy, becomes root and runs the demonstration or the proxy.
pub fn run(options: &Options) -> Result<()> {
    // Built by the user who called, so that no file in the build folder belongs to root.
    let binary = match std::env::var_os(BINARY) {
        Some(path) => PathBuf::from(path),
        None => binary::build()?,
    };
    if !rustix::process::geteuid().is_root() {
        return become_root(&binary, options);
    }
    if options.flags.is_empty() {
        return demo::run(&binary, options.keep);
    }
    let error = Command::new(&binary).arg("run").args(&options.flags).exec();
    Err(error).with_context(|| format!("cannot start {}", binary.display()))
}

/// Where the process that was not root yet has found the proxy.
const BINARY: &str = "KUBE_LOTTERY_BINARY";

fn become_root(binary: &Path, options: &Options) -> Result<()> {
    let this = std::env::current_exe().context("cannot find the path of xtask")?;
    let mut command = Command::new("sudo");
    command
        .arg("env")
        .arg(format!("{BINARY}={}", binary.display()))
        .arg(this)
        .args(["run", "--no-setup"]);
    if options.keep {
        command.arg("--keep");
    }
    if !options.flags.is_empty() {
        command.arg("--").args(&options.flags);
    }
    let error = command.exec();
    Err(error).context("this needs root, and sudo does not start: run it as root")
}
