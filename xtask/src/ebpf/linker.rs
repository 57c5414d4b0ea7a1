//! Finds bpf-linker and the LLVM it was built with.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _};

const NAME: &str = "bpf-linker";
/// The version that this workspace is built and tested with.
pub const VERSION: &str = "0.13.0";

/// The newest LLVM that it can be built with.
pub const NEWEST_LLVM: u32 = 23;
/// Assumed where no compiler tells: the LLVM of the oldest rustc that the workspace accepts.
pub const USUAL_LLVM: u32 = 22;

/// A bpf-linker on this machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Linker {
    /// The executable.
    pub path: PathBuf,
    /// The major version of its LLVM; unknown when LLVM is linked into it.
    pub llvm: Option<u32>,
}

impl Linker {
    /// The first one in `PATH`, or in cargo's own directory, which need not be in `PATH`.
    pub fn find() -> Option<Self> {
        let path = directories()
            .into_iter()
            .map(|dir| dir.join(NAME))
            .find(|file| file.is_file())?;
        let llvm = fs::read(&path).ok().and_then(|bytes| llvm_of(&bytes));
        Some(Self { path, llvm })
    }

    /// Whether it understands the bitcode of a compiler with this LLVM.
    pub fn reads(&self, llvm: u32) -> bool {
        self.llvm.is_none_or(|newest| newest >= llvm)
    }

    /// `PATH` for a rustc that is to find this linker first.
    pub(super) fn search_path(&self) -> OsString {
        let dirs = self
            .path
            .parent()
            .map(Path::to_owned)
            .into_iter()
            .chain(directories());
        // Fails only if a directory's name holds a colon; then PATH as it is must do.
        env::join_paths(dirs).unwrap_or_else(|_| env::var_os("PATH").unwrap_or_default())
    }
}

impl fmt::Display for Linker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.llvm {
            Some(llvm) => write!(f, "{NAME} ({}, LLVM {llvm})", self.path.display()),
            None => write!(f, "{NAME} ({})", self.path.display()),
        }
    }
}

/// The cargo arguments that build it against an installed LLVM.
pub fn install_arguments(llvm: u32) -> Vec<String> {
    let fixed = [
        "install",
        NAME,
        "--version",
        VERSION,
        "--locked",
        "--no-default-features",
        "--features",
    ];
    fixed
        .map(str::to_owned)
        .into_iter()
        .chain([format!("llvm-{llvm}")])
        .collect()
}

/// The variable that tells that build where LLVM lies, and the place where Debian puts it.
pub fn install_prefix(llvm: u32) -> (&'static str, String) {
    ("LLVM_PREFIX", format!("/usr/lib/llvm-{llvm}"))
}

/// The Debian packages that it is built with.
pub fn build_packages(llvm: u32) -> Vec<String> {
    vec![
        "g++".to_owned(),
        format!("llvm-{llvm}-dev"),
        format!("libpolly-{llvm}-dev"),
        "zlib1g-dev".to_owned(),
    ]
}

fn directories() -> Vec<PathBuf> {
    let search_path = env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>());
    let cargo_home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(env::home_dir()?.join(".cargo")));
    search_path
        .into_iter()
        .flatten()
        .chain(cargo_home.map(|home| home.join("bin")))
        .collect()
}

/// The major version of the shared LLVM that an executable asks for.
fn llvm_of(elf: &[u8]) -> Option<u32> {
    let header = FileHeader64::<Endianness>::parse(elf).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, elf).ok()?;
    let (entries, strings) = sections.dynamic(endian, elf).ok()??;
    let strings = sections.strings(endian, elf, strings).ok()?;
    let needed = entries
        .iter()
        .filter(|entry| entry.tag(endian) == DT_NEEDED);
    needed
        .into_iter()
        .find_map(|entry| llvm_in(str::from_utf8(entry.string(endian, strings).ok()?).ok()?))
}

/// 22 for `libLLVM.so.22.1` as for `libLLVM-22.so.1`.
fn llvm_in(library: &str) -> Option<u32> {
    let rest = library.strip_prefix("libLLVM")?;
    let digits = rest.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits
        .split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_llvm_version_is_read_off_either_style_of_library_name() {
        assert_eq!(Some(22), llvm_in("libLLVM.so.22.1"));
        assert_eq!(Some(19), llvm_in("libLLVM-19.so.1"));
        assert_eq!(None, llvm_in("libc.so.6"));
        assert_eq!(None, llvm_in("libLLVM.so"));
    }

    #[test]
    fn a_linker_with_llvm_inside_has_no_known_version() {
        let this_test = fs::read(env::current_exe().expect("known")).expect("readable");
        assert_eq!(None, llvm_of(&this_test));
        assert_eq!(None, llvm_of(b"#!/bin/sh"));
    }
}
