//! `cargo xtask setup`: installs what is missing to build, run and test.
//!
//! Each step is printed before it is done. A machine that has everything is told so after a few
//! look-ups of files.

use anyhow::{Context as _, Result};
use xtask::ebpf::{self, Tools};

mod apt;
mod commands;
mod compiler;
mod host;
mod linker;

pub(crate) use commands::ensure as ensure_commands;
pub(crate) use host::Host;

#[derive(Default, clap::Args)]
pub(crate) struct Options {
    /// Install system packages without asking
    #[arg(long)]
    yes: bool,
    /// Print the steps, do none of them
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut host = Host::new(options.yes, options.dry_run);
    install(&mut host).context(
        "set-up failed; `cargo xtask run` and `cargo xtask test` go without it by --no-setup",
    )?;
    if options.dry_run && host.has_steps() {
        println!("setup: that is all; nothing was done");
        return Ok(());
    }
    let state = if host.has_steps() {
        "done"
    } else {
        "nothing to do"
    };
    println!("setup: {state}: {}", build_tools()?);
    Ok(())
}

fn install(host: &mut Host) -> Result<()> {
    commands::ensure(host, &commands::NEEDED)?;
    if ebpf::ready_object().is_some() {
        return Ok(());
    }
    // The compiler first: it decides which LLVM the linker is built with.
    let compiler = compiler::ensure(host)?;
    linker::ensure(host, compiler.as_ref())
}

/// What the eBPF object comes from.
fn build_tools() -> Result<String> {
    if let Some(object) = ebpf::ready_object() {
        return Ok(format!("the object is {}", object.display()));
    }
    let tools = Tools::find()?;
    Ok(format!("{}, {}", tools.compiler, tools.linker))
}
