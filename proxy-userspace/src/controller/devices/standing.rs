//! How every device stands: what is wanted of it, what was done, what is next.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use crate::control::api::{self, DeviceState};
use crate::dataplane::Mode;
use crate::node::{Bystander, Class, Device, Devices};

/// Everything that is known of the devices.
#[derive(Debug, Default)]
pub(super) struct Standing {
    known: Devices,
    attached: HashMap<u32, Attached>,
    refused: HashMap<u32, Refused>,
}

#[derive(Debug)]
struct Attached {
    device: Device,
    mode: Mode,
    warnings: Vec<String>,
}

/// A device that could not be attached to.
#[derive(Debug)]
struct Refused {
    device: Device,
    /// Why; nothing if it was gone by then.
    reason: Option<String>,
    /// Whether it is by choice.
    by_choice: bool,
    again: Instant,
}

/// Something to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Attach to a device, or attach what its new class or framing asks for.
    Attach(Device),
    /// Detach from the device of this index.
    Detach(u32),
}

impl Standing {
    /// Takes in what devices there are.
    pub(super) fn follow(&mut self, known: Devices) {
        // Names change without any other consequence.
        for attached in self.attached.values_mut() {
            if let Some(device) = known.wanted.get(&attached.device.index)
                && device.incarnation == attached.device.incarnation
            {
                attached.device.name.clone_from(&device.name);
            }
        }
        self.refused
            .retain(|index, refused| known.wanted.get(index) == Some(&refused.device));
        self.known = known;
    }

    /// What to do next: what is wrong is detached first, then uplinks are attached, then pods in
    /// the order in which they appeared.
    pub(super) fn next_step(&self, now: Instant) -> Option<Step> {
        let wanted = &self.known.wanted;
        let is_stale = |own: &Device| {
            wanted
                .get(&own.index)
                .is_none_or(|device| device.incarnation != own.incarnation)
        };
        let stale = self.attached.values().find(|own| is_stale(&own.device));
        if let Some(stale) = stale {
            return Some(Step::Detach(stale.device.index));
        }
        let is_done = |device: &Device| {
            self.attached.get(&device.index).is_some_and(|own| {
                // Programs and what they are told change in place.
                own.device.class == device.class
                    && own.device.framing == device.framing
                    && own.device.bridge == device.bridge
                    && own.device.is_inside == device.is_inside
            })
        };
        let may_try = |device: &Device| {
            let refused = self.refused.get(&device.index);
            refused.is_none_or(|refused| refused.again <= now)
        };
        wanted
            .values()
            .filter(|device| !is_done(device) && may_try(device))
            .min_by_key(|device| (device.class != Class::Uplink, device.incarnation))
            .map(|device| Step::Attach(device.clone()))
    }

    /// When something may be tried again.
    pub(super) fn next_try(&self) -> Option<Instant> {
        self.refused.values().map(|refused| refused.again).min()
    }

    /// A device was attached to.
    pub(super) fn attached(&mut self, device: Device, mode: Mode) {
        self.refused.remove(&device.index);
        let own = Attached {
            device,
            mode,
            warnings: Vec::new(),
        };
        self.attached.insert(own.device.index, own);
    }

    /// A device was detached from; its name.
    pub(super) fn detached(&mut self, index: u32) -> Option<String> {
        self.attached.remove(&index).map(|own| own.device.name)
    }

    /// A device could not be attached to, or must not be.
    pub(super) fn refused(
        &mut self,
        device: Device,
        reason: Option<String>,
        by_choice: bool,
        again: Instant,
    ) {
        let refused = Refused {
            device,
            reason,
            by_choice,
            again,
        };
        self.refused.insert(refused.device.index, refused);
    }

    pub(super) fn is_refused(&self, index: u32) -> bool {
        self.refused.contains_key(&index)
    }

    /// What is wrong with a device that is attached to; what of it is new.
    pub(super) fn warned(&mut self, index: u32, warnings: Vec<String>) -> Vec<String> {
        let Some(own) = self.attached.get_mut(&index) else {
            return Vec::new();
        };
        let before = std::mem::replace(&mut own.warnings, warnings);
        let now = own.warnings.iter();
        now.filter(|warning| !before.contains(warning))
            .cloned()
            .collect()
    }

    /// The devices that are attached to.
    pub(super) fn all_attached(&self) -> Vec<Device> {
        self.attached
            .values()
            .map(|own| own.device.clone())
            .collect()
    }

    pub(super) fn attached_count(&self) -> usize {
        self.attached.len()
    }

    /// Indices of the devices to attach to.
    pub(super) fn wanted(&self) -> BTreeSet<u32> {
        self.known.wanted.keys().copied().collect()
    }

    /// All devices by index, for those who look.
    pub(super) fn list(&self) -> Vec<api::Device> {
        let wanted = self.known.wanted.values().map(|device| self.tell(device));
        let mut all: Vec<_> = wanted
            .chain(self.known.others.values().map(other))
            .collect();
        all.sort_unstable_by_key(|device| device.index);
        all
    }

    fn tell(&self, device: &Device) -> api::Device {
        let mut told = api::Device {
            index: device.index,
            name: device.name.clone(),
            kind: kind(device.kind.as_ref()),
            class: Some(device.class.to_string()),
            framing: Some(device.framing.to_string()),
            mode: None,
            state: DeviceState::Pending,
            reason: None,
            warnings: Vec::new(),
        };
        let attached = self.attached.get(&device.index);
        if let Some(own) = attached.filter(|own| own.device.incarnation == device.incarnation) {
            told.mode = Some(own.mode.to_string());
            told.state = DeviceState::Attached;
            told.warnings.clone_from(&own.warnings);
        }
        if let Some(refused) = self.refused.get(&device.index)
            && refused.reason.is_some()
        {
            told.reason.clone_from(&refused.reason);
            told.state = if refused.by_choice {
                DeviceState::Refused
            } else {
                DeviceState::Failed
            };
        }
        told
    }
}

fn other(other: &Bystander) -> api::Device {
    api::Device {
        index: other.index,
        name: other.name.clone(),
        kind: kind(other.kind.as_ref()),
        class: None,
        framing: None,
        mode: None,
        state: DeviceState::LeftAlone,
        reason: Some(other.reason.to_string()),
        warnings: Vec::new(),
    }
}

fn kind(kind: Option<&String>) -> String {
    kind.map_or("hardware", String::as_str).to_owned()
}

#[cfg(test)]
mod tests;
