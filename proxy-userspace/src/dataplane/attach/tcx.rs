//! Links to TCX.
//!
//! They are pinned: they outlive this process, and the next one swaps their programs for its own
//! between two packets. The name of a pin says at which end of the programs of its hook it stands,
//! if that is not the usual one.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use tracing::{debug, info, warn};

use super::Failed;
use crate::dataplane::cleanup::unlink;
use crate::dataplane::pins::{LinkPin, PinError, Place, entries, remove};
use crate::dataplane::syscall::link::{self, Attached, Direction, Position};
use crate::dataplane::syscall::pin;

/// The links of all devices.
#[derive(Debug)]
pub(super) struct Tcx {
    place: Option<Place>,
    links: HashMap<(u32, Direction), Link>,
}

/// A link, and at which end it is to be.
#[derive(Debug)]
struct Link {
    fd: OwnedFd,
    is_reversed: bool,
}

/// A link that a former run has left.
#[derive(Debug)]
struct Former {
    fd: OwnedFd,
    path: PathBuf,
    is_reversed: bool,
}

/// How the link of a device stands among the programs of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// Programs of others, in the order in which packets meet them.
    pub(super) others: Vec<Attached>,
    /// How many of them come before it.
    pub(super) before: usize,
    /// Whether it is at the end where it is to be.
    pub(super) is_in_place: bool,
    /// Whether that is not the usual end.
    pub(super) is_reversed: bool,
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
            return Ok(link::update(&link.fd, program)?);
        }
        let link = if let Some(former) = self.former(device, direction)? {
            self.take_over(former, at, program)?
        } else {
            let fd = link::create(program, device, direction, position(direction, false))?;
            self.pin(&fd, LinkPin::new(device, direction))?;
            Link {
                fd,
                is_reversed: false,
            }
        };
        self.links.insert(at, link);
        Ok(())
    }

    /// The programs of others at a device, whether or not ours is there.
    pub(super) fn others(&self, device: u32, direction: Direction) -> Vec<Attached> {
        let own = self.id(device, direction);
        let mut all = link::chain(device, direction).unwrap_or_default();
        all.retain(|one| Some(one.link) != own);
        all
    }

    /// Whether a device is attached to, be it by a former run.
    pub(super) fn is_taken(&self, device: u32) -> bool {
        let direction = Direction::Ingress;
        let chain = link::chain(device, direction).unwrap_or_default();
        let pinned = self.pins_of(device, direction).into_iter();
        let pinned = pinned.filter_map(|(path, _)| link::info(pin::open(&path).ok()?).ok());
        let mut ids = pinned.map(|info| info.id).chain(self.id(device, direction));
        ids.any(|id| chain.iter().any(|one| one.link == id))
    }

    /// How the link of a device stands; nothing if it is not there any more. Links of `ignored` do
    /// not count.
    pub(super) fn standing(
        &self,
        device: u32,
        direction: Direction,
        ignored: &[u32],
    ) -> Option<Standing> {
        let own = self.id(device, direction)?;
        let is_reversed = self.links.get(&(device, direction))?.is_reversed;
        let mut all = link::chain(device, direction).ok()?;
        all.retain(|one| !ignored.contains(&one.link));
        let before = all.iter().position(|one| one.link == own)?;
        all.remove(before);
        let is_in_place = match position(direction, is_reversed) {
            Position::First => before == 0,
            _ => before == all.len(),
        };
        Some(Standing {
            others: all,
            before,
            is_in_place,
            is_reversed,
        })
    }

    /// The link of a device.
    pub(super) fn link(&self, device: u32, direction: Direction) -> Option<BorrowedFd<'_>> {
        let link = self.links.get(&(device, direction))?;
        Some(link.fd.as_fd())
    }

    /// Moves the link of a device to the end where it is to be. No packet passes untranslated: the
    /// new one is there before the old one goes, and `once` are programs that leave alone what the
    /// other of the two has translated.
    pub(super) fn change_places(
        &mut self,
        device: u32,
        direction: Direction,
        is_reversed: bool,
        program: BorrowedFd<'_>,
        once: [BorrowedFd<'_>; 2],
    ) -> Result<(), Failed> {
        let at = (device, direction);
        let Some(old) = self.links.get(&at) else {
            return Ok(());
        };
        let [first, second] = once;
        link::update(&old.fd, first)?;
        let new = match link::create(second, device, direction, position(direction, is_reversed)) {
            Ok(new) => new,
            Err(error) => {
                link::update(&old.fd, program)?;
                return Err(error.into());
            }
        };
        let name = LinkPin {
            is_reversed,
            ..LinkPin::new(device, direction)
        };
        if let Err(error) = self.pin_over(&new, name) {
            link::detach(&new).ok();
            link::update(&old.fd, program)?;
            return Err(error.into());
        }
        if old.is_reversed != is_reversed {
            self.unpin(LinkPin {
                is_reversed: old.is_reversed,
                ..name
            });
        }
        link::detach(&old.fd)?;
        link::update(&new, program)?;
        let link = Link {
            fd: new,
            is_reversed,
        };
        self.links.insert(at, link);
        Ok(())
    }

    /// Detaches from a device, wherever it is by now.
    pub(super) fn detach(&mut self, device: u32) {
        for direction in [Direction::Ingress, Direction::Egress] {
            let Some(link) = self.links.remove(&(device, direction)) else {
                continue;
            };
            // It fails where the device is gone, and the link is off it already.
            link::detach(&link.fd).ok();
            self.unpin(LinkPin {
                is_reversed: link.is_reversed,
                ..LinkPin::new(device, direction)
            });
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
            if let Some(link) = LinkPin::parse(&path)
                && !wanted.contains(&link.device)
            {
                debug!(?link, "detached from a device of a former run");
                report(unlink(&path));
            }
        }
        for folder in place.others() {
            let mut pins = entries(&folder);
            // Links of ingress first.
            pins.sort_by_key(|path| {
                LinkPin::parse(path).is_none_or(|link| link.direction == Direction::Egress)
            });
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

    fn id(&self, device: u32, direction: Direction) -> Option<u32> {
        let link = self.links.get(&(device, direction))?;
        link::info(&link.fd).ok().map(|info| info.id)
    }

    /// Whether the link that is pinned at `path` is one of those in use.
    fn holds(&self, path: &Path) -> bool {
        let Some(pinned) = pin::open(path).ok().and_then(|link| link::info(link).ok()) else {
            return false;
        };
        self.links
            .values()
            .filter_map(|link| link::info(&link.fd).ok())
            .any(|info| info.id == pinned.id)
    }

    /// The link that a former run has pinned for a device, of this layout or another. What else it
    /// has left there is removed: a link that another was to take the place of, and one that is not
    /// at the device any more because another has got its index.
    fn former(&self, device: u32, direction: Direction) -> Result<Option<Former>, PinError> {
        let at_device = link::chain(device, direction).unwrap_or_default();
        let mut found: Option<Former> = None;
        for (path, name) in self.pins_of(device, direction) {
            let Some(link) = opened(&path)? else {
                continue;
            };
            let id = link::info(&link).ok().map(|info| info.id);
            let is_there = at_device.iter().any(|one| Some(one.link) == id);
            match &found {
                None if is_there && !name.is_draft => {
                    found = Some(Former {
                        fd: link,
                        path,
                        is_reversed: name.is_reversed,
                    });
                }
                // A second pin of it must not take it along.
                Some(found) if link::info(&found.fd).ok().map(|info| info.id) == id => {}
                _ => unlink(&path)?,
            }
        }
        Ok(found)
    }

    /// Everything that may be a pin of a device's link.
    fn pins_of(&self, device: u32, direction: Direction) -> Vec<(PathBuf, LinkPin)> {
        let folders = self
            .place
            .iter()
            .flat_map(|place| [place.pins()].into_iter().chain(place.others()));
        let kinds = [(false, false), (true, false), (false, true), (true, true)];
        folders
            .flat_map(|folder| {
                kinds.map(|(is_reversed, is_draft)| {
                    let name = LinkPin {
                        is_reversed,
                        is_draft,
                        ..LinkPin::new(device, direction)
                    };
                    (folder.join(name.name()), name)
                })
            })
            .collect()
    }

    /// Goes on with a link of a former run.
    fn take_over(
        &self,
        former: Former,
        at: (u32, Direction),
        program: BorrowedFd<'_>,
    ) -> Result<Link, Failed> {
        link::update(&former.fd, program)?;
        if let Some(place) = &self.place {
            let name = LinkPin {
                is_reversed: former.is_reversed,
                ..LinkPin::new(at.0, at.1)
            };
            let own = place.pins().join(name.name());
            if own != former.path {
                // In one step: a link that had two pins would be taken off with the older one.
                fs::rename(&former.path, &own).map_err(PinError::new("pin a link at", &own))?;
            }
        }
        Ok(Link {
            fd: former.fd,
            is_reversed: former.is_reversed,
        })
    }

    fn pin(&self, link: &OwnedFd, name: LinkPin) -> Result<(), PinError> {
        let Some(place) = &self.place else {
            return Ok(());
        };
        let path = place.pins().join(name.name());
        pin::pin(link, &path).map_err(PinError::new("pin a link at", &path))
    }

    /// Pins a link where another may be pinned, in one step.
    fn pin_over(&self, link: &OwnedFd, name: LinkPin) -> Result<(), PinError> {
        let Some(place) = &self.place else {
            return Ok(());
        };
        let draft = LinkPin {
            is_draft: true,
            ..name
        };
        let (draft, path) = (
            place.pins().join(draft.name()),
            place.pins().join(name.name()),
        );
        remove(&draft)?;
        pin::pin(link, &draft).map_err(PinError::new("pin a link at", &draft))?;
        fs::rename(&draft, &path).map_err(PinError::new("pin a link at", &path))
    }

    fn unpin(&self, name: LinkPin) {
        if let Some(place) = &self.place {
            report(remove(&place.pins().join(name.name())).map(drop));
        }
    }
}

/// Where a link is to be: last at ingress and first at egress.
const fn position(direction: Direction, is_reversed: bool) -> Position<'static> {
    match (direction, is_reversed) {
        (Direction::Ingress, false) | (Direction::Egress, true) => Position::Last,
        (Direction::Egress, false) | (Direction::Ingress, true) => Position::First,
    }
}

/// Opens a pin, if it is there.
fn opened(path: &Path) -> Result<Option<OwnedFd>, PinError> {
    match pin::open(path) {
        Ok(link) => Ok(Some(link)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PinError::new("open", path)(error)),
    }
}

fn report(result: Result<(), PinError>) {
    if let Err(error) = result {
        warn!(%error, "something of a former run stays");
    }
}
