//! New connections without a pause, to see how soon they follow a change.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::tally::KINDS;
use crate::lab::draw::draw_here;
use crate::lab::{Family, Host};

/// When a connection was begun, and who answered.
#[derive(Debug)]
pub(super) struct Probe {
    began: Instant,
    name: String,
}

/// What was seen around a change.
#[derive(Debug)]
pub(super) struct Probes {
    changed: Instant,
    probes: Vec<Probe>,
}

impl Probes {
    /// Opens connections of every kind while `change` happens and for `after` more.
    pub(super) fn around(
        client: &Host,
        target: impl Fn(Family) -> SocketAddr,
        after: Duration,
        change: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        let stop = AtomicBool::new(false);
        let probes = Mutex::new(Vec::new());
        let changed = thread::scope(|scope| -> Result<Instant> {
            let lanes: Vec<_> = KINDS
                .iter()
                .map(|(protocol, family)| {
                    let target = target(*family);
                    let (stop, probes) = (&stop, &probes);
                    scope.spawn(move || {
                        client.namespace.enter(|| {
                            while !stop.load(Ordering::Relaxed) {
                                let began = Instant::now();
                                let name = draw_here(client, *protocol, target)?.name;
                                let mut probes =
                                    probes.lock().unwrap_or_else(PoisonError::into_inner);
                                probes.push(Probe { began, name });
                                thread::sleep(PAUSE);
                            }
                            Ok(())
                        })
                    })
                })
                .collect();
            thread::sleep(BEFORE);
            let changed = Instant::now();
            let result = change();
            thread::sleep(after);
            stop.store(true, Ordering::Relaxed);
            for lane in lanes {
                match lane.join() {
                    Ok(result) => result?,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            result.map(|()| changed)
        })?;
        let probes = probes.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Self { changed, probes })
    }

    /// How long after the change the last connection began that the endpoint answered.
    pub(super) fn last(&self, name: &str) -> Option<Duration> {
        self.of(name)
            .max()
            .map(|began| began.saturating_duration_since(self.changed))
    }

    /// How long after the change the first connection began that the endpoint answered.
    pub(super) fn first(&self, name: &str) -> Option<Duration> {
        self.of(name)
            .min()
            .map(|began| began.saturating_duration_since(self.changed))
    }

    /// How many there were.
    pub(super) const fn len(&self) -> usize {
        self.probes.len()
    }

    fn of(&self, name: &str) -> impl Iterator<Item = Instant> {
        let named = self.probes.iter().filter(move |probe| probe.name == name);
        named.map(|probe| probe.began)
    }
}

/// Leaves the proxy a share of the processor: what is measured is not how busy the machine is.
const PAUSE: Duration = Duration::from_micros(500);
/// Long enough for all lanes to be at it.
const BEFORE: Duration = Duration::from_millis(100);
