//! `cargo xtask bench`: what a packet costs.

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::test::build;
use crate::test::ring::Ring;
use crate::{privilege, process, setup};

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// The kernel programs alone: each path of a packet through them, in the kernel's test runs
    Program(Program),
}

#[derive(clap::Args)]
struct Program {
    /// Only paths whose names contain this
    filter: Option<String>,
    /// Compare with the budgets, and fail where one is broken
    #[arg(long)]
    gate: bool,
    /// Renew the budgets
    #[arg(long, conflicts_with_all = ["gate", "filter"])]
    write: bool,
    /// How to print: table or json
    #[arg(short, long, default_value = "table", value_parser = ["table", "json"])]
    output: String,
    /// Do not look for missing tools first
    #[arg(long)]
    no_setup: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let What::Program(program) = &options.what;
    // What the set-up says is not for programs to read.
    if !program.no_setup && program.output == "table" {
        setup::run(&setup::Options::default())?;
    }
    privilege::check()?;
    let built = build::executables(&["--bench", "program"])?;
    let executable = built
        .iter()
        .find(|executable| executable.ring == Ring::Bench)
        .context("cargo has built no benchmark")?;
    let file = executable
        .file
        .to_str()
        .context("the path of the repository is not text")?;
    let mut command = privilege::as_root(file, &[]);
    command.args(["--output", &program.output]);
    command.args(program.gate.then_some("--gate"));
    command.args(program.write.then_some("--write"));
    command.args(&program.filter);
    command.current_dir(&executable.directory);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{}`", process::line(&command)))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
