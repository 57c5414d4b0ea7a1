//! The command line.

mod cleanup;
mod look;
mod paper;
mod run;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory as _, Parser, Subcommand};

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
    /// How the controller of this node is, on one screen: exit code 0 if all is well, 1 if
    /// something is not, 2 if it does not run.
    Status(look::StatusArgs),
    /// Services with their frontends and what was counted of them.
    Services(look::ServicesArgs),
    /// Endpoints with their picks, shares and live flows.
    Endpoints(look::EndpointsArgs),
    /// Devices with what they are taken for, and whether and how they are attached to.
    Devices(look::DevicesArgs),
    /// The flow table, one row for each flow, with names.
    Flows(look::FlowsArgs),
    /// Packets that did not get through, by reason, with what that means and what to look at next.
    Drops(look::DropsArgs),
    /// Whether endpoints are drawn with equal odds, by what was counted: exit code 1 if the split of
    /// a Service that is asked for is off.
    Fairness(look::FairnessArgs),
    /// Services, endpoints or clients with the most new flows, or the most flows.
    Top(look::TopArgs),
    /// What happens to flows and packets, as it happens.
    Monitor(look::MonitorArgs),
    /// Where a packet goes, step by step, and why; nothing is sent or changed. Exit code 0 if an
    /// endpoint gets it, 1 if not.
    Explain(look::ExplainArgs),
    /// Which Service an address and port belong to, or why to none: exit code 0 if new flows find
    /// an endpoint there, 1 if not.
    Why(look::WhyArgs),
    /// Remove all that was attached and pinned for this node.
    Cleanup(cleanup::Args),
    /// Print what a shell needs to complete this command line.
    Completion(paper::CompletionArgs),
    /// Print the manual page, or write those of all commands into a directory.
    Man(paper::ManArgs),
}

impl Cli {
    /// Does what the command line says.
    pub fn execute(self) -> Result<ExitCode> {
        match self.command {
            Command::Run(args) => run::execute(args).map(|()| ExitCode::SUCCESS),
            Command::Status(args) => look::status(&args),
            Command::Services(args) => look::services(&args),
            Command::Endpoints(args) => look::endpoints(&args),
            Command::Devices(args) => look::devices(&args),
            Command::Flows(args) => look::flows(&args),
            Command::Drops(args) => look::drops(&args),
            Command::Fairness(args) => look::fairness(&args),
            Command::Top(args) => look::top(&args),
            Command::Monitor(args) => look::monitor(&args),
            Command::Explain(args) => look::explain(&args),
            Command::Why(args) => look::why(&args),
            Command::Cleanup(args) => cleanup::execute(&args).map(|()| ExitCode::SUCCESS),
            Command::Completion(args) => {
                paper::completion(&args, Self::command()).map(|()| ExitCode::SUCCESS)
            }
            Command::Man(args) => paper::man(&args, Self::command()).map(|()| ExitCode::SUCCESS),
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
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
