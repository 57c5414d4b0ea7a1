//! A compiler for the BPF target: rustup's, if it can fetch the sources of `core`, or Debian's.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use xtask::ebpf::{CHOSEN_COMPILER, Compiler, Linker, Tools, is_recent};

use super::{apt, host::Host};
use crate::process;

/// Debian's newest rustc, and its `core` for BPF.
const PACKAGES: [&str; 2] = ["rustc-web", "libstd-rust-web-dev-bpf"];
/// A download of three megabytes.
const LIMIT: Duration = Duration::from_mins(2);

/// The compiler there is now; none after a dry run that would have installed one.
pub(super) fn ensure(host: &mut Host) -> Result<Option<Compiler>> {
    if let Some(compiler) = find() {
        return Ok(Some(compiler));
    }
    // Who names a compiler wants that one: nothing that could be installed would be looked at.
    if std::env::var_os(CHOSEN_COMPILER).is_some() {
        bail!(
            "{CHOSEN_COMPILER} names a compiler that will not do\n{}",
            cures()
        );
    }
    Host::say("no compiler here has `core` for the BPF target");
    if process::find("rustup").is_some() {
        let mut rustup = Command::new("rustup");
        rustup.args(["component", "add", "rust-src"]);
        if host.attempt(rustup, LIMIT)
            && let Some(compiler) = find()
        {
            return Ok(Some(compiler));
        }
        Host::say(if host.is_dry_run() {
            "or, where rustup cannot download:"
        } else {
            "Debian has one, too:"
        });
    }
    if !apt::offers(host, PACKAGES[0], is_recent)? {
        if host.is_dry_run() {
            Host::say("no package of this system will do");
            return Ok(None);
        }
        bail!(cures());
    }
    apt::install(host, &PACKAGES)?;
    let compiler = find();
    if compiler.is_none() && !host.is_dry_run() {
        bail!(cures());
    }
    Ok(compiler)
}

/// Best one that fits the linker that is here; the linker can be replaced, though.
fn find() -> Option<Compiler> {
    Compiler::find(Linker::find().as_ref())
        .or_else(|_| Compiler::find(None))
        .ok()
}

/// What the build would say.
fn cures() -> String {
    Tools::find()
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default()
}
