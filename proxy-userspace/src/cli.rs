//! The command line.

mod run;

use anyhow::Result;
use clap::{Parser, Subcommand};

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
}

impl Cli {
    /// Does what the command line says.
    pub fn execute(self) -> Result<()> {
        match self.command {
            Command::Run(args) => run::execute(args),
        }
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
