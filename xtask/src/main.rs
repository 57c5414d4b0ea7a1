//! `cargo xtask`: what a developer, a user who tries it and the CI type.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    reason = "a command line tool speaks on standard output"
)]

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::run;

mod bench;
mod cargo;
mod conformance;
mod privilege;
mod process;
mod setup;
mod test;

/// Build, try and test kube-lottery.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what is missing to build, run and test
    Setup(setup::Options),
    /// Run the tests, ring by ring
    Test(test::Options),
    /// Measure what a packet costs, and compare with what it may cost
    Bench(bench::Options),
    /// Hold the data path against kube-proxy: packets from files, or at random
    Conformance(conformance::Options),
    /// Ask the real kube-proxy what becomes of packets
    Oracle(conformance::OracleOptions),
    /// Show the lottery at work in a small cluster of network namespaces
    ///
    /// With FLAGS it loads `kube-lottery run FLAGS` on this very node instead.
    Run(Run),
}

#[derive(clap::Args)]
struct Run {
    /// Leave the cluster up and print how to enter it
    #[arg(long)]
    keep: bool,
    /// Do not look for missing tools first
    #[arg(long)]
    no_setup: bool,
    /// Flags of `kube-lottery run`
    #[arg(last = true)]
    flags: Vec<String>,
}

fn main() -> ExitCode {
    match dispatch(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            // Not returned from main: a backtrace would bury the commands that some messages recommend.
            println!("error: {error}");
            for cause in error.chain().skip(1) {
                println!("  because: {cause}");
            }
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Setup(options) => setup::run(&options)?,
        Command::Test(options) => return test::run(&options),
        Command::Bench(options) => return bench::run(&options),
        Command::Conformance(options) => return Ok(conformance::run(&options)),
        Command::Oracle(options) => return Ok(conformance::run_oracle(&options)),
        Command::Run(Run {
            keep,
            no_setup,
            flags,
        }) => {
            if !no_setup {
                setup::run(&setup::Options::default())?;
            }
            run::run(&run::Options { keep, flags })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
