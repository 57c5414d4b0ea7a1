//! Finding, starting and naming programs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Where a program lies; also where root's `PATH` has more than the user's.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let user = env::var_os("PATH")
        .map(|path| env::split_paths(&path).collect::<Vec<_>>())
        .unwrap_or_default();
    let root = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    user.into_iter()
        .chain(root)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// Runs a command that has to succeed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start `{}`", line(command)))?;
    ensure!(status.success(), "`{}` failed", line(command));
    Ok(())
}

/// What a command prints, which has to succeed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot start `{}`", line(command)))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{}` failed: {}",
        line(command),
        errors.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command as one could type it.
pub(crate) fn line(command: &Command) -> String {
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    let variables =
        variables.map(|(name, value)| format!("{}={}", name.display(), value.display()));
    let arguments = command
        .get_args()
        .map(|argument| argument.display().to_string());
    let program = Path::new(command.get_program());
    // Some are known by their full paths here; the reader has them in PATH.
    let program = program
        .file_name()
        .unwrap_or(program.as_os_str())
        .display()
        .to_string();
    variables
        .chain([program])
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_shell_is_found_and_nonsense_is_not() {
        assert!(find("sh").is_some());
        assert_eq!(None, find("no-such-program"));
    }

    #[test]
    fn a_command_reads_as_it_would_be_typed() {
        let mut command = Command::new("/opt/bin/cargo");
        command
            .env("LLVM_PREFIX", "/usr/lib/llvm-22")
            .env_remove("RUSTFLAGS")
            .args(["install", "bpf-linker"]);
        assert_eq!(
            "LLVM_PREFIX=/usr/lib/llvm-22 cargo install bpf-linker",
            line(&command)
        );
    }

    #[test]
    fn a_failed_command_is_named_with_what_it_said() {
        assert_eq!(
            "`sh -c exit 3` failed",
            run(&mut shell("exit 3")).expect_err("fails").to_string()
        );
        let error = output(&mut shell("echo why >&2; exit 3"))
            .expect_err("fails")
            .to_string();
        assert!(error.ends_with("failed: why"), "{error}");
    }
}
