//! Removes all that a controller has left in the kernel for one network namespace.

use std::fs;
use std::path::{Path, PathBuf};

use super::pins::{LinkPin, PinError, Place, entries, remove};
use super::syscall::link::{self, Direction};
use super::syscall::pin;

/// Something that is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleanup {
    /// A link that is taken off its device.
    Link {
        /// Index of the device, 0 where that is gone.
        device: u32,
        /// Which hook.
        direction: Direction,
        /// Its pin.
        pin: PathBuf,
    },
    /// A pinned map.
    Map(PathBuf),
    /// A folder.
    Folder(PathBuf),
}

impl std::fmt::Display for Cleanup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Link {
                device,
                direction,
                pin,
            } => {
                let pin = pin.display();
                match device {
                    0 => write!(f, "link of a device that is gone ({pin})"),
                    device => write!(f, "link at {direction} of device {device} ({pin})"),
                }
            }
            Self::Map(pin) => write!(f, "map {}", pin.display()),
            Self::Folder(path) => write!(f, "folder {}", path.display()),
        }
    }
}

/// What there is to remove, in a safe order: requests stop being translated before replies do.
pub fn cleanup(place: &Place) -> Vec<Cleanup> {
    let folder = place.folder();
    if !folder.is_dir() {
        return Vec::new();
    }
    let layouts: Vec<_> = entries(&folder)
        .into_iter()
        .filter(|path| path.is_dir())
        .collect();
    let pins: Vec<_> = layouts.iter().flat_map(|folder| entries(folder)).collect();
    let mut links: Vec<_> = pins.iter().filter_map(|pin| link_at(pin)).collect();
    links.sort_by_key(|(direction, _)| *direction);
    let mut all: Vec<_> = links.into_iter().map(|(_, link)| link).collect();
    let maps = pins.into_iter().filter(|pin| LinkPin::parse(pin).is_none());
    all.extend(maps.map(Cleanup::Map));
    all.extend(layouts.into_iter().map(Cleanup::Folder));
    all.push(Cleanup::Folder(folder.clone()));
    // Other network namespaces may have their folders beside it.
    if entries(place.root()) == [folder] {
        all.push(Cleanup::Folder(place.root().to_owned()));
    }
    all
}

fn link_at(path: &Path) -> Option<(Direction, Cleanup)> {
    let direction = LinkPin::parse(path)?.direction;
    let info = pin::open(path).and_then(link::info);
    let link = Cleanup::Link {
        device: info.map_or(0, |info| info.device),
        direction,
        pin: path.to_owned(),
    };
    Some((direction, link))
}

impl Cleanup {
    /// Removes it.
    pub fn carry_out(&self) -> Result<(), PinError> {
        match self {
            Self::Link { pin, .. } => unlink(pin),
            Self::Map(pin) => remove(pin).map(drop),
            Self::Folder(path) => fs::remove_dir(path).map_err(PinError::new("remove", path)),
        }
    }
}

/// Takes a pinned link off its device and removes the pin.
pub(super) fn unlink(path: &Path) -> Result<(), PinError> {
    if let Ok(link) = pin::open(path) {
        // It fails where the device is gone, and the link is off it already.
        link::detach(&link).ok();
    }
    remove(path).map(drop)
}
