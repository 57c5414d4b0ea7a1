//! Builds the kernel object and hands it to a build script.
//!
//! One child cargo compiles `proxy-ebpf` with a compiler that knows the BPF target. It has a target
//! directory of its own, so the outer cargo's lock is no obstacle and debug, release and clippy
//! builds share one warm object.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::LazyLock;

use anyhow::{Context as _, Result, bail, ensure};

mod compiler;
mod cure;
pub mod linker;
#[cfg(test)]
mod scratch;
mod symbols;

pub use compiler::{CHOSEN_COMPILER, Compiler, Core, is_recent};
pub use linker::Linker;

/// The crate, its binary and the file in `OUT_DIR` all have this name.
const PACKAGE: &str = "proxy-ebpf";
const TARGET: &str = "bpfel-unknown-none";
/// Names a ready object.
const OBJECT_VARIABLE: &str = "PROXY_EBPF_OBJECT";

/// The whole of a build script: puts the checked object into `OUT_DIR` as `proxy-ebpf` and tells
/// cargo when to do so again.
#[expect(
    clippy::print_stderr,
    reason = "cargo shows a failed build script's standard error"
)]
pub fn embed() -> ExitCode {
    match put_object() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not returned from main: a backtrace would bury the cures.
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[expect(
    clippy::print_stdout,
    reason = "a build script speaks to cargo on standard output"
)]
fn put_object() -> Result<()> {
    let out =
        PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is set for build scripts only")?);
    let root = workspace_root();
    for variable in [OBJECT_VARIABLE, CHOSEN_COMPILER] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    for input in [
        "proxy-ebpf",
        "proxy-common",
        "xtask/src/ebpf.rs",
        "xtask/src/ebpf",
        "Cargo.toml",
        "Cargo.lock",
    ] {
        println!("cargo:rerun-if-changed={}", root.join(input).display());
    }

    let object = if let Some(ready) = ready_object() {
        ready
    } else {
        let tools = Tools::find()?;
        // A new compiler or linker may mean a new object.
        println!("cargo:rerun-if-changed={}", tools.compiler.rustc.display());
        println!("cargo:rerun-if-changed={}", tools.linker.path.display());
        let built = tools.build(&target_dir(&out))?;
        for line in built.warnings {
            println!("cargo:warning={PACKAGE}: {line}");
        }
        built.object
    };
    let bytes = fs::read(&object)
        .with_context(|| format!("cannot read the eBPF object {}", object.display()))?;
    symbols::refuse_panics(&bytes).with_context(|| format!("in {}", object.display()))?;
    fs::write(out.join(PACKAGE), bytes).context("cannot write the eBPF object to OUT_DIR")
}

/// The object to use instead of building one.
pub fn ready_object() -> Option<PathBuf> {
    env::var_os(OBJECT_VARIABLE).map(PathBuf::from)
}

/// What it takes to build the object.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The rustc that knows the BPF target.
    pub compiler: Compiler,
    /// The bpf-linker that reads that rustc's bitcode.
    pub linker: Linker,
}

struct Built {
    object: PathBuf,
    warnings: Vec<String>,
}

impl Tools {
    /// Finds both tools, or says in one error what is missing and how to get it.
    pub fn find() -> Result<Self> {
        let linker = Linker::find();
        let compiler = Compiler::find(linker.as_ref());
        match (compiler, linker) {
            (Ok(compiler), Some(linker)) => Ok(Self { compiler, linker }),
            (compiler, linker) => bail!(cure::explain(&compiler, linker.as_ref())),
        }
    }

