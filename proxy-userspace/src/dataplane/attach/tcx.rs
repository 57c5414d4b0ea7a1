//! Links to TCX.
//!
//! They are pinned: they outlive this process, and the next one swaps their programs for its own
//! between two packets.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use tracing::{debug, info, warn};

use super::Failed;
use crate::dataplane::cleanup::unlink;
use crate::dataplane::pins::{PinError, Place, entries, link_name, parse_link, remove};
use crate::dataplane::syscall::link::{self, Direction, End};
use crate::dataplane::syscall::pin;

/// The links of all devices.
#[derive(Debug)]
pub(super) struct Tcx {
    place: Option<Place>,
    /// By the index of the device.
    links: HashMap<(u32, Direction), OwnedFd>,
}

impl Tcx {
    pub(super) fn new(place: Option<Place>) -> Self {
        Self {
            place,
            links: HashMap::new(),
        }
    }

    /// Attaches a program, in the place of one that is there.
    pub(super) fn attach(
        &mut self,
        device: u32,
        direction: Direction,
        program: BorrowedFd<'_>,
    ) -> Result<(), Failed> {
        let at = (device, direction);
        if let Some(link) = self.links.get(&at) {
            return Ok(link::update(link, program)?);
        }
        let own = self.place.as_ref().map(Place::pins);
        let own = own.map(|folder| folder.join(link_name(device, direction)));
        if let Some((link, path)) = self.former(device, direction)? {
            link::update(&link, program)?;
            if let Some(own) = own.filter(|own| *own != path) {
                // In one step: a link that had two pins would be taken off with the older one.
                fs::rename(&path, &own).map_err(PinError::new("pin a link at", &own))?;
            }
            self.links.insert(at, link);
            return Ok(());
        }
        let end = match direction {
            Direction::Ingress => End::Last,
            Direction::Egress => End::First,
        };
        let link = link::create(program, device, direction, end)?;
        if let Some(own) = own {
            pin::pin(&link, &own).map_err(PinError::new("pin a link at", &own))?;
        }
        self.links.insert(at, link);
        Ok(())
    }

    /// Whether the link that was made for a device is still there.
    pub(super) fn is_attached(&self, device: u32, direction: Direction) -> bool {
        let link = self.links.get(&(device, direction));
        let info = link.and_then(|link| link::info(link).ok());
        let chain = link::chain(device, direction).unwrap_or_default();
        info.is_some_and(|info| chain.place_of(info.id).is_some())
    }

    /// Detaches from a device, wherever it is by now.
    pub(super) fn detach(&mut self, device: u32) {
        for direction in [Direction::Ingress, Direction::Egress] {
            let Some(link) = self.links.remove(&(device, direction)) else {
                continue;
            };
            // It fails where the device is gone, and the link is off it already.
            link::detach(&link).ok();
            if let Some(place) = &self.place {
                report(remove(&place.pins().join(link_name(device, direction))).map(drop));
            }
        }
    }

    pub(super) fn device_count(&self) -> usize {
        let devices: BTreeSet<_> = self.links.keys().map(|(device, _)| device).collect();
        devices.len()
    }

    /// Ends what former runs have left at devices that are not in `wanted`, and what other
    /// layouts have left altogether.
    pub(super) fn settle(&self, wanted: &BTreeSet<u32>) {
        let Some(place) = &self.place else {
            return;
        };
        for path in entries(&place.pins()) {
            if let Some((direction, device)) = parse_link(&path)
                && !wanted.contains(&device)
            {
                debug!(device, ?direction, "detached from a device of a former run");
                report(unlink(&path));
            }
        }
        for folder in place.others() {
            let mut pins = entries(&folder);
            // Links of ingress first.
            pins.sort_by_key(|path| parse_link(path).is_none_or(|(at, _)| at == Direction::Egress));
            for path in pins {
                // A second pin of a link in use, which a run that died while moving it may have
                // left, must not take the link along.
                if self.holds(&path) {
                    report(fs::remove_file(&path).map_err(PinError::new("remove", &path)));
                } else {
                    report(unlink(&path));
                }
            }
            report(fs::remove_dir(&folder).map_err(PinError::new("remove", &folder)));
            info!(folder = %folder.display(), "removed the pins of another layout");
        }
    }

    /// Whether the link that is pinned at `path` is one of those in use.
    fn holds(&self, path: &Path) -> bool {
        let Some(pinned) = pin::open(path).ok().and_then(|link| link::info(link).ok()) else {
            return false;
        };
        self.links
            .values()
            .filter_map(|link| link::info(link).ok())
            .any(|info| info.id == pinned.id)
    }

    /// The link that a former run has pinned for a device, of this layout or another. One that is
    /// not at the device any more, because another has got its index, is removed.
    fn former(
        &self,
        device: u32,
        direction: Direction,
    ) -> Result<Option<(OwnedFd, PathBuf)>, PinError> {
        let Some(place) = &self.place else {
            return Ok(None);
        };
        let at_device = link::chain(device, direction).unwrap_or_default();
        for folder in [place.pins()].into_iter().chain(place.others()) {
            let path = folder.join(link_name(device, direction));
            match pin::open(&path) {
                Ok(link) => {
                    if link::info(&link).is_ok_and(|info| at_device.place_of(info.id).is_some()) {
                        return Ok(Some((link, path)));
                    }
                    unlink(&path)?;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(PinError::new("open", &path)(error)),
            }
        }
        Ok(None)
    }
}

fn report(result: Result<(), PinError>) {
    if let Err(error) = result {
        warn!(%error, "something of a former run stays");
    }
}
