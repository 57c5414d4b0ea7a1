//! The two commands of the README, on a machine that has only rustup, git and gcc.

use std::process::Command;

use anyhow::{Context as _, Result};
use xtask::ebpf::workspace_root;

use super::execute;
use super::tally::Tally;
use crate::process::{self, output};
use crate::{privilege, setup};

mod machine;

use machine::Machine;

/// Where the clone lies on the new machine.
const CLONE: &str = "/root/kube-lottery";

pub(super) fn run() -> Result<Tally> {
    setup::ensure_commands(
        &mut setup::Host::new(false, false),
        &[("debootstrap", "debootstrap")],
    )?;
    privilege::check()?;
    let machine = Machine::new()?;
    clone_onto(&machine)?;

    println!("\n==> fresh: cargo xtask run");
    let status = machine
        .command(&in_clone("cargo xtask run"))
        .status()
        .context("cannot enter the new machine")?;
    let mut total = Tally::of(status.success());
    println!("\n==> fresh: cargo xtask test");
    total += execute::count(
        &mut machine.command(&in_clone("cargo xtask test")),
        Tally::of_total_line,
    )?;
    machine.remove()?;
    Ok(total)
}

/// The last commit, as a clone would have it.
fn clone_onto(machine: &Machine) -> Result<()> {
    let changes = output(&mut git(&["status", "--porcelain"]))?;
    if !changes.is_empty() {
        println!("what is not committed yet is not tested:\n{changes}");
    }
    let head = output(&mut git(&["rev-parse", "HEAD"]))?;
    // A bundle is one file that neither owner nor mount of this repository matters to.
    let bundle = workspace_root().join("target/fresh.bundle");
    let bundle = bundle
        .to_str()
        .context("the path of the repository is not text")?;
    output(&mut git(&["bundle", "create", "--quiet", bundle, "HEAD"]))?;
    machine.copy(bundle, "root/bundle")?;
    let script = format!(
        "git clone --quiet --no-checkout bundle {CLONE} && git -C {CLONE} checkout --quiet {}",
        head.trim()
    );
    process::run(&mut machine.command(&script))
        .context("cannot clone the repository onto the new machine")
}

fn in_clone(command: &str) -> String {
    format!("cd {CLONE} && {command}")
}

fn git(arguments: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.current_dir(workspace_root()).args(arguments);
    git
}
