//! `cargo xtask conformance` and `cargo xtask oracle`: kube-proxy's behaviour, packet by packet.
//!
//! Both are in a package of their own (`xtask/conformance`), since the controller, which they need,
//! is itself built with the help of this one.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, ensure};
use xtask::ebpf::workspace_root;

use crate::{cargo, privilege, process};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Files of cases
    #[arg(required_unless_present = "random")]
    files: Vec<PathBuf>,
    /// Make so many cases at random, and compare with the real kube-proxy, which needs Go
    #[arg(long, conflicts_with = "files", value_name = "CASES")]
    random: Option<usize>,
    /// What cases at random are made from
    #[arg(long, requires = "random", default_value_t = 1)]
    seed: u64,
    /// As kube-proxy behaves in this mode only, not in both
    #[arg(long, value_parser = ["iptables", "nftables"])]
    mode: Option<String>,
    /// Say why a packet fares as it does, as far as the tables tell
    #[arg(short, long)]
    verbose: bool,
}

#[derive(clap::Args)]
pub(crate) struct OracleOptions {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Write a file of cases with what the real kube-proxy does to each packet
    Observe {
        /// The file
        file: PathBuf,
        /// Where to write it; standard output if not given
        #[arg(short, long)]
        output: Option<PathBuf>,
    },
}

/// The exit code of a command that could not do its work.
const TROUBLE: u8 = 2;

/// Exit code 1 says that something differs; what keeps it from being found out is another one.
pub(crate) fn run(options: &Options) -> ExitCode {
    or_trouble(compare(options))
}

fn or_trouble(result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        println!("error: {error:#}");
        ExitCode::from(TROUBLE)
    })
}

fn compare(options: &Options) -> Result<ExitCode> {
    let mode = options.mode.as_ref().map(|mode| format!("--mode={mode}"));
    let Some(cases) = options.random else {
        return start(|command| {
            command.arg("check").args(&mode);
            command.args(options.verbose.then_some("--verbose"));
            command.args(&options.files);
        });
    };
    let Some(oracle) = oracle()? else {
        return Ok(ExitCode::SUCCESS);
    };
    start(|command| {
        command.args(["random", &cases.to_string()]).args(&mode);
        command.arg(format!("--seed={}", options.seed));
        command.arg("--oracle").arg(&oracle);
        command
            .arg("--folder")
            .arg(workspace_root().join("target/conformance"));
    })
}

pub(crate) fn run_oracle(options: &OracleOptions) -> ExitCode {
    or_trouble(ask(options))
}

fn ask(options: &OracleOptions) -> Result<ExitCode> {
    let What::Observe { file, output } = &options.what;
    let Some(oracle) = oracle()? else {
        return Ok(ExitCode::SUCCESS);
    };
    start(|command| {
        command.arg("observe").arg(file);
        if let Some(output) = output {
            command.arg("--output").arg(output);
        }
        command.arg("--oracle").arg(&oracle);
    })
}

/// Builds the program, and runs it as root.
fn start(arguments: impl FnOnce(&mut Command)) -> Result<ExitCode> {
    privilege::check()?;
    let program = build()?;
    let program = program
        .to_str()
        .context("the path of the repository is not text")?;
    let mut command = privilege::as_root(program, &[]);
    arguments(&mut command);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{}`", process::line(&command)))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(TROUBLE)))
}

fn build() -> Result<PathBuf> {
    let mut command = cargo::command();
    command
        .args(["build", "--workspace", "--bin", "conformance"])
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit());
    let output = command.output().context("cannot start cargo")?;
    ensure!(output.status.success(), "it does not build, see above");
    let messages = String::from_utf8_lossy(&output.stdout);
    let named = messages.lines().rev().find_map(executable);
    named.context("cargo named no binary")
}

/// The binary that a message of cargo's tells of.
fn executable(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let file = PathBuf::from(message.get("executable")?.as_str()?);
    (file.file_name()? == "conformance").then_some(file)
}

/// Builds the oracle; nothing where Go is missing.
fn oracle() -> Result<Option<PathBuf>> {
    let Some(go) = process::find("go") else {
        println!("skipped: the real kube-proxy is built with Go (1.26), which is not installed");
        return Ok(None);
    };
    let program = workspace_root().join("target/oracle/oracle");
    println!("building the real kube-proxy, which takes minutes the first time");
    build_oracle(&go, &program)?;
    Ok(Some(program))
}

fn build_oracle(go: &Path, program: &Path) -> Result<()> {
    let mut command = Command::new(go);
    command
        .current_dir(workspace_root().join("xtask/oracle"))
        .env("CGO_ENABLED", "0")
        .args(["build", "-trimpath", "-o"])
        .arg(program)
        .arg(".");
    process::run(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_the_one_of_that_name() {
        let message = |file: &str| format!("{{\"executable\":\"{file}\"}}");
        assert_eq!(
            Some(PathBuf::from("/a/conformance")),
            executable(&message("/a/conformance"))
        );
        assert_eq!(None, executable(&message("/a/kube-lottery")));
        assert_eq!(None, executable("{\"executable\":null}"));
    }
}
