//! The `kube-lottery` binary.

use std::process::ExitCode;

use clap::Parser as _;
use kube_lottery::cli::{Cli, exit_code};

#[expect(clippy::print_stderr, reason = "logging may be what failed")]
fn main() -> ExitCode {
    match Cli::parse().execute() {
        Ok(code) => code,
        Err(error) => {
            // Not returned: a backtrace would bury the reason.
            eprintln!("error: {error:#}");
            exit_code(&error).into()
        }
    }
}
