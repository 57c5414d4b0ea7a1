//! The one task that empties the ring buffer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proxy_common::abi;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{debug, warn};

use super::line::{self, Clock};
use super::queue::Queue;
use super::{Listener, Wanted, written};
use crate::control::answer::Answers;
use crate::control::api::{Device, Line};
use crate::control::listing::Scope;
use crate::control::names::Names;
use crate::dataplane::monitor::Lost;
use crate::dataplane::{Monitor, reader};

/// How often the ring buffer is looked at. It has room for ten times as much as is told in between
/// by default.
const TICK: Duration = Duration::from_millis(50);
/// Most events of one look.
const AT_ONCE: usize = 8192;
/// How often losses are told, and the programs told again that somebody listens.
const ROUND: Duration = Duration::from_secs(1);
/// For how many seconds the programs believe that.
const BELIEVED: u32 = 5;
/// For how long names count that tell all that is asked for.
const FRESH: Duration = Duration::from_secs(10);
/// How long to wait for names: what happens meanwhile is told by numbers.
const PATIENCE: Duration = Duration::from_secs(2);

pub(in crate::control) struct Hub {
    monitor: Monitor,
    per_second: u32,
    answers: Answers,
    incoming: mpsc::Receiver<Listener>,
    queues: Vec<Queue>,
    names: Arc<Names>,
    names_of: Option<Instant>,
    lost: Lost,
    round: Instant,
}

impl Hub {
    /// Of these maps; at most so many events a second are told.
    pub(in crate::control) fn new(
        monitor: Monitor,
        per_second: u32,
        answers: Answers,
        incoming: mpsc::Receiver<Listener>,
    ) -> Self {
        Self {
            monitor,
            per_second,
            answers,
            incoming,
            queues: Vec::new(),
            names: Arc::default(),
            names_of: None,
            lost: Lost::default(),
            round: Instant::now(),
        }
    }

    /// Passes events on without end.
    pub(in crate::control) async fn run(mut self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                listener = self.incoming.recv() => match listener {
                    Some(listener) => self.begin(listener).await,
                    None => return,
                },
                _ = ticks.tick(), if !self.queues.is_empty() => self.look().await,
            }
        }
    }

    async fn begin(&mut self, listener: Listener) {
        if self.queues.is_empty() {
            // What is still there is of an earlier time.
            self.monitor.drain(usize::MAX, |_| {});
            self.lost = self.monitor.lost().unwrap_or_default();
            self.round = Instant::now();
            self.refresh().await;
        }
        // The programs first: the queue says that they tell.
        self.listen(listener.wanted.kinds);
        self.queues.push(Queue::new(listener));
    }

    /// Has the programs tell what anybody wants, and these kinds.
    fn listen(&mut self, more: u32) {
        let all = self.queues.iter();
        let kinds = all.fold(more, |kinds, queue| kinds | queue.listener.wanted.kinds);
        let result = if kinds == 0 {
            self.monitor.silence()
        } else {
            let until = reader::now(self.answers.facts.hz).saturating_add(BELIEVED);
            self.monitor.listen(kinds, until, self.per_second)
        };
        if let Err(error) = result {
            warn!(%error, "the programs cannot be told what is listened for");
        }
    }

    async fn look(&mut self) {
        let before = self.queues.len();
        self.queues.retain(Queue::is_there);
        if self.queues.len() != before {
            debug!(listeners = self.queues.len(), "a listener is gone");
            self.listen(0);
        }
        if self.queues.is_empty() {
            return;
        }
        let mut events = Vec::new();
        self.monitor.drain(AT_ONCE, |event| events.push(event));
        let has_stranger = events
            .iter()
            .any(|event| event.service != 0 && self.names.port(event.service).is_none());
        let age = self.names_of.map_or(Duration::MAX, |at| at.elapsed());
        if age > FRESH || has_stranger && age > ROUND {
            self.refresh().await;
        }
        if !events.is_empty() {
            let (clock, devices) = (Clock::now(), self.answers.devices().items);
            for event in &events {
                self.pass_on(event, &devices, clock);
            }
        }
        if self.round.elapsed() >= ROUND {
            self.round = Instant::now();
            self.listen(0);
            self.tell_losses();
        }
    }

    fn pass_on(&mut self, event: &abi::Event, devices: &[Device], clock: Clock) {
        let names = &*self.names;
        let ends = line::ends(event);
        let mut text = None;
        for queue in &mut self.queues {
            let Wanted { selection, kinds } = &queue.listener.wanted;
            if kinds & event.what.bit() == 0 || !selection.includes(names, event.service, &ends) {
                continue;
            }
            let text = text.get_or_insert_with(|| {
                let told = line::event(event, &ends, names, devices, clock);
                written(&Line::Event(told.into()))
            });
            queue.push(text);
        }
    }

    fn tell_losses(&mut self) {
        let all = self.monitor.lost().unwrap_or(self.lost);
        let lost = Lost {
            limited: all.limited.saturating_sub(self.lost.limited),
            full: all.full.saturating_sub(self.lost.full),
        };
        self.lost = all;
        for queue in &mut self.queues {
            queue.tell_losses(lost);
        }
    }

    async fn refresh(&mut self) {
        match timeout(PATIENCE, self.answers.names(Scope::default())).await {
            Ok(Ok(names)) => self.names = names.into(),
            Ok(Err(error)) => debug!(%error, "no names for events"),
            Err(_elapsed) => debug!("no names for events in time"),
        }
        self.names_of = Some(Instant::now());
    }
}
