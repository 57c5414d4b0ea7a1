//! Follows the files: a thread that waits for the kernel to name those that changed, reads them
//! and hands on what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tracing::warn;

use super::{Source, Update};

/// An editor's or an installer's burst is over after so much silence …
const QUIET: Duration = Duration::from_millis(1);
/// … or is read while it goes on after so long.
const PATIENCE: Duration = Duration::from_millis(10);

/// How long to wait before a directory that is gone is looked for again.
const RETURN: Duration = Duration::from_millis(500);

/// Why the follower should look.
#[derive(Debug)]
pub enum Wake {
    /// The kernel reports a change.
    Event(notify::Result<Event>),
    /// Everything is to be read again.
    Everything,
    /// No more is wanted.
    Stop,
}

/// The watching thread; it ends when this is dropped.
#[derive(Debug)]
pub struct Follower {
    wake: Sender<Wake>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Follower {
    /// Has everything read again.
    pub fn read_all(&self) {
        // A closed channel means that the thread has ended, which is only so at exit.
        self.wake.send(Wake::Everything).ok();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.wake.send(Wake::Stop).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Reads `source` once and then whenever a file of it changes; each time what was found goes to
/// `updates`.
pub fn follow(
    mut source: Source,
    updates: mpsc::UnboundedSender<Update>,
) -> notify::Result<Follower> {
    let (wake, woken) = channel();
    let events = wake.clone();
    let watcher = notify::recommended_watcher(move |event| {
        events.send(Wake::Event(event)).ok();
    })?;
    let mut watching = Watching {
        watcher,
        directory: watched_directory(source.path()).to_path_buf(),
        is_lost: false,
        unsettled: BTreeMap::new(),
    };
    watching.begin()?;
    let thread = std::thread::Builder::new()
        .name("manifests".into())
        .spawn(move || {
            // The watch is older than the first reading, so nothing falls between the two.
            let mut update = source.read_all();
            loop {
                if updates.send(update).is_err() {
                    return;
                }
                update = match wait(&woken, &source, &mut watching) {
                    Some(Due::Everything) => source.read_all(),
                    Some(Due::Files(files)) => source.read(&files),
                    None => return,
                };
            }
        })
        .map_err(notify::Error::io)?;
    Ok(Follower {
        wake,
        thread: Some(thread),
    })
}

/// The directory itself, or the one a file is in: a file that is replaced by renaming would take
/// its watch along.
fn watched_directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !path.is_dir() && parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) if !path.is_dir() => parent,
        _ => path,
    }
}

/// The kernel's watch over a directory. It belongs to the directory, not to its name, so it is
/// lost when that is removed or replaced.
struct Watching {
    watcher: RecommendedWatcher,
    directory: PathBuf,
    is_lost: bool,
    /// Files that have appeared or gone, and when that counts if nothing else becomes of them.
    unsettled: BTreeMap<PathBuf, Instant>,
}

/// A file that has appeared is read when its writer closes it, or after this time: one that was
/// linked into place is never closed under its name.
const UNWRITTEN: Duration = Duration::from_secs(1);
/// A file that has gone is missed after this time: saving by way of a backup takes it away first.
const REPLACED: Duration = Duration::from_millis(100);

impl Watching {
    fn begin(&mut self) -> notify::Result<()> {
        self.watcher
            .watch(&self.directory, RecursiveMode::NonRecursive)
    }

    /// Watches again what has this name now, if there is something.
    fn resume(&mut self) -> bool {
        // Of a directory that was removed the kernel has forgotten the watch already.
        self.watcher.unwatch(&self.directory).ok();
        self.is_lost = self.begin().is_err();
        !self.is_lost
    }

    /// How long to wait for events while nothing is due; `None`: for ever.
    fn patience(&self, now: Instant) -> Option<Duration> {
        let next = self.unsettled.values().min();
        let next = next.map(|next| next.saturating_duration_since(now));
        let back = self.is_lost.then_some(RETURN);
        next.into_iter().chain(back).min()
    }

    /// Moves to `files` what has been given its time.
    fn settle(&mut self, now: Instant, files: &mut BTreeSet<PathBuf>) {
        self.unsettled.retain(|path, due| {
            let is_due = *due <= now;
            if is_due {
                files.insert(path.clone());
            }
            !is_due
        });
    }

