//! Debian's and Ubuntu's packages.

use std::io::{IsTerminal as _, stdout};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::host::Host;
use crate::{privilege, process};

pub(super) fn is_available() -> bool {
    process::find("apt-get").is_some()
}

/// Installs those of `packages` that are not there.
pub(super) fn install(host: &mut Host, packages: &[&str]) -> Result<()> {
    let missing: Vec<_> = packages
        .iter()
        .copied()
        .filter(|package| !is_installed(package))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    ensure!(
        is_available(),
        "missing, and only apt-get is known here; the packages that Debian has for it: {}",
        missing.join(" ")
    );
    let listed = missing.join(" ");
    host.ask(&listed)
        .and_then(|()| install_all(host, &missing))
        .with_context(|| format!("not done: apt-get install {listed}"))
}

fn install_all(host: &mut Host, packages: &[&str]) -> Result<()> {
    if packages.iter().any(|package| candidate(package).is_none()) {
        refresh(host)?;
    }
    // Packages may have moved on since the lists were read.
    if host.run(install_command(packages)).is_err() {
        refresh(host)?;
        host.run(install_command(packages))?;
    }
    Ok(())
}

/// The version that would be installed, if it pleases `wanted`; looks at new lists if need be.
pub(super) fn offers(
    host: &mut Host,
    package: &str,
    wanted: impl Fn(&str) -> bool,
) -> Result<bool> {
    if !is_available() {
        return Ok(false);
    }
    let offered = || candidate(package).is_some_and(|version| wanted(&version));
    if offered() {
        return Ok(true);
    }
    host.ask(package)?;
    refresh(host)?;
    // Without new lists a dry run can only hope.
    Ok(offered() || host.is_dry_run())
}

/// Reads the package lists anew, once.
fn refresh(host: &mut Host) -> Result<()> {
    if host.has_fresh_lists {
        return Ok(());
    }
    host.has_fresh_lists = true;
    let mut command = privilege::as_root("apt-get", &[]);
    command.arg("update");
    host.run(quiet(command))
}

fn install_command(packages: &[&str]) -> Command {
    let mut command = privilege::as_root("apt-get", &[("DEBIAN_FRONTEND", "noninteractive")]);
    // Rather fail than take away what the user has: rustc-web conflicts with rustc and rustup.
    command
        .args(["install", "--yes", "--no-install-recommends", "--no-remove"])
        .args(packages);
    quiet(command)
}

/// Some hundred lines about packages are for who watches; errors come by the other stream.
fn quiet(mut command: Command) -> Command {
    if !stdout().is_terminal() {
        command.stdout(Stdio::null());
    }
    command
}

fn is_installed(package: &str) -> bool {
    let output = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${db:Status-Status}", package])
        .output();
    output.is_ok_and(|output| output.stdout == b"installed")
}

fn candidate(package: &str) -> Option<String> {
    let output = Command::new("apt-cache")
        .args(["policy", package])
        .output()
        .ok()?;
    candidate_in(&String::from_utf8_lossy(&output.stdout)).map(str::to_owned)
}

fn candidate_in(policy: &str) -> Option<&str> {
    let version = policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (version != "(none)").then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_on_offer_is_read_off_the_policy() {
        let policy = "rustc-web:\n  Installed: (none)\n  Candidate: 1.96.0+dfsg1-1~deb12u2\n  Version table:\n";
        assert_eq!(Some("1.96.0+dfsg1-1~deb12u2"), candidate_in(policy));
    }

    #[test]
    fn a_package_without_a_version_is_not_on_offer() {
        assert_eq!(
            None,
            candidate_in("rustc-web:\n  Installed: (none)\n  Candidate: (none)\n")
        );
        assert_eq!(None, candidate_in(""));
    }
}
