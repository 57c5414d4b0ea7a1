//! Filters of a `clsact` queueing discipline, for kernels without TCX.
//!
//! They come before all others at both hooks and outlive this process; the next one puts its
//! programs in the place of theirs between two packets. There is nothing by which a filter could be
//! taken off a device that has gone to another network namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use tracing::{debug, warn};

use super::AttachError;
use crate::dataplane::pins::Place;
use crate::dataplane::syscall::link::Direction;
use crate::dataplane::tc::{Filter, Hooks, NewFilter, Tc};
use crate::node::Device;

/// Before all others.
const PRIORITY: u16 = 1;
/// While a filter moves there are two of it.
const HANDLES: [u32; 2] = [0x6b6c, 0x6b6d];

/// The filters of all devices.
#[derive(Debug)]
pub(super) struct Clsact {
    tc: Tc,
    place: Option<Place>,
    attached: BTreeSet<u32>,
    /// Devices whose queueing discipline is ours, where there is no place to note it.
    made: BTreeSet<u32>,
}

/// What filters there are at a device beside ours.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// Whether ours is there.
    pub(super) is_attached: bool,
    /// Whether it comes before all others.
    pub(super) is_first: bool,
    /// Programs of others whose verdict counts, by name.
    pub(super) others: Vec<String>,
}

impl Clsact {
    pub(super) fn new(place: Option<Place>) -> io::Result<Self> {
        Ok(Self {
            tc: Tc::open()?,
            place,
            attached: BTreeSet::new(),
            made: BTreeSet::new(),
        })
    }

    /// Whether filters can be hung on a device.
    pub(super) fn has_hooks(&self, device: u32) -> bool {
        self.tc.hooks_of(device).is_ok_and(|hooks| hooks.is_some())
    }

    /// What is there at one hook of a device.
    pub(super) fn found(&self, device: u32, direction: Direction) -> Found {
        let filters = self.tc.filters(device, direction).unwrap_or_default();
        let others = filters.iter().filter(|filter| !is_ours(filter));
        Found {
            is_attached: filters.iter().any(is_ours),
            is_first: filters.first().is_some_and(is_ours),
            others: others
                .filter(|filter| filter.is_direct)
                .map(|filter| filter.name.clone().unwrap_or_else(|| filter.kind.clone()))
                .collect(),
        }
    }

    /// Attaches a program, in the place of one that is there.
    pub(super) fn attach(
        &mut self,
        device: &Device,
        direction: Direction,
        name: &'static str,
        program: BorrowedFd<'_>,
    ) -> Result<(), AttachError> {
        let refused = |source| AttachError::refused(device, name, source);
        match self.tc.hooks_of(device.index).map_err(refused)? {
            Some(Hooks::IngressOnly) => return Err(AttachError::IngressQdisc),
            Some(Hooks::Both) => {}
            None => self.provide_hooks(device.index).map_err(refused)?,
        }
        let filters = self.tc.filters(device.index, direction).map_err(refused)?;
        let mut ours = filters.iter().filter(|filter| is_ours(filter));
        let handle = ours.next().map_or(HANDLES[0], |first| first.handle);
        let filter = new(direction, handle, program);
        let set = self.tc.set_filter(device.index, direction, &filter);
        set.map_err(|source| match filters.first() {
            Some(first) if !is_ours(first) && first.priority <= PRIORITY => {
                AttachError::FilterInFront {
                    kind: first.kind.clone(),
                    direction,
                }
            }
            _ => refused(source),
        })?;
        // A run that died while its filter moved has left two.
        for second in ours {
            self.remove(device.index, direction, second.handle)
                .map_err(refused)?;
        }
        self.attached.insert(device.index);
        Ok(())
    }

