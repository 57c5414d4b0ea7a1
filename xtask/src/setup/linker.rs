//! bpf-linker, built for the LLVM that the compiler has.

use anyhow::{Result, bail};
use xtask::ebpf::{Compiler, Linker, Tools, linker};

use super::{apt, host::Host};
use crate::cargo;

pub(super) fn ensure(host: &mut Host, compiler: Option<&Compiler>) -> Result<()> {
    let oldest = compiler.map_or(linker::USUAL_LLVM, |compiler| compiler.llvm);
    match Linker::find() {
        Some(linker) if linker.reads(oldest) => return Ok(()),
        Some(linker) => Host::say(&format!("{linker} is too old for LLVM {oldest} bitcode")),
        None => Host::say("bpf-linker is not here"),
    }
    let Some(llvm) = packaged(host, oldest)? else {
        if host.is_dry_run() {
            Host::say(&format!(
                "no package of this system has LLVM {oldest} or newer"
            ));
            return Ok(());
        }
        match Tools::find() {
            Err(cures) => return Err(cures),
            Ok(tools) => bail!(
                "no package of this system has LLVM {oldest} or newer for {}",
                tools.compiler
            ),
        }
    };
    let packages = linker::build_packages(llvm);
    apt::install(
        host,
        &packages.iter().map(String::as_str).collect::<Vec<_>>(),
    )?;
    let (variable, prefix) = linker::install_prefix(llvm);
    let mut install = cargo::command();
    install
        .env(variable, prefix)
        .args(linker::install_arguments(llvm));
    host.run(install)
}

/// The oldest LLVM on offer that reads bitcode of `oldest`.
fn packaged(host: &mut Host, oldest: u32) -> Result<Option<u32>> {
    for llvm in oldest..=linker::NEWEST_LLVM {
        if apt::offers(host, &format!("llvm-{llvm}-dev"), |_| true)? {
            return Ok(Some(llvm));
        }
    }
    Ok(None)
}
