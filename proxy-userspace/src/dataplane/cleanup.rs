//! Removes all that a controller has left in the kernel for one network namespace.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::attach::clsact::{is_ours, remove_filter};
use super::pins::{LinkPin, PinError, Place, entries, is_layout, remove};
use super::syscall::link::{self, Direction};
use super::syscall::pin;
use super::tc::{Hooks, Tc};

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
    /// A filter that is taken off its device.
    Filter {
        /// Index of the device.
        device: u32,
        /// Which hook.
        direction: Direction,
        /// Its number there.
        handle: u32,
    },
    /// A queueing discipline that was made for our filters.
    Hooks {
        /// Index of the device.
        device: u32,
        /// What notes that.
        note: PathBuf,
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
            Self::Filter {
                device, direction, ..
            } => write!(f, "filter at {direction} of device {device}"),
            Self::Hooks { device, .. } => write!(f, "clsact of device {device}"),
            Self::Map(pin) => write!(f, "map {}", pin.display()),
            Self::Folder(path) => write!(f, "folder {}", path.display()),
        }
    }
}

/// What there is to remove, in a safe order: requests stop being translated before replies do.
pub fn cleanup(place: &Place) -> Vec<Cleanup> {
    let folder = place.folder();
    let mut attached = filters();
    let layouts: Vec<_> = entries(&folder)
        .into_iter()
        .filter(|path| is_layout(path))
        .collect();
    let pins: Vec<_> = layouts.iter().flat_map(|folder| entries(folder)).collect();
    attached.extend(pins.iter().filter_map(|pin| link_at(pin)));
    attached.sort_by_key(|(direction, _)| *direction);
    let mut all: Vec<_> = attached.into_iter().map(|(_, one)| one).collect();
    let made = place.made_hooks().into_iter();
    all.extend(made.map(|device| Cleanup::Hooks {
        device,
        note: place.hooks_made(device),
    }));
    let maps = pins.into_iter().filter(|pin| LinkPin::parse(pin).is_none());
    all.extend(maps.map(Cleanup::Map));
    if folder.is_dir() {
        all.extend(layouts.into_iter().map(Cleanup::Folder));
        all.push(Cleanup::Folder(folder.clone()));
        // Other network namespaces may have their folders beside it.
        if entries(place.root()) == [folder] {
            all.push(Cleanup::Folder(place.root().to_owned()));
        }
    }
    all
}

/// Our filters at the devices of this network namespace.
fn filters() -> Vec<(Direction, Cleanup)> {
    let mut all = Vec::new();
    let Ok(tc) = Tc::open() else {
        return all;
    };
    for (device, _) in tc.hooks().unwrap_or_default() {
        for direction in [Direction::Ingress, Direction::Egress] {
            let filters = tc.filters(device, direction).unwrap_or_default();
            let ours = filters.into_iter().filter(is_ours);
            all.extend(ours.map(|filter| {
                let found = Cleanup::Filter {
                    device,
                    direction,
                    handle: filter.handle,
                };
                (direction, found)
            }));
        }
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
            Self::Filter {
                device,
                direction,
                handle,
            } => remove_filter(*device, *direction, *handle).map_err(PinError::Filter),
            Self::Hooks { device, note } => {
                remove_unused_hooks(*device).map_err(PinError::Filter)?;
                fs::remove_dir(note).map_err(PinError::new("remove", note))
            }
            Self::Map(pin) => remove(pin).map(drop),
            Self::Folder(path) => fs::remove_dir(path).map_err(PinError::new("remove", path)),
        }
    }
}

/// Removes a queueing discipline, unless others have come to use it or it is gone already.
fn remove_unused_hooks(device: u32) -> io::Result<()> {
    let tc = Tc::open()?;
    let is_there = tc.hooks()?.contains(&(device, Hooks::Both));
    let is_used = [Direction::Ingress, Direction::Egress]
        .into_iter()
        .any(|direction| {
            tc.filters(device, direction)
                .is_ok_and(|all| !all.is_empty())
        });
    if is_there && !is_used {
        tc.remove_hooks(device)?;
    }
    Ok(())
}

/// Takes a pinned link off its device and removes the pin.
pub(super) fn unlink(path: &Path) -> Result<(), PinError> {
    if let Ok(link) = pin::open(path) {
        // It fails where the device is gone, and the link is off it already.
        link::detach(&link).ok();
    }
    remove(path).map(drop)
}
