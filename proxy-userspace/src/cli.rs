//! The command line.

mod cleanup;
mod run;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::dataplane::LockError;

/// Where maps and links are pinned.
const BPF_DIR: &str = "/sys/fs/bpf/kube-lottery";

/// A drop-in kube-proxy whose Service traffic is balanced by a lottery in the kernel.
#[derive(Debug, Parser)]
#[command(name = "kube-lottery", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve this node until stopped.
    Run(run::Args),
    /// Remove all that was attached and pinned for this node.
    Cleanup(cleanup::Args),
}

impl Cli {
    /// Does what the command line says.
    pub fn execute(self) -> Result<()> {
        match self.command {
            Command::Run(args) => run::execute(args),
            Command::Cleanup(args) => cleanup::execute(&args),
        }
    }
}

/// The exit code that an error stands for: 3 if another controller is in the way, else 1.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let lock: Option<&LockError> = error.downcast_ref();
    if lock.is_some_and(LockError::is_refusal) {
        3
    } else {
        1
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
