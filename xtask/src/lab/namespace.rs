//! One network namespace, entered by a thread or by a child process.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A named network namespace.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// The namespace of that name, which need not exist yet.
    pub const fn new(name: String) -> Self {
        Self { name }
    }

    /// Name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Does `work` in a thread of its own inside of the namespace.
    ///
    /// A socket belongs to the namespace it was made in: what `work` returns may be used outside.
    /// Panics of `work` go on in the caller, so that tests can assert inside.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let path = self.path();
        let inside = || {
            let file = fs::File::open(&path)
                .with_context(|| format!("cannot open namespace {}", path.display()))?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .with_context(|| format!("cannot enter namespace {}", self.name))?;
            work()
        };
        thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// A command that will run inside.
    ///
    /// Not by `ip netns exec`, which mounts a fresh `/sys` over the BPF file system and cgroup2.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.path().display()))
            .arg("--")
            .arg(program);
        command
    }

    /// Writes kernel settings: names below `/proc/sys/net` and values.
    pub fn set(&self, settings: &[(String, &str)]) -> Result<()> {
        self.enter(|| {
            for (name, value) in settings {
                fs::write(format!("/proc/sys/net/{name}"), value)
                    .with_context(|| format!("cannot set net/{name} to {value}"))?;
            }
            Ok(())
        })
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }
}
