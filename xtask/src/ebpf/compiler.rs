//! Finds a rustc that can compile for the BPF target.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::linker::Linker;

/// Names the compiler to use; no other is tried then.
pub const CHOSEN_COMPILER: &str = "PROXY_BPF_RUSTC";
/// The workspace's `rust-version`: cargo refuses an older compiler.
const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

/// A compiler that qualifies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Compiler {
    /// The executable.
    pub rustc: PathBuf,
    /// Its version, as `1.95.0`.
    pub release: String,
    /// The major version of the LLVM inside.
    pub llvm: u32,
    /// Where `core` comes from.
    pub core: Core,
}

/// Where `core` for the BPF target comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Core {
    /// Compiled beforehand, by the distribution.
    Prebuilt,
    /// Compiled by us from the `rust-src` component.
    Source,
}

/// A compiler that was looked at and does not qualify.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rejected {
    /// The executable.
    pub rustc: PathBuf,
    /// Why not.
    pub reason: String,
}

impl Compiler {
    /// The first candidate that qualifies, and whose bitcode `linker` can read.
    pub fn find(linker: Option<&Linker>) -> Result<Self, Vec<Rejected>> {
        let mut rejected = Vec::<Rejected>::new();
        for rustc in Places::of_this_machine().candidates() {
            if rejected.iter().any(|earlier| earlier.rustc == rustc) {
                continue;
            }
            match Self::probe(&rustc, linker) {
                Ok(compiler) => return Ok(compiler),
                Err(reason) => rejected.push(Rejected { rustc, reason }),
            }
        }
        Err(rejected)
    }

    fn probe(rustc: &Path, linker: Option<&Linker>) -> Result<Self, String> {
        let version = ask(rustc, &["-vV"])?;
        let sysroot = ask(rustc, &["--print", "sysroot"])?;
        Self::qualify(rustc, &version, Path::new(sysroot.trim()), linker)
    }

    /// Decides on a compiler by what it says about itself and what lies in its sysroot.
    fn qualify(
        rustc: &Path,
        version: &str,
        sysroot: &Path,
        linker: Option<&Linker>,
    ) -> Result<Self, String> {
        let field = |name: &str| {
            version
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        let release = field("release:").ok_or("does not tell its version")?;
        let llvm = field("LLVM version:")
            .and_then(major)
            .ok_or("does not tell its LLVM version")?;
        if !is_recent(release) {
            return Err(format!("{release} is older than {OLDEST}"));
        }
        let core = core_in(sysroot).ok_or(format!(
            "{release} has neither a prebuilt core for BPF nor rust-src"
        ))?;
        if let Some(linker) = linker.filter(|linker| !linker.reads(llvm)) {
            return Err(format!(
                "{release} writes bitcode of LLVM {llvm}, too new for {linker}"
            ));
        }
        // The proxy of rustup would look for a toolchain again, so name the real executable.
        let real = sysroot.join("bin/rustc");
        let rustc = if real.exists() {
            real
        } else {
            rustc.to_owned()
        };
        Ok(Self {
            rustc,
            release: release.to_owned(),
            llvm,
            core,
        })
    }
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = match self.core {
            Core::Prebuilt => "prebuilt core",
            Core::Source => "core from rust-src",
        };
        write!(
            f,
            "rustc {} ({}, LLVM {}, {core})",
            self.release,
            self.rustc.display(),
            self.llvm
        )
    }
}

/// Where compilers may be.
#[derive(Debug, Default)]
struct Places {
    chosen: Option<PathBuf>,
    active: PathBuf,
    rustup_home: Option<PathBuf>,
    search_path: Vec<PathBuf>,
}

impl Places {
    fn of_this_machine() -> Self {
        let home = env::home_dir();
        Self {
            chosen: env::var_os(CHOSEN_COMPILER).map(PathBuf::from),
            // Cargo sets RUSTC for build scripts.
            active: env::var_os("RUSTC")
                .unwrap_or_else(|| "rustc".into())
                .into(),
            rustup_home: env::var_os("RUSTUP_HOME")
                .map(PathBuf::from)
                .or(home.map(|home| home.join(".rustup"))),
            search_path: env::var_os("PATH")
                .map(|path| env::split_paths(&path).collect())
                .unwrap_or_default(),
        }
    }

    /// What to try, in this order: the chosen one alone; the active one, rustup's stable, rustup's
    /// nightly, the distribution's.
    fn candidates(&self) -> Vec<PathBuf> {
        if let Some(chosen) = &self.chosen {
            return vec![chosen.clone()];
        }
        let mut found = vec![self.active.clone()];
        for channel in ["stable", "nightly"] {
            found.extend(
                self.toolchains(channel)
                    .into_iter()
                    .map(|toolchain| toolchain.join("bin/rustc")),
            );
        }
        let system = ["/usr/local/bin", "/usr/bin"].map(PathBuf::from);
        found.extend(
            self.search_path
                .iter()
                .chain(&system)
                .map(|dir| dir.join("rustc"))
                .filter(|file| file.exists()),
        );
        found
    }

    fn toolchains(&self, channel: &str) -> Vec<PathBuf> {
        let Some(home) = &self.rustup_home else {
            return Vec::new();
        };
        let entries = fs::read_dir(home.join("toolchains"))
            .into_iter()
            .flatten()
            .flatten();
        let mut found: Vec<_> = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(channel))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found
    }
}

fn ask(rustc: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(rustc)
        .args(arguments)
        .output()
        .map_err(|error| format!("cannot be run: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(format!(
            "fails: {}",
            stderr.lines().next().unwrap_or_default()
        ))
    }
}

fn core_in(sysroot: &Path) -> Option<Core> {
    let libraries = fs::read_dir(sysroot.join("lib/rustlib/bpfel-unknown-none/lib"))
        .into_iter()
        .flatten()
        .flatten();
    if libraries
        .into_iter()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"))
    {
        return Some(Core::Prebuilt);
    }
    sysroot
        .join("lib/rustlib/src/rust/library/core")
        .is_dir()
        .then_some(Core::Source)
}

/// Whether a rustc of this version may compile the workspace.
pub fn is_recent(version: &str) -> bool {
    (major(version), minor(version)) >= (major(OLDEST), minor(OLDEST))
}

fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

fn minor(version: &str) -> Option<u32> {
    version.split('.').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests;
