//! The real proxy, as a process on a node of a lab.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::guard::Guard;
use super::manifest::Manifests;
use super::{Host, Lab};

/// A running proxy, ended when dropped.
#[derive(Debug)]
pub struct Proxy {
    child: Child,
    log: PathBuf,
    control_socket: PathBuf,
    guard: Arc<Guard>,
}

impl Lab {
    /// Starts `kube-lottery run` on a node and waits until it says that it is ready.
    pub fn start_proxy(&self, node: &Host, binary: &Path, manifests: &Manifests) -> Result<Proxy> {
        self.start_proxy_with(node, binary, manifests, &[])
    }

    /// The same with more flags.
    pub fn start_proxy_with(
        &self,
        node: &Host,
        binary: &Path,
        manifests: &Manifests,
        flags: &[&str],
    ) -> Result<Proxy> {
        let mut proxy = self.spawn_proxy(node, binary, manifests, flags)?;
        proxy.wait_until_ready()?;
        Ok(proxy)
    }

    /// Starts it and does not wait.
    pub fn spawn_proxy(
        &self,
        node: &Host,
        binary: &Path,
        manifests: &Manifests,
        flags: &[&str],
    ) -> Result<Proxy> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let log = self.folder.join(format!("{}-{number}.log", node.name));
        // Nodes share the file system.
        let control_socket = self.folder.join(format!("{}.sock", node.name));
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = node.namespace.command(&binary.display().to_string());
        command
            .args(["run", "--node-name", &node.name, "--manifests"])
            .arg(manifests.folder())
            .arg("--control-socket")
            .arg(&control_socket)
            .args(flags)
            // A filter that suits some other program could hide the line that is waited for.
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            // Ctrl-C ends us; what we leave is for the guard to end, in its order.
            .process_group(0);
        self.guard.proxy(node.namespace.name(), binary)?;
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        self.guard.started(child.id())?;
        Ok(Proxy {
            child,
            log,
            control_socket,
            guard: Arc::clone(&self.guard),
        })
    }
}

impl Proxy {
    /// Process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it answers.
    pub fn control_socket(&self) -> &Path {
        &self.control_socket
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends it by SIGKILL.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// How it ended; nothing if it says that it is ready instead.
    pub fn wait_for_end(&mut self) -> Result<Option<ExitStatus>> {
        let ready = self.wait_until_ready();
        match self.child.try_wait()? {
            Some(status) => Ok(Some(status)),
            None => ready.map(|()| None),
        }
    }

    /// Waits until it says that it is ready.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let end = Instant::now() + START_LIMIT;
        while Instant::now() < end {
            if self.log().lines().any(is_ready_line) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the proxy ended ({status}):\n{}", tail(&self.log()));
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!(
            "the proxy is not ready after {START_LIMIT:?}:\n{}",
            tail(&self.log())
        )
    }

    fn end(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        }
        let end = Instant::now() + END_LIMIT;
        while Instant::now() < end {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if thread::panicking() {
            #[expect(clippy::print_stderr, reason = "the test harness captures it")]
            {
                eprintln!("--- proxy log\n{}", tail(&self.log()));
            }
        }
        if self.end().is_ok() {
            drop(self.guard.ended(self.child.id()));
        }
    }
}

// One line of any log format that says so as a word.
fn is_ready_line(line: &str) -> bool {
    line.split(|letter: char| !letter.is_ascii_alphanumeric())
        .any(|word| word == "ready")
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    let first = lines.len().saturating_sub(TAIL);
    lines.get(first..).unwrap_or_default().join("\n")
}

const TAIL: usize = 40;
// An emulated kernel takes a minute to verify the programs of two.
const START_LIMIT: Duration = Duration::from_mins(5);
const END_LIMIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_is_told_from_others() {
        assert!(is_ready_line("2026-01-01T00:00:00Z  INFO ready: 4 devices"));
        assert!(is_ready_line("{\"message\":\"ready\"}"));
        assert!(!is_ready_line("2026-01-01T00:00:00Z  INFO already there"));
    }

    #[test]
    fn the_tail_is_the_end() {
        let log = (0..100)
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .join("\n");
        assert!(tail(&log).ends_with("98\n99"));
        assert_eq!("a", tail("a"));
    }
}