    fn build(&self, target_dir: &Path) -> Result<Built> {
        let output = self
            .cargo(target_dir)
            .output()
            .context("cannot start cargo for the eBPF programs")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "the eBPF programs did not build with {}:\n{stderr}",
            self.compiler
        );
        Ok(Built {
            object: target_dir.join(TARGET).join("release").join(PACKAGE),
            warnings: stderr
                .lines()
                .filter(|line| is_diagnostic(line))
                .map(str::to_owned)
                .collect(),
        })
    }

    fn cargo(&self, target_dir: &Path) -> Command {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .current_dir(workspace_root())
            .args([
                "build",
                "--release",
                "--package",
                PACKAGE,
                "--bins",
                "--target",
                TARGET,
                "--color",
                "never",
            ])
            .arg("--target-dir")
            .arg(target_dir);
        if self.compiler.core == Core::Source {
            cargo.arg("-Zbuild-std=core");
        }
        for (name, _) in env::vars_os() {
            if name.to_str().is_some_and(is_of_outer_build) {
                cargo.env_remove(name);
            }
        }
        cargo
            .env("RUSTC", &self.compiler.rustc)
            // The compiler is a stable one; the BPF target needs unstable features.
            .env("RUSTC_BOOTSTRAP", "1")
            .env(
                "CARGO_ENCODED_RUSTFLAGS",
                ["-Ctarget-cpu=v3", "-Cdebuginfo=2", "-Clink-arg=--btf"].join("\x1f"),
            )
            .env("PATH", self.linker.search_path());
        cargo
    }
}

/// Settings meant for the host's build, which would end up in the object or change the compiler.
fn is_of_outer_build(variable: &str) -> bool {
    const NAMES: [&str; 8] = [
        "CARGO_BUILD_TARGET",
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_INCREMENTAL",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_LINKER",
        "RUSTFLAGS",
        "RUSTUP_TOOLCHAIN",
    ];
    NAMES.contains(&variable)
        || variable.starts_with("CARGO_PROFILE_")
        || variable.starts_with("CARGO_BUILD_RUSTC")
}

/// The lines of cargo's output that tell what is wrong and where.
fn is_diagnostic(line: &str) -> bool {
    line.starts_with("warning: ") || line.trim_start().starts_with("--> ")
}

/// `ebpf` in the target directory that `out`, a build script's `OUT_DIR`, lies in.
fn target_dir(out: &Path) -> PathBuf {
    // Cargo marks its target directory, wherever the user wants it to be, with this file.
    let marked = out
        .ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").exists());
    marked
        .map_or_else(|| workspace_root().join("target"), Path::to_owned)
        .join("ebpf")
}

/// The directory with the workspace's `Cargo.toml`.
///
/// Cargo tells where it runs a package of it from. Where this was compiled comes second: with its
/// target directory, a repository may be copied or moved.
pub fn workspace_root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let running = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let compiled = Path::new(env!("CARGO_MANIFEST_DIR"));
        running
            .and_then(|package| root_above(&package))
            .or_else(|| root_above(compiled))
            .unwrap_or_else(|| compiled.to_owned())
    });
    &ROOT
}

/// The parent of a package's directory, if it is this workspace's.
fn root_above(package: &Path) -> Option<PathBuf> {
    let root = package.parent()?;
    let is_it = root.join(PACKAGE).is_dir() && root.join("xtask").is_dir();
    is_it.then(|| root.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_repository_is_a_workspace_of_its_own() {
        let copy = scratch::Scratch::new("copy");
        let package = copy.path().join("proxy-userspace");
        assert_eq!(None, root_above(&package));
        copy.file("proxy-ebpf/Cargo.toml");
        copy.file("xtask/Cargo.toml");
        assert_eq!(Some(copy.path().to_owned()), root_above(&package));
    }

    #[test]
    fn settings_of_the_host_build_do_not_reach_the_kernel_object() {
        for name in [
            "RUSTFLAGS",
            "CARGO_PROFILE_RELEASE_LTO",
            "RUSTUP_TOOLCHAIN",
            "CARGO_BUILD_RUSTC_WRAPPER",
        ] {
            assert!(is_of_outer_build(name), "{name}");
        }
        for name in ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_MAKEFLAGS", "PATH"] {
            assert!(!is_of_outer_build(name), "{name}");
        }
    }

    #[test]
    fn warnings_are_passed_on_with_their_places() {
        let output =
            "   Compiling x\nwarning: unused variable: `a`\n --> proxy-ebpf/src/tc.rs:1:5\n  |\n";
        let kept: Vec<_> = output.lines().filter(|line| is_diagnostic(line)).collect();
        assert_eq!(
            [
                "warning: unused variable: `a`",
                " --> proxy-ebpf/src/tc.rs:1:5"
            ],
            kept.as_slice()
        );
    }
}
