//! `cargo xtask conformance` and `cargo xtask oracle`, once they are built.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    reason = "a command line tool speaks on standard output"
)]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use conformance::case;
use conformance::oracle::{Oracle, fill_in};

/// Holds kube-lottery against kube-proxy.
#[derive(Parser)]
#[command(name = "conformance")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a file anew, with what the real kube-proxy does
    Observe(Observe),
}

#[derive(clap::Args)]
struct Observe {
    /// The file
    file: PathBuf,
    /// Where to write it
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// The oracle
    #[arg(long)]
    oracle: PathBuf,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Observe(options) => observe(options),
    }
}

fn observe(options: Observe) -> Result<ExitCode> {
    let mut cases = case::read(&options.file)?;
    let left_out = fill_in(&mut cases, &Oracle::new(options.oracle))?;
    for packet in &left_out {
        println!("left out: {packet}");
    }
    match options.output {
        Some(file) => case::write(&file, &case::header(&options.file)?, &cases)?,
        None => println!("{}", case::text(&cases)?),
    }
    Ok(ExitCode::SUCCESS)
}
