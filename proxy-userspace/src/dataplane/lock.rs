//! One controller for each network namespace: whoever holds the lock of the folder of its pins.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;
use tracing::info;

use super::pins::Place;

/// The lock; the kernel opens it when the process ends, however that comes about.
#[derive(Debug)]
pub struct Lock {
    _folder: File,
}

/// Why the lock cannot be had.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another controller has it.
    #[error("another kube-lottery{} serves this network namespace (it holds {}); end it first, or take over with `run --replace`", by(*holder), folder.display())]
    Held {
        /// Its process, where it can be seen from here.
        holder: Option<i32>,
        /// What is locked.
        folder: PathBuf,
    },
    /// The other one was asked to end and has not.
    #[error("the other kube-lottery{} has not handed over within {} s", by(*holder), PATIENCE.as_secs())]
    Kept {
        /// Its process, where it can be seen from here.
        holder: Option<i32>,
    },
    /// The folder cannot be locked.
    #[error("cannot lock {}", folder.display())]
    Io {
        /// What is to be locked.
        folder: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl LockError {
    /// Whether it is another controller that is in the way.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Held { .. } | Self::Kept { .. })
    }
}

impl Lock {
    /// Takes the lock of a place, whose folder is there.
    pub fn take(place: &Place) -> Result<Self, LockError> {
        let folder = place.folder();
        let file = open(&folder)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, &folder) => Ok(Self { _folder: file }),
            // A clean-up has removed it since it was opened: nobody else would respect this lock.
            Ok(()) => Err(LockError::Io {
                folder,
                source: io::ErrorKind::NotFound.into(),
            }),
            Err(Errno::WOULDBLOCK) => Err(LockError::Held {
                holder: holder(&file),
                folder,
            }),
            Err(error) => Err(LockError::Io {
                folder,
                source: error.into(),
            }),
        }
    }

    /// Takes the lock; whoever has it is asked to end. What it attached stays, so no packet
    /// notices.
    pub fn replace(place: &Place) -> Result<Self, LockError> {
        let end = Instant::now() + PATIENCE;
        let mut asked = None;
        loop {
            let holder = match Self::take(place) {
                Err(LockError::Held { holder, .. }) => holder,
                other => return other,
            };
            if Instant::now() >= end {
                return Err(LockError::Kept { holder });
            }
            if asked != holder
                && let Some(pid) = holder.and_then(Pid::from_raw)
            {
                info!(pid = holder, "asking the other controller to hand over");
                kill_process(pid, Signal::TERM).ok();
                asked = holder;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Whether `file` is what has this name now.
fn is_at(file: &File, folder: &Path) -> bool {
    let (Ok(own), Ok(there)) = (file.metadata(), fs::metadata(folder)) else {
        return false;
    };
    (own.dev(), own.ino()) == (there.dev(), there.ino())
}

fn open(folder: &Path) -> Result<File, LockError> {
    File::open(folder).map_err(|source| LockError::Io {
        folder: folder.to_owned(),
        source,
    })
}

/// The process that holds the lock of a file, unless it is in another process namespace.
fn holder(file: &File) -> Option<i32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let found = file.metadata().ok()?;
    let (device, inode) = (found.dev(), found.ino());
    let wanted = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    parse_holder(&locks, &wanted)
}

/// Lines look like `1: FLOCK  ADVISORY  WRITE 12291 00:29:4688259 0 EOF`; those of waiters have an
/// arrow behind the number.
fn parse_holder(locks: &str, file: &str) -> Option<i32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        if words.next()? != "FLOCK" {
            return None;
        }
        let pid = words.nth(2)?.parse().ok()?;
        (words.next()? == file).then_some(pid)
    })
}

fn by(holder: Option<i32>) -> String {
    holder.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

/// How long the other may take to end.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_among_others() {
        let locks = "1: FLOCK  ADVISORY  WRITE 12 00:29:468 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 13 00:29:469 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 14 00:29:469 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 15 00:29:469 0 EOF\n";
        assert_eq!(Some(14), parse_holder(locks, "00:29:469"));
        assert_eq!(None, parse_holder(locks, "00:29:470"));
    }

    #[test]
    fn a_lock_is_held_once_and_its_holder_is_known() {
        let folder = std::env::temp_dir();
        let name = format!("kube-lottery-lock-{}", std::process::id());
        let path = folder.join(name);
        let first = File::create(&path).unwrap();
        flock(&first, FlockOperation::NonBlockingLockExclusive).unwrap();
        let second = File::open(&path).unwrap();
        let refused = flock(&second, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(Err(Errno::WOULDBLOCK), refused);
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(Some(own), holder(&second));
        fs::remove_file(&path).unwrap();
    }
}
