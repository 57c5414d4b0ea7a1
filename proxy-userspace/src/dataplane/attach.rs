//! Attaches the programs to devices by TCX: last at ingress, first at egress, as netfilter's own
//! translation would stand to other agents on the device.
//!
//! Links are pinned: they outlive this process, and the next one swaps their programs for its own
//! between two packets.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::maps::MapError;
use aya::programs::{ProgramError, SchedClassifier};
use rustix::io::Errno;
use thiserror::Error;
use tracing::{debug, info, warn};

use super::cleanup::unlink;
use super::devices::Devices;
use super::pins::{PinError, Place, entries, link_name, parse_link, remove};
use super::syscall::link::{self, Direction};
use super::syscall::pin;
use crate::node::{Class, Device, Framing};

/// The loaded programs and where they are attached.
#[derive(Debug)]
pub struct Programs {
    ebpf: Ebpf,
    devices: Devices,
    place: Option<Place>,
    /// By the index of the device.
    links: HashMap<u32, Links>,
}

/// Both ends of one device.
#[derive(Debug)]
struct Links {
    ingress: OwnedFd,
    egress: OwnedFd,
}

/// Why a device cannot be attached to.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The device is gone.
    #[error("device {0} is not there any more")]
    Gone(String),
    /// The object lacks a program.
    #[error("the object has no program {0}")]
    NoProgram(&'static str),
    /// A program was not loaded.
    #[error("program {program} cannot be attached")]
    Program {
        /// The program.
        program: &'static str,
        /// Why.
        source: ProgramError,
    },
    /// The kernel refuses.
    #[error("cannot attach {program} to {device}")]
    Refused {
        /// The program.
        program: &'static str,
        /// The device.
        device: String,
        /// Why.
        source: io::Error,
    },
    /// The programs cannot be told of the device.
    #[error("cannot enter {device} in map DEVICES")]
    Unknown {
        /// The device.
        device: String,
        /// Why.
        source: MapError,
    },
    /// A pin is in the way.
    #[error(transparent)]
    Pin(#[from] PinError),
}

impl Programs {
    pub(super) fn new(ebpf: Ebpf, devices: Devices, place: Option<Place>) -> Self {
        Self {
            ebpf,
            devices,
            place,
            links: HashMap::new(),
        }
    }

    /// A program, for what is not done here: tests run programs without any device.
    pub fn program_mut(&mut self, name: &str) -> Option<&mut SchedClassifier> {
        self.ebpf.program_mut(name)?.try_into().ok()
    }

    /// Attaches to both directions of a device, or takes over what a former run has attached. Where
    /// it is attached already, programs for another class take the place of the old ones.
    pub fn attach(&mut self, device: &Device) -> Result<(), AttachError> {
        let (ingress, egress) = names(device);
        self.devices
            .set(device)
            .map_err(|source| AttachError::Unknown {
                device: device.name.clone(),
                source,
            })?;
        // Egress first: a reply must never meet a device that translates requests only.
        let egress = self.link(device, egress, Direction::Egress)?;
        let ingress = self.link(device, ingress, Direction::Ingress)?;
        self.links.insert(device.index, Links { ingress, egress });
        Ok(())
    }

    /// Detaches from a device; nothing happens where nothing is attached. It works as well where
    /// the device has been moved to another network namespace and the program along with it.
    pub fn detach(&mut self, index: u32) {
        let Some(Links { ingress, egress }) = self.links.remove(&index) else {
            return;
        };
        self.devices.remove(index);
        for (link, direction) in [(ingress, Direction::Ingress), (egress, Direction::Egress)] {
            // It fails where the device is gone, and the link is off it already.
            link::detach(&link).ok();
            if let Some(place) = &self.place
                && let Err(error) = remove(&place.pins().join(link_name(index, direction)))
            {
                warn!(%error, "a pin stays");
            }
        }
    }

    /// How many devices are attached to.
    pub fn device_count(&self) -> usize {
        self.links.len()
    }

    /// Ends what former runs have left at devices that are not in `wanted`, and what other
    /// layouts have left altogether.
    pub fn settle(&self, wanted: &BTreeSet<u32>) {
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
        let held = self
            .links
            .values()
            .flat_map(|links| [&links.ingress, &links.egress]);
        held.filter_map(|link| link::info(link).ok())
            .any(|info| info.id == pinned.id)
    }

    fn link(
        &mut self,
        device: &Device,
        name: &'static str,
        direction: Direction,
    ) -> Result<OwnedFd, AttachError> {
        let refused = |source: io::Error| match Errno::from_io_error(&source) {
            Some(Errno::NODEV) => AttachError::Gone(device.name.clone()),
            _ => AttachError::Refused {
                program: name,
                device: device.name.clone(),
                source,
            },
        };
        let attached = self.links.get(&device.index).map(|links| match direction {
            Direction::Ingress => links.ingress.try_clone(),
            Direction::Egress => links.egress.try_clone(),
        });
        let attached = attached.transpose().map_err(refused)?;
        let former = match attached {
            Some(_) => None,
            None => self.former(device.index, direction)?,
        };
        let own = self.place.as_ref().map(Place::pins);
        let own = own.map(|folder| folder.join(link_name(device.index, direction)));
        let classifier = self.program_mut(name).ok_or(AttachError::NoProgram(name))?;
        let program = classifier.fd().map_err(|source| AttachError::Program {
            program: name,
            source,
        })?;
        if let Some(link) = attached {
            link::update(&link, program.as_fd()).map_err(refused)?;
            return Ok(link);
        }
        if let Some((link, path)) = former {
            link::update(&link, program.as_fd()).map_err(refused)?;
            if let Some(own) = own.filter(|own| *own != path) {
                // In one step: a link that had two pins would be taken off with the older one.
                fs::rename(&path, &own).map_err(PinError::new("pin a link at", &own))?;
            }
            return Ok(link);
        }
        let link = link::create(program.as_fd(), device.index, direction).map_err(refused)?;
        if let Some(own) = own {
            pin::pin(&link, &own).map_err(PinError::new("pin a link at", &own))?;
        }
        Ok(link)
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
        let at_device = link::ids(device, direction).unwrap_or_default();
        for folder in [place.pins()].into_iter().chain(place.others()) {
            let path = folder.join(link_name(device, direction));
            match pin::open(&path) {
                Ok(link) => {
                    if link::info(&link).is_ok_and(|info| at_device.contains(&info.id)) {
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

/// The programs for a device: ingress, egress.
const fn names(device: &Device) -> (&'static str, &'static str) {
    match (device.framing, device.class) {
        (Framing::None, _) => ("tc_in_l3", "tc_eg_l3"),
        (Framing::Ethernet, Class::Pod | Class::Uplink) => ("tc_in", "tc_eg"),
        (Framing::Ethernet, Class::PodPort) => ("tc_in_port", "tc_eg"),
        (Framing::Ethernet, Class::UplinkPort) => ("tc_in_uplink_port", "tc_eg"),
    }
}

fn report(result: Result<(), PinError>) {
    if let Err(error) = result {
        warn!(%error, "something of a former run stays");
    }
}
