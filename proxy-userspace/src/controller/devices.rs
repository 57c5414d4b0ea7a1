//! The thread that attaches the programs: each attachment costs the kernel milliseconds, during
//! which the tables must be able to change.

mod standing;

use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tracing::{debug, error, info, warn};

use super::Known;
use crate::control::api;
use crate::dataplane::{AttachError, Programs};
use crate::node::Device;
use standing::{Standing, Step};

/// How long to wait before a refused device is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How often to look whether what was attached is still in its place.
const LOOK: Duration = Duration::from_secs(2);

pub(super) struct Attacher {
    programs: Programs,
    known: watch::Receiver<Known>,
    /// Told how many devices are attached once all of the first ones were tried.
    first: Option<oneshot::Sender<usize>>,
    told: watch::Sender<Vec<api::Device>>,
    standing: Standing,
    next_look: Instant,
}

impl Attacher {
    pub(super) fn new(
        programs: Programs,
        known: watch::Receiver<Known>,
        first: oneshot::Sender<usize>,
        told: watch::Sender<Vec<api::Device>>,
    ) -> Self {
        Self {
            programs,
            known,
            first: Some(first),
            told,
            standing: Standing::default(),
            next_look: Instant::now(),
        }
    }

    /// Attaches and detaches until nobody tells any more what is wanted.
    pub(super) fn run(mut self) {
        let runtime = Handle::current();
        // Looked at again before each step: what was wanted a step ago may be gone.
        while self.known.has_changed().is_ok() {
            let known = self.known.borrow_and_update().clone();
            if let Some(known) = known {
                self.standing.follow(known);
                if let Some(step) = self.standing.next_step(Instant::now()) {
                    self.take(step);
                    self.tell();
                    continue;
                }
                if let Some(first) = self.first.take() {
                    self.programs.settle(&self.standing.wanted());
                    first.send(self.standing.attached_count()).ok();
                }
                if self.next_look <= Instant::now() {
                    self.next_look = Instant::now() + LOOK;
                    if !self.look() {
                        continue;
                    }
                }
                self.tell();
            }
            if !runtime.block_on(self.wait()) {
                return;
            }
        }
    }

    /// Waits for another wish, or for the time to try or to look again; whether there will be more.
    async fn wait(&mut self) -> bool {
        let again = self
            .standing
            .next_try()
            .map_or(self.next_look, |next| next.min(self.next_look));
        match tokio::time::timeout_at(again.into(), self.known.changed()).await {
            Ok(changed) => changed.is_ok(),
            Err(_) => true,
        }
    }

    /// Tells those who look how the devices are.
    fn tell(&self) {
        let all = self.standing.list();
        self.told.send_if_modified(|told| {
            let is_new = *told != all;
            *told = all;
            is_new
        });
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Detach(index) => {
                self.programs.detach(index);
                if let Some(name) = self.standing.detached(index) {
                    info!(device = name, "detached");
                }
            }
            Step::Attach(device) => match self.programs.attach(&device) {
                Ok(mode) => {
                    info!(device = %device.name, class = %device.class, %mode, "attached");
                    self.standing.attached(device, mode);
                    // For what else is there to be seen soon.
                    self.next_look = Instant::now();
                }
                Err(error) => self.refuse(device, &error),
            },
        }
    }

    fn refuse(&mut self, device: Device, error: &AttachError) {
        let is_known = self.standing.is_refused(device.index);
        let reason = reason(error);
        match error {
            AttachError::Gone(_) => debug!(device = %device.name, "gone before it was attached"),
            _ if is_known => debug!(device = %device.name, %reason, "still not attached"),
            _ => error!(device = %device.name, %reason, "not attached, trying again"),
        }
        let reason = (!matches!(error, AttachError::Gone(_))).then_some(reason);
        self.standing
            .refused(device, reason, error.is_refusal(), Instant::now() + RETRY);
    }

    /// Looks whether the programs are where they were put, and what others have put beside them;
    /// whether they all are.
    fn look(&mut self) -> bool {
        let mut all = true;
        for device in self.standing.all_attached() {
            match self.programs.look(&device) {
                Ok(warnings) => {
                    for warning in self.standing.warned(device.index, warnings) {
                        warn!(device = %device.name, "{warning}");
                    }
                }
                // The next step attaches it again.
                Err(error) => {
                    let reason = reason(&error);
                    warn!(device = %device.name, %reason, "no longer attached");
                    self.programs.detach(device.index);
                    self.standing.detached(device.index);
                    all = false;
                }
            }
        }
        all
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
