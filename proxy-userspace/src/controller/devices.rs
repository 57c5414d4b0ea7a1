//! The thread that attaches the programs: each attachment costs the kernel milliseconds, during
//! which the tables must be able to change.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tracing::{debug, error, info};

use super::Wanted;
use crate::control::Devices;
use crate::control::api::RefusedDevice;
use crate::dataplane::{AttachError, Programs};
use crate::node::{Class, Device};

/// How long to wait before a refused device is tried again.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct Attacher {
    programs: Programs,
    wanted: watch::Receiver<Wanted>,
    /// Told how many devices are attached once all of the first ones were tried.
    first: Option<oneshot::Sender<usize>>,
    state: watch::Sender<Devices>,
    attached: HashMap<u32, Device>,
    refused: HashMap<u32, Refused>,
}

/// A device that could not be attached to.
struct Refused {
    device: Device,
    /// Why; nothing if it was gone by then.
    reason: Option<String>,
    again: Instant,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Attach(Device),
    Detach(u32),
}

impl Attacher {
    pub(super) fn new(
        programs: Programs,
        wanted: watch::Receiver<Wanted>,
        first: oneshot::Sender<usize>,
        state: watch::Sender<Devices>,
    ) -> Self {
        Self {
            programs,
            wanted,
            first: Some(first),
            state,
            attached: HashMap::new(),
            refused: HashMap::new(),
        }
    }

    /// Attaches and detaches until nobody tells any more what is wanted.
    pub(super) fn run(mut self) {
        let runtime = Handle::current();
        // Looked at again before each step: what was wanted a step ago may be gone.
        while self.wanted.has_changed().is_ok() {
            let wanted = self.wanted.borrow_and_update().clone();
            if let Some(wanted) = &wanted {
                self.forget(wanted);
                if let Some(step) = next_step(&self.attached, wanted, |device| self.may_try(device))
                {
                    self.take(step);
                    self.tell();
                    continue;
                }
                if let Some(first) = self.first.take() {
                    self.programs.settle(&wanted.keys().copied().collect());
                    first.send(self.attached.len()).ok();
                }
            }
            if !runtime.block_on(self.wait()) {
                return;
            }
        }
    }

    /// Waits for another wish or for the time to try again; whether there will be more.
    async fn wait(&mut self) -> bool {
        match self.refused.values().map(|refused| refused.again).min() {
            None => self.wanted.changed().await.is_ok(),
            Some(again) => {
                match tokio::time::timeout_at(again.into(), self.wanted.changed()).await {
                    Ok(changed) => changed.is_ok(),
                    Err(_) => true,
                }
            }
        }
    }

    /// Tells those who look how the devices are.
    fn tell(&self) {
        let mut attached: Vec<_> = self.attached.values().map(|own| own.name.clone()).collect();
        attached.sort_unstable();
        let refused = self.refused.values().filter_map(|refused| {
            Some(RefusedDevice {
                name: refused.device.name.clone(),
                reason: refused.reason.clone()?,
            })
        });
        let mut refused: Vec<_> = refused.collect();
        refused.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        self.state.send_replace(Devices { attached, refused });
    }

    /// Drops refusals that have lost their object.
    fn forget(&mut self, wanted: &BTreeMap<u32, Device>) {
        let before = self.refused.len();
        self.refused
            .retain(|index, refused| wanted.get(index) == Some(&refused.device));
        if self.refused.len() < before {
            self.tell();
        }
    }

    fn may_try(&self, device: &Device) -> bool {
        let refused = self.refused.get(&device.index);
        refused.is_none_or(|refused| refused.again <= Instant::now())
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Detach(index) => {
                self.programs.detach(index);
                if let Some(device) = self.attached.remove(&index) {
                    info!(device = %device.name, "detached");
                }
            }
            Step::Attach(device) => match self.programs.attach(&device) {
                Ok(()) => {
                    info!(device = %device.name, class = %device.class, "attached");
                    self.refused.remove(&device.index);
                    self.attached.insert(device.index, device);
                }
                Err(error) => self.refuse(device, &error),
            },
        }
    }

    fn refuse(&mut self, device: Device, error: &AttachError) {
        let is_known = self.refused.contains_key(&device.index);
        let reason = reason(error);
        match error {
            AttachError::Gone(_) => debug!(device = %device.name, "gone before it was attached"),
            _ if is_known => debug!(device = %device.name, %reason, "still not attached"),
            _ => error!(device = %device.name, %reason, "not attached, trying again"),
        }
        let again = Instant::now() + RETRY;
        let reason = (!matches!(error, AttachError::Gone(_))).then_some(reason);
        let index = device.index;
        let refused = Refused {
            device,
            reason,
            again,
        };
        self.refused.insert(index, refused);
    }
}

