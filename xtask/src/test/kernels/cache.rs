//! Where kernels are kept from one run to the next, and for all copies of the repository.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

/// How long what a mirror has is taken as known.
const FRESH: Duration = Duration::from_hours(24);

/// The folder of one suite, locked against other runs.
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    pub(super) fn lock(suite: &str) -> Result<Self> {
        let path = base()?.join("kube-lottery/kernels").join(suite);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let lock = File::create(path.join("lock")).context("cannot make a lock file")?;
        lock.lock()
            .with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the mirror was asked a short while ago.
    pub(super) fn is_fresh(&self) -> bool {
        let asked = fs::metadata(self.asked()).and_then(|file| file.modified());
        // A time to come says that the clock was changed.
        asked.is_ok_and(|time| time.elapsed().is_ok_and(|age| age < FRESH))
    }

    pub(super) fn was_ever_asked(&self) -> bool {
        self.asked().exists()
    }

    /// Takes down that the mirror was asked just now.
    pub(super) fn set_fresh(&self) -> Result<()> {
        fs::write(self.asked(), []).context("cannot write to the cache")
    }

    fn asked(&self) -> PathBuf {
        self.path.join("asked")
    }
}

fn base() -> Result<PathBuf> {
    env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(env::home_dir()?.join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME says where a cache may be")
}
