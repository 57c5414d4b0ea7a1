//! Cleans up behind a lab, however the process that made it ends.
//!
//! A child shell holds the list of what to remove and reads a pipe whose other end is ours. When
//! the pipe closes it removes everything: on drop, and as well on a panic that aborts, on Ctrl-C
//! and on SIGKILL, which no handler of ours would see. It sits in a process group of its own, so
//! that a terminal's signals do not reach it.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};

const SCRIPT: &str = r#"
names= pids= folder= proxies=
while read -r verb what; do
  case $verb in
    namespace) names="$names $what" ;;
    folder) folder=$what ;;
    started) pids="$pids $what " ;;
    proxy) proxies="$proxies$what
" ;;
    ended) pids=$(echo "$pids" | sed "s/ $what / /") ;;
  esac
done
for pid in $pids; do kill -9 "$pid"; done
# What proxies attached and pinned outlives them, and namespaces too.
printf %s "$proxies" | sort -u | while read -r name binary; do
  tries=50
  until nsenter "--net=/run/netns/$name" -- "$binary" cleanup || [ $tries -eq 0 ]; do
    tries=$((tries - 1))
    sleep 0.1
  done
done
for name in $names; do
  if [ -e "/run/netns/$name" ]; then echo "netns delete $name"; fi
done | ip -force -batch -
if [ -n "$folder" ]; then rm -rf -- "$folder"; fi
"#;

/// The list of what to remove; removes it when dropped.
#[derive(Debug)]
pub(super) struct Guard {
    shell: Child,
    list: Mutex<Option<ChildStdin>>,
}

impl Guard {
    /// Starts with an empty list.
    pub(super) fn new() -> Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start a shell to clean up")?;
        let list = Mutex::new(shell.stdin.take());
        Ok(Self { shell, list })
    }

    /// A namespace to delete; say so before it is made.
    pub(super) fn namespace(&self, name: &str) -> Result<()> {
        self.tell("namespace", name)
    }

    /// The folder to remove; say so before it is made.
    pub(super) fn folder(&self, path: &Path) -> Result<()> {
        self.tell("folder", &path.display().to_string())
    }

    /// A child process to kill.
    pub(super) fn started(&self, pid: u32) -> Result<()> {
        self.tell("started", &pid.to_string())
    }

    /// A proxy that leaves something behind in a namespace; say so before it is started.
    pub(super) fn proxy(&self, namespace: &str, binary: &Path) -> Result<()> {
        self.tell("proxy", &format!("{namespace} {}", binary.display()))
    }

    /// A child process that has been waited for: its number may soon be somebody else's.
    pub(super) fn ended(&self, pid: u32) -> Result<()> {
        self.tell("ended", &pid.to_string())
    }

    fn tell(&self, verb: &str, what: &str) -> Result<()> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let list = list.as_mut().context("the lab is being removed")?;
        writeln!(list, "{verb} {what}").context("the shell that cleans up has died")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let list = self.list.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(list.take());
        drop(self.shell.wait());
    }
}