/// An error with all its causes.
fn reason(error: &AttachError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// What to do next: what is wrong is detached first, then uplinks are attached, then pods in the
/// order in which they appeared.
fn next_step(
    attached: &HashMap<u32, Device>,
    wanted: &BTreeMap<u32, Device>,
    may_try: impl Fn(&Device) -> bool,
) -> Option<Step> {
    let is_same = |device: &Device, other: &Device| {
        device.incarnation == other.incarnation && device.framing == other.framing
    };
    let stale = attached.values().find(|device| {
        !wanted
            .get(&device.index)
            .is_some_and(|other| is_same(device, other))
    });
    if let Some(device) = stale {
        return Some(Step::Detach(device.index));
    }
    // Programs and what they are told change in place.
    let is_done = |device: &Device| {
        attached
            .get(&device.index)
            .is_some_and(|own| own.class == device.class && own.bridge == device.bridge)
    };
    wanted
        .values()
        .filter(|device| !is_done(device) && may_try(device))
        .min_by_key(|device| (device.class != Class::Uplink, device.incarnation))
        .map(|device| Step::Attach(device.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Bridge, Framing, OnLink};

    fn device(index: u32, class: Class, incarnation: u64) -> Device {
        Device {
            index,
            name: format!("d{index}"),
            framing: Framing::Ethernet,
            class,
            incarnation,
            bridge: None,
        }
    }

    /// All steps until nothing is left to do.
    fn steps(attached: &[Device], wanted: &[Device]) -> Vec<Step> {
        let by_index = |devices: &[Device]| -> HashMap<_, _> {
            devices
                .iter()
                .map(|device| (device.index, device.clone()))
                .collect()
        };
        let mut attached = by_index(attached);
        let wanted = by_index(wanted).into_iter().collect();
        let mut steps = Vec::new();
        while let Some(step) = next_step(&attached, &wanted, |_| true) {
            match &step {
                Step::Attach(device) => attached.insert(device.index, device.clone()),
                Step::Detach(index) => attached.remove(index),
            };
            steps.push(step);
        }
        steps
    }

    #[test]
    fn uplinks_come_first_then_pods_in_order_of_appearance() {
        let (old, new) = (device(9, Class::Pod, 1), device(2, Class::Pod, 2));
        let uplink = device(3, Class::Uplink, 3);
        let expected = [&uplink, &old, &new].map(|device| Step::Attach(device.clone()));
        assert_eq!(expected, *steps(&[], &[old, new, uplink]));
    }

    #[test]
    fn a_device_that_came_back_is_attached_anew() {
        let (before, after) = (device(2, Class::Pod, 1), device(2, Class::Pod, 5));
        let expected = [Step::Detach(2), Step::Attach(after.clone())];
        assert_eq!(expected, *steps(&[before], &[after]));
    }

    #[test]
    fn a_new_name_changes_nothing() {
        let before = device(2, Class::Pod, 1);
        let after = Device {
            name: "other".into(),
            ..before.clone()
        };
        assert!(steps(&[before], &[after]).is_empty());
    }

    #[test]
    fn a_pod_that_is_put_on_a_bridge_is_not_detached_in_between() {
        let before = device(2, Class::Pod, 1);
        let mut after = device(2, Class::PodPort, 1);
        let mut expected = vec![];
        for network in [None, Some("10.244.1.1/24")] {
            after.bridge = Some(Bridge {
                mac: [2, 0, 0, 0, 0, 1],
                networks: network
                    .map(|text| OnLink {
                        device: 1,
                        address: text.parse().unwrap(),
                    })
                    .into_iter()
                    .collect(),
            });
            expected.push(after.clone());
        }
        let [first, second] = expected.try_into().unwrap();
        assert_eq!(
            [Step::Attach(Device::clone(&first))],
            *steps(&[before], std::slice::from_ref(&first))
        );
        assert_eq!(
            [Step::Attach(Device::clone(&second))],
            *steps(&[first], &[second])
        );
    }
}
