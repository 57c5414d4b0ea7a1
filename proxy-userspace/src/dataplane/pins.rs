//! Where maps and links are pinned, so that they outlive the controller.
//!
//! One folder for each network namespace, named by its cookie, which is never used again; in it
//! one for each layout of the maps. The upper one is what a controller locks.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use proxy_common::abi::LAYOUT;
use rustix::fs::{FlockOperation, flock, statfs};
use rustix::mount::{MountFlags, mount};
use thiserror::Error;
use tracing::info;

use super::syscall::link::Direction;
use super::syscall::pin;

/// Where the BPF file system is mounted on every machine that has it.
const MOUNT_POINT: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC`.
const BPF_FS: u64 = 0xcafe_4a11;

/// Where the pins of the controller of one network namespace are.
#[derive(Clone, Debug)]
pub struct Place {
    root: PathBuf,
    netns: u64,
}

/// Why pins cannot be used.
#[derive(Debug, Error)]
pub enum PinError {
    /// No BPF file system.
    #[error("{} is not on a BPF file system; mount one: mount -t bpf bpf {MOUNT_POINT}", .0.display())]
    NotBpf(PathBuf),
    /// The network namespace does not say who it is.
    #[error("the network namespace has no cookie")]
    Cookie(#[source] io::Error),
    /// A filter or its queueing discipline cannot be removed.
    #[error("cannot remove a filter")]
    Filter(#[source] io::Error),
    /// An operation on a file or directory failed.
    #[error("cannot {verb} {}", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl PinError {
    pub(super) fn new<'a>(
        verb: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Io {
            verb,
            path: path.to_owned(),
            source,
        }
    }
}

impl Place {
    /// The place below `root` for the network namespace that this thread is in.
    pub fn here(root: &Path) -> Result<Self, PinError> {
        Ok(Self {
            root: root.to_owned(),
            netns: pin::netns_cookie().map_err(PinError::Cookie)?,
        })
    }

    /// Cookie of the network namespace.
    pub const fn netns(&self) -> u64 {
        self.netns
    }

    /// The directory below which all pins of all network namespaces are.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the network namespace.
    pub fn folder(&self) -> PathBuf {
        self.root.join(format!("netns-{}", self.netns))
    }

    /// The folder of the pins of this layout.
    pub fn pins(&self) -> PathBuf {
        self.folder().join(format!("layout-{LAYOUT}"))
    }

    /// The folders of pins of other layouts that are there.
    pub fn others(&self) -> Vec<PathBuf> {
        let own = self.pins();
        let mut all = entries(&self.folder());
        all.retain(|path| *path != own && is_layout(path));
        all
    }

    /// What notes that the queueing discipline for filters of a device is ours: the file system
    /// has no plain files.
    pub(super) fn hooks_made(&self, device: u32) -> PathBuf {
        self.folder().join(format!("{HOOKS}{device}"))
    }

    /// The devices of which that is noted.
    pub(super) fn made_hooks(&self) -> Vec<u32> {
        let all = entries(&self.folder()).into_iter();
        all.filter_map(|path| {
            path.file_name()?
                .to_str()?
                .strip_prefix(HOOKS)?
                .parse()
                .ok()
        })
        .collect()
    }

    /// Makes the folders, and mounts the file system where that is missing and allowed.
    pub fn make(&self) -> Result<(), PinError> {
        self.require_bpf()?;
        for folder in [self.root.clone(), self.folder(), self.pins()] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&folder)
                .map_err(PinError::new("make", &folder))?;
        }
        Ok(())
    }

    fn require_bpf(&self) -> Result<(), PinError> {
        if is_bpf(&self.root) {
            return Ok(());
        }
        if !self.root.starts_with(MOUNT_POINT) {
            return Err(PinError::NotBpf(self.root.clone()));
        }
        // Two controllers that start at once must not mount one upon the other. Both have locked
        // what lies below, and the second finds it mounted.
        let below = File::open(MOUNT_POINT).map_err(PinError::new("open", MOUNT_POINT.as_ref()))?;
        flock(&below, FlockOperation::LockExclusive)
            .map_err(|error| PinError::new("lock", MOUNT_POINT.as_ref())(error.into()))?;
        if is_bpf(&self.root) {
            return Ok(());
        }
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("bpf", MOUNT_POINT, "bpf", flags, c"mode=0700")
            .map_err(|_refused| PinError::NotBpf(self.root.clone()))?;
        info!(at = MOUNT_POINT, "mounted the BPF file system");
        Ok(())
    }
}

const HOOKS: &str = "clsact-";

/// Whether a path is a folder of pins.
pub(super) fn is_layout(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    path.is_dir() && name.is_some_and(|name| name.starts_with("layout-"))
}

/// Whether a path, or what there is of it, lies on a BPF file system.
fn is_bpf(path: &Path) -> bool {
    let found = path.ancestors().find(|path| path.exists());
    let kind = found.and_then(|found| statfs(found).ok());
    kind.is_some_and(|kind| u64::try_from(kind.f_type) == Ok(BPF_FS))
}

/// What is in a folder, in order; nothing if it is not there.
pub(super) fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort_unstable();
    paths
}

/// The pin of a link, as its name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkPin {
    /// Index of the device.
    pub(super) device: u32,
    /// Which hook.
    pub(super) direction: Direction,
    /// Whether it stands at the other end of the programs of its hook than usual.
    pub(super) is_reversed: bool,
    /// Whether it was about to take the place of another.
    pub(super) is_draft: bool,
}

impl LinkPin {
    /// The usual one of a device.
    pub(super) const fn new(device: u32, direction: Direction) -> Self {
        Self {
            device,
            direction,
            is_reversed: false,
            is_draft: false,
        }
    }

    /// The link that is pinned at a path, if it is one.
    pub(super) fn parse(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let (name, is_draft) = stripped(name, DRAFT);
        let (name, is_reversed) = stripped(name, REVERSED);
        let (direction, device) = name.split_once('-')?;
        let direction = match direction {
            "in" => Direction::Ingress,
            "eg" => Direction::Egress,
            _ => return None,
        };
        Some(Self {
            device: device.parse().ok()?,
            direction,
            is_reversed,
            is_draft,
        })
    }

    /// Its name.
    pub(super) fn name(self) -> String {
        let direction = match self.direction {
            Direction::Ingress => "in",
            Direction::Egress => "eg",
        };
        let reversed = if self.is_reversed { REVERSED } else { "" };
        let draft = if self.is_draft { DRAFT } else { "" };
        format!("{direction}-{}{reversed}{draft}", self.device)
    }
}

const REVERSED: &str = "-reversed";
/// As of maps.
const DRAFT: &str = "~";

fn stripped<'a>(name: &'a str, end: &str) -> (&'a str, bool) {
    name.strip_suffix(end)
        .map_or((name, false), |name| (name, true))
}

/// Removes a pin; whether it was there.
pub(super) fn remove(path: &Path) -> Result<bool, PinError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(PinError::new("remove", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_known_by_its_name() {
        let mut names = Vec::new();
        for direction in [Direction::Ingress, Direction::Egress] {
            for (is_reversed, is_draft) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let link = LinkPin {
                    is_reversed,
                    is_draft,
                    ..LinkPin::new(7, direction)
                };
                let path = Path::new("/x").join(link.name());
                assert_eq!(Some(link), LinkPin::parse(&path));
                names.push(link.name());
            }
        }
        let expected = [
            "in-7",
            "in-7~",
            "in-7-reversed",
            "in-7-reversed~", //
            "eg-7",
            "eg-7~",
            "eg-7-reversed",
            "eg-7-reversed~",
        ];
        assert_eq!(expected, *names);
        assert_eq!(None, LinkPin::parse(Path::new("/x/FLOWS4")));
        assert_eq!(None, LinkPin::parse(Path::new("/x/FLOWS4~")));
        assert_eq!(None, LinkPin::parse(Path::new("/x/in-x")));
    }

    #[test]
    fn every_namespace_and_layout_has_a_folder_of_its_own() {
        let place = Place {
            root: "/sys/fs/bpf/kube-lottery".into(),
            netns: 7,
        };
        let expected = format!("/sys/fs/bpf/kube-lottery/netns-7/layout-{LAYOUT}");
        assert_eq!(Path::new(&expected), place.pins());
    }
}