    /// Brings the filter of a device before all others again. `once` are programs that leave alone
    /// what the other of the two has translated.
    pub(super) fn come_first(
        &self,
        device: u32,
        direction: Direction,
        program: BorrowedFd<'_>,
        once: [BorrowedFd<'_>; 2],
    ) -> io::Result<()> {
        let filters = self.tc.filters(device, direction)?;
        let Some(old) = filters.iter().find(|filter| is_ours(filter)) else {
            return Ok(());
        };
        let handle = HANDLES.into_iter().find(|handle| *handle != old.handle);
        let handle = handle.unwrap_or(HANDLES[0]);
        let set = |handle, program| {
            let filter = new(direction, handle, program);
            self.tc.set_filter(device, direction, &filter)
        };
        let [first, second] = once;
        set(old.handle, first)?;
        set(handle, second)?;
        self.remove(device, direction, old.handle)?;
        set(handle, program)
    }

    /// Detaches from a device.
    pub(super) fn detach(&mut self, device: u32) {
        if self.attached.remove(&device) {
            self.clear(device);
        }
    }

    pub(super) fn device_count(&self) -> usize {
        self.attached.len()
    }

    /// Ends what former runs have left at devices that are not in `wanted`.
    pub(super) fn settle(&mut self, wanted: &BTreeSet<u32>) {
        let hooks: BTreeMap<_, _> = self.tc.hooks().unwrap_or_default().into_iter().collect();
        for device in hooks.keys().filter(|device| !wanted.contains(device)) {
            self.clear(*device);
        }
        let Some(place) = &self.place else {
            return;
        };
        for device in place.made_hooks() {
            if !hooks.contains_key(&device) {
                place.forget_hooks(device);
            }
        }
    }

    /// Removes our filters from a device, and its queueing discipline if that is ours and nobody
    /// else uses it.
    fn clear(&mut self, device: u32) {
        let mut is_used = false;
        for direction in [Direction::Ingress, Direction::Egress] {
            let Ok(filters) = self.tc.filters(device, direction) else {
                debug!(device, "gone with its filters");
                is_used = true;
                continue;
            };
            for filter in filters {
                if is_ours(&filter) {
                    if let Err(error) = self.remove(device, direction, filter.handle) {
                        warn!(device, %direction, %error, "a filter stays");
                    }
                } else {
                    is_used = true;
                }
            }
        }
        let is_made = self.made.remove(&device)
            || self
                .place
                .as_ref()
                .is_some_and(|place| place.has_made_hooks(device));
        if is_made {
            if !is_used && let Err(error) = self.tc.remove_hooks(device) {
                debug!(device, %error, "the queueing discipline stays");
            }
            if let Some(place) = &self.place {
                place.forget_hooks(device);
            }
        }
    }

    fn remove(&self, device: u32, direction: Direction, handle: u32) -> io::Result<()> {
        self.tc.remove_filter(device, direction, PRIORITY, handle)
    }

    /// Sees to it that filters can be hung on a device.
    fn provide_hooks(&mut self, device: u32) -> io::Result<()> {
        match self.tc.add_hooks(device) {
            // Another was quicker.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            result => result?,
        }
        match &self.place {
            Some(place) => place.note_hooks(device)?,
            None => drop(self.made.insert(device)),
        }
        Ok(())
    }
}

/// Whether a filter is one of ours.
pub(in crate::dataplane) fn is_ours(filter: &Filter) -> bool {
    let names = [Direction::Ingress, Direction::Egress].map(name);
    let is_named = |name: &str| names.contains(&name);
    filter.priority == PRIORITY && filter.name.as_deref().is_some_and(is_named)
}

const fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "kube-lottery-in",
        Direction::Egress => "kube-lottery-eg",
    }
}

fn new(direction: Direction, handle: u32, program: BorrowedFd<'_>) -> NewFilter<'static> {
    NewFilter {
        priority: PRIORITY,
        handle,
        name: name(direction),
        program: program.as_raw_fd(),
    }
}

/// Removes a filter of ours.
pub(in crate::dataplane) fn remove_filter(
    device: u32,
    direction: Direction,
    handle: u32,
) -> io::Result<()> {
    Tc::open()?.remove_filter(device, direction, PRIORITY, handle)
}

impl Place {
    /// Notes that a device's queueing discipline for filters is ours.
    fn note_hooks(&self, device: u32) -> io::Result<()> {
        match fs::create_dir(self.hooks_made(device)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    fn has_made_hooks(&self, device: u32) -> bool {
        self.hooks_made(device).is_dir()
    }

    fn forget_hooks(&self, device: u32) {
        fs::remove_dir(self.hooks_made(device)).ok();
    }
}
