//! A directory that a test fills and that goes with it.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let dir = env::temp_dir().join(format!("kube-lottery-{name}-{}", process::id()));
        fs::create_dir_all(&dir).expect("the temporary directory is writable");
        Self(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Creates an empty file and the directories above it.
    pub(crate) fn file(&self, path: &str) {
        let file = self.0.join(path);
        fs::create_dir_all(file.parent().expect("below the scratch directory")).expect("writable");
        fs::write(file, []).expect("writable");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left in the temporary directory harms no other test.
        drop(fs::remove_dir_all(&self.0));
    }
}
