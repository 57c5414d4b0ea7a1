//! Doing steps on this machine, or only saying them.

use std::io::{BufRead as _, IsTerminal as _, Write as _, stdin, stdout};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::{privilege, process};

pub(crate) struct Host {
    dry_run: bool,
    /// Whether the user was asked, or need not be.
    may_change_system: bool,
    steps: usize,
    pub(super) has_fresh_lists: bool,
}

impl Host {
    pub(crate) fn new(yes: bool, dry_run: bool) -> Self {
        // Without a terminal there is nobody to ask; a CI wants it done.
        let may_change_system = yes || dry_run || !stdin().is_terminal();
        Self {
            dry_run,
            may_change_system,
            steps: 0,
            has_fresh_lists: false,
        }
    }

    pub(super) const fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    pub(super) const fn has_steps(&self) -> bool {
        self.steps > 0
    }

    pub(super) fn say(text: &str) {
        println!("setup: {text}");
    }

    /// A step that has to succeed.
    pub(super) fn run(&mut self, mut command: Command) -> Result<()> {
        self.announce(&command);
        if self.dry_run {
            return Ok(());
        }
        process::run(command.stdin(Stdio::null()))
    }

    /// A step that has an alternative: tells whether it worked.
    pub(super) fn attempt(&mut self, mut command: Command, limit: Duration) -> bool {
        self.announce(&command);
        if self.dry_run {
            return false;
        }
        let status = command
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start")
            .and_then(|child| wait(child, limit));
        match status {
            Ok(status) if status.success() => true,
            Ok(status) => {
                Self::say(&format!("that did not work: {status}"));
                false
            }
            Err(error) => {
                Self::say(&format!("that did not work: {error:#}"));
                false
            }
        }
    }

    /// Asks, once, before system packages are touched, and sees to it that they can be.
    pub(super) fn ask(&mut self, packages: &str) -> Result<()> {
        if !self.dry_run {
            privilege::check()?;
        }
        if self.may_change_system {
            return Ok(());
        }
        print!("setup: install the system packages {packages}? [Y/n] ");
        stdout().flush().context("cannot write to the terminal")?;
        let mut answer = String::new();
        stdin()
            .lock()
            .read_line(&mut answer)
            .context("cannot read the answer")?;
        if !is_yes(&answer) {
            bail!("not installed, as you wish: {packages}");
        }
        self.may_change_system = true;
        Ok(())
    }

    fn announce(&mut self, command: &Command) {
        self.steps += 1;
        Self::say(&process::line(command));
    }
}

fn wait(mut child: Child, limit: Duration) -> Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for it")? {
            return Ok(status);
        }
        if start.elapsed() > limit {
            child.kill().context("cannot stop it")?;
            child.wait().context("cannot wait for it")?;
            bail!("not ready within {} s", limit.as_secs());
        }
        sleep(Duration::from_millis(50));
    }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim(), "" | "y" | "Y" | "yes")
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
    fn a_dry_run_does_nothing_but_knows_that_there_is_something_to_do() {
        let mut host = Host::new(false, true);
        host.run(shell("exit 1")).expect("not run");
        assert!(!host.attempt(shell("exit 0"), Duration::from_secs(1)));
        assert!(host.has_steps());
    }

    #[test]
    fn an_attempt_that_hangs_is_given_up() {
        let mut host = Host::new(true, false);
        assert!(host.attempt(shell("exit 0"), Duration::from_secs(10)));
        assert!(!host.attempt(shell("exec sleep 60"), Duration::from_millis(100)));
    }

    #[test]
    fn enter_is_yes_and_anything_else_unknown_is_no() {
        assert!(is_yes("\n") && is_yes("y\n") && is_yes("yes\n"));
        assert!(!is_yes("n\n") && !is_yes("what\n"));
    }
}
