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
use conformance::hunt::Hunt;
use conformance::oracle::{Oracle, fill_in};
use conformance::run::Report;
use conformance::world::World;
use kube_lottery::config::Mode;

/// Holds kube-lottery against kube-proxy.
#[derive(Parser)]
#[command(name = "conformance")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send the packets of files through the data path, and compare
    Check(Check),
    /// Make cases at random, and compare with the real kube-proxy
    Random(Random),
    /// Write a file anew, with what the real kube-proxy does
    Observe(Observe),
}

#[derive(clap::Args)]
struct Check {
    /// Files of cases
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// As kube-proxy behaves in this mode only: iptables or nftables
    #[arg(long, value_parser = mode)]
    mode: Option<Mode>,
    /// Say why, as far as the tables tell
    #[arg(short, long)]
    verbose: bool,
}

fn mode(text: &str) -> Result<Mode, &'static str> {
    match text {
        "iptables" => Ok(Mode::Iptables),
        "nftables" => Ok(Mode::Nftables),
        _ => Err("legal are iptables and nftables"),
    }
}

#[derive(clap::Args)]
struct Random {
    /// How many cases
    cases: usize,
    /// What they are made from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// In this mode only: iptables or nftables
    #[arg(long, value_parser = mode)]
    mode: Option<Mode>,
    /// The oracle
    #[arg(long)]
    oracle: PathBuf,
    /// Where small cases are written that fail
    #[arg(long)]
    folder: PathBuf,
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
        Command::Check(options) => check(&options),
        Command::Random(options) => random(options),
        Command::Observe(options) => observe(options),
    }
}

fn check(options: &Check) -> Result<ExitCode> {
    let files: Vec<_> = options
        .files
        .iter()
        .map(|file| case::read(file))
        .collect::<Result<_>>()?;
    let mut total = Report::default();
    for mode in modes(options.mode) {
        let mut world = World::load(mode)?;
        for case in files.iter().flatten() {
            let report = conformance::run::run(&mut world, case)?;
            for failure in &report.failures {
                println!("{failure}");
                for line in failure.why.iter().filter(|_| options.verbose) {
                    println!("    {line}");
                }
            }
            total += report;
        }
    }
    Ok(close(&total))
}

fn random(options: Random) -> Result<ExitCode> {
    let hunt = Hunt {
        cases: options.cases,
        seed: options.seed,
        modes: &modes(options.mode),
        oracle: &Oracle::new(options.oracle),
        folder: &options.folder,
        tell: &mut |line| println!("{line}"),
    };
    Ok(close(&hunt.run()?))
}

fn modes(only: Option<Mode>) -> Vec<Mode> {
    only.map_or_else(|| vec![Mode::Iptables, Mode::Nftables], |mode| vec![mode])
}

fn close(total: &Report) -> ExitCode {
    println!("{total}");
    if total.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
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
