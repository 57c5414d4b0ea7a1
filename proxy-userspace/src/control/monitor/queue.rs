//! What waits for one listener, and what it has missed.

use std::time::{Duration, Instant};

use hyper::body::Bytes;
use tokio::sync::mpsc::error::TrySendError;

use super::line::Clock;
use super::{Listener, written};
use crate::control::api::{API_VERSION, Line, Lost};
use crate::dataplane::monitor;

/// A listener that has read nothing for so long is none.
const DEAF: Duration = Duration::from_mins(1);

/// A listener and what it has missed.
pub(super) struct Queue {
    pub(super) listener: Listener,
    /// What was not told since the last line that says so.
    missed: Missed,
    /// When that was.
    told: Instant,
    /// Since when its queue is full.
    full_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Missed {
    kernel: monitor::Lost,
    unread: u64,
}

impl Queue {
    pub(super) fn new(listener: Listener) -> Self {
        let mut queue = Self {
            listener,
            missed: Missed::default(),
            told: Instant::now(),
            full_since: None,
        };
        // Who reads this knows that what happens from now on is told.
        queue.push(&Bytes::from_static(b"\n"));
        queue
    }

    /// Whether it is still there, as far as one can tell.
    pub(super) fn is_there(&self) -> bool {
        let is_deaf = self.full_since.is_some_and(|since| since.elapsed() > DEAF);
        !self.listener.queue.is_closed() && !is_deaf
    }

    /// Puts a line into the queue, or counts it as lost.
    pub(super) fn push(&mut self, line: &Bytes) {
        if !self.put(line.clone()) {
            self.missed.unread += 1;
        }
    }

    /// Tells what was lost, as soon as there is room for that.
    pub(super) fn tell_losses(&mut self, lost: monitor::Lost) {
        self.missed.kernel.limited += lost.limited;
        self.missed.kernel.full += lost.full;
        if self.missed != Missed::default() {
            let Missed { kernel, unread } = self.missed;
            let line = written(&Line::Lost(Lost {
                api_version: API_VERSION.to_owned(),
                time: Clock::text_now(),
                seconds: self.told.elapsed().as_secs().max(1),
                suppressed: kernel.limited,
                ring_full: kernel.full,
                unread,
            }));
            if !self.put(line) {
                return;
            }
            self.missed = Missed::default();
        }
        self.told = Instant::now();
    }

    fn put(&mut self, line: Bytes) -> bool {
        match self.listener.queue.try_send(line) {
            Err(TrySendError::Full(_)) => {
                self.full_since.get_or_insert_with(Instant::now);
                false
            }
            // One that is gone is found to be so at the next look.
            Ok(()) | Err(TrySendError::Closed(_)) => {
                self.full_since = None;
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::monitor::Wanted;
    use tokio::sync::mpsc;

    #[test]
    fn what_a_listener_does_not_read_is_counted_and_told_when_it_reads_on() {
        let (sender, mut lines) = mpsc::channel(4);
        let mut queue = Queue::new(Listener {
            wanted: Wanted::default(),
            queue: sender,
        });
        let line = Bytes::from_static(b"x\n");
        for _ in 0..10 {
            queue.push(&line);
        }
        let lost = |limited, full| monitor::Lost { limited, full };
        queue.tell_losses(lost(5, 1));
        queue.tell_losses(lost(2, 0));
        assert!(queue.is_there());
        assert_eq!("\n", lines.try_recv().unwrap());
        for _ in 0..3 {
            assert_eq!(line, lines.try_recv().unwrap());
        }
        assert!(lines.try_recv().is_err());
        queue.tell_losses(lost(0, 0));
        queue.tell_losses(lost(0, 0));
        let told: Line = serde_json::from_slice(&lines.try_recv().unwrap()).unwrap();
        let Line::Lost(told) = told else {
            panic!("{told:?}");
        };
        assert_eq!((7, 1, 7), (told.suppressed, told.ring_full, told.unread));
        assert!(lines.try_recv().is_err());
        drop(lines);
        assert!(!queue.is_there());
    }
}