    /// Notes what an event tells to be read, now or in a while.
    fn sort(
        &mut self,
        event: Event,
        source: &Source,
        files: &mut BTreeSet<PathBuf>,
        everything: &mut bool,
    ) {
        if event.need_rescan() {
            *everything = true;
            return;
        }
        let kind = event.kind;
        for (index, path) in event.paths.into_iter().enumerate() {
            let Some(sign) = sign(kind, index) else {
                continue;
            };
            // Paths below "." come with it, those the user gave without it.
            let path = path
                .strip_prefix(".")
                .map(Path::to_path_buf)
                .unwrap_or(path);
            if !source.includes(&path) {
                // A ConfigMap volume: all its files changed when this link was swapped.
                *everything |= path.file_name().is_some_and(|name| name == "..data");
                continue;
            }
            // What a link leads to was complete before.
            let wait = match sign {
                Sign::Begun if !path.is_symlink() => UNWRITTEN,
                Sign::Gone => REPLACED,
                Sign::Begun | Sign::Complete => {
                    self.unsettled.remove(&path);
                    files.insert(path);
                    continue;
                }
            };
            files.remove(&path);
            self.unsettled.insert(path, Instant::now() + wait);
        }
    }

    /// Whether an event says that the directory is not where it was.
    fn is_end(&self, event: &Event) -> bool {
        let moves = matches!(
            event.kind,
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))
        );
        moves && event.paths.contains(&self.directory)
    }
}

#[derive(Debug, PartialEq)]
enum Due {
    Files(BTreeSet<PathBuf>),
    Everything,
}

/// Waits until something is due and its burst is over; `None` at the end.
fn wait(woken: &Receiver<Wake>, source: &Source, watching: &mut Watching) -> Option<Due> {
    let mut files = BTreeSet::new();
    let mut everything = false;
    let mut deadline: Option<Instant> = None;
    loop {
        let now = Instant::now();
        watching.settle(now, &mut files);
        if deadline.is_none() && (everything || !files.is_empty()) {
            deadline = Some(now + PATIENCE);
        }
        let patience = match deadline {
            Some(deadline) => Some(deadline.saturating_duration_since(now).min(QUIET)),
            None => watching.patience(now),
        };
        let received = match patience {
            Some(patience) => woken.recv_timeout(patience),
            None => woken
                .recv()
                .map_err(|_closed| RecvTimeoutError::Disconnected),
        };
        let wake = match received {
            Ok(wake) => wake,
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) if deadline.is_some() => {
                return Some(if everything {
                    Due::Everything
                } else {
                    Due::Files(files)
                });
            }
            Err(RecvTimeoutError::Timeout) if watching.is_lost && watching.resume() => {
                Wake::Everything
            }
            Err(RecvTimeoutError::Timeout) => continue,
        };
        match wake {
            Wake::Stop => return None,
            Wake::Everything => everything = true,
            Wake::Event(Ok(event)) if watching.is_end(&event) => {
                watching.resume();
                everything = true;
            }
            Wake::Event(Ok(event)) => {
                watching.sort(event, source, &mut files, &mut everything);
            }
            Wake::Event(Err(error)) => {
                warn!(%error, "watching manifests failed, reading all of them");
                everything = true;
            }
        }
    }
}

/// What an event says about a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sign {
    /// It is as it should be.
    Complete,
    /// It has appeared; what it will hold may still be on its way.
    Begun,
    /// It has gone; some editors put another in its place a moment later.
    Gone,
}

/// What an event of this kind says about the `index`th of its paths.
const fn sign(kind: EventKind, index: usize) -> Option<Sign> {
    match kind {
        EventKind::Modify(ModifyKind::Name(RenameMode::From)) | EventKind::Remove(_) => {
            Some(Sign::Gone)
        }
        EventKind::Modify(ModifyKind::Name(RenameMode::Both)) if index == 0 => Some(Sign::Gone),
        EventKind::Modify(ModifyKind::Name(_))
        | EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(Sign::Complete),
        EventKind::Create(_) => Some(Sign::Begun),
        _ => None,
    }
}
