//! A source, a plan behind it, and what comes of both.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube_lottery::manifests::{Source, Update};
use kube_lottery::plan::{FrontendView, Limits, Plan, ServiceView};

/// A directory of its own, gone at its end.
pub(super) struct Dir(pub(super) PathBuf);

impl Dir {
    pub(super) fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("kube-lottery-bad-input-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub(super) fn write(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text).unwrap();
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Reads manifests and plans for them.
pub(super) struct World {
    pub(super) source: Source,
    dir: PathBuf,
    plan: Plan,
    /// What was complained of, in the words of the log, with `dir/` for the directory.
    pub(super) messages: Vec<String>,
}

impl World {
    pub(super) fn new(source: Source, dir: &Path, limits: Limits) -> Self {
        Self {
            source,
            dir: dir.to_path_buf(),
            plan: Plan::new("node1", limits),
            messages: Vec::new(),
        }
    }

    pub(super) fn read(&mut self) {
        let update = self.source.read_all();
        self.take(update);
    }

    pub(super) fn take(&mut self, update: Update) {
        let problems = update.problems.iter().map(ToString::to_string);
        self.messages = problems.collect();
        assert!(
            self.messages
                .iter()
                .all(|message| update.standing.problems.contains(message)),
            "what is logged must stand in the status: {:?}",
            update.standing
        );
        let outcome = self.plan.update(update.changes, Duration::ZERO);
        let notices = outcome.notices.iter();
        self.messages
            .extend(notices.map(|(service, notice)| format!("{service}: {notice}")));
        let dir = self.dir.display().to_string();
        for message in &mut self.messages {
            *message = message.replace(&format!("{dir}/"), "").replace(&dir, "DIR");
        }
    }

    /// What clients reach, each frontend with its endpoints.
    pub(super) fn served(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for ServiceView { name, ports, .. } in self.plan.view(|_| true) {
            for port in ports {
                let listed = port.endpoints.iter().filter(|endpoint| endpoint.is_listed);
                let listed: Vec<_> = listed.map(|endpoint| endpoint.addr.to_string()).collect();
                let listed = match &*listed {
                    [] => "no endpoint".to_owned(),
                    some => some.join(", "),
                };
                for FrontendView { at, .. } in &port.frontends {
                    lines.push(format!("{} {at} → {listed}", name.name()));
                }
            }
        }
        lines
    }
}
