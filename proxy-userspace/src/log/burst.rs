//! Bursts: when much of one kind happens at once, the first few have lines of their own and the
//! rest one line with their number.

use std::collections::BTreeMap;
use std::time::Duration;

/// So many events of one kind have lines of their own …
const LINES: usize = 10;
/// … in so long a time.
const SPAN: Duration = Duration::from_secs(1);

/// Events by their kind. Times are of any clock that does not go back.
#[derive(Debug, Default)]
pub struct Bursts {
    running: BTreeMap<&'static str, Burst>,
}

#[derive(Debug)]
struct Burst {
    since: Duration,
    count: usize,
}

impl Bursts {
    /// Counts an event; whether it has a line of its own.
    pub fn admit(&mut self, kind: &'static str, now: Duration) -> bool {
        let fresh = Burst {
            since: now,
            count: 0,
        };
        let burst = self.running.entry(kind).or_insert(fresh);
        // One that was not looked at for long and left nothing to say is over.
        if burst.count <= LINES && burst.since + SPAN <= now {
            burst.since = now;
            burst.count = 0;
        }
        burst.count += 1;
        burst.count <= LINES
    }

    /// Ends what is over; each kind of which something had no line, with how many.
    pub fn end(&mut self, now: Duration) -> Vec<(&'static str, usize)> {
        let mut ended = Vec::new();
        self.running.retain(|kind, burst| {
            let is_over = burst.since + SPAN <= now;
            if is_over && burst.count > LINES {
                ended.push((*kind, burst.count - LINES));
            }
            !is_over
        });
        ended
    }

    /// How long until something is to be said of those without a line.
    pub fn due(&self, now: Duration) -> Option<Duration> {
        let full = self.running.values().filter(|burst| burst.count > LINES);
        full.map(|burst| (burst.since + SPAN).saturating_sub(now))
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_rest_of_a_burst_becomes_one_line_when_its_second_is_over() {
        let mut bursts = Bursts::default();
        let lines = (0..1000)
            .filter(|n| bursts.admit("full", at(n / 2)))
            .count();
        assert_eq!(LINES, lines);
        assert!(bursts.admit("other", at(500)));
        assert_eq!(Some(at(500)), bursts.due(at(500)));
        assert!(bursts.end(at(999)).is_empty());
        assert_eq!([("full", 1000 - LINES)], *bursts.end(at(1000)));
        assert_eq!(None, bursts.due(at(1000)));
        assert!(bursts.admit("full", at(1001)));
    }

    #[test]
    fn what_comes_now_and_then_is_no_burst() {
        let mut bursts = Bursts::default();
        assert!((0..1000).all(|n| bursts.admit("change", at(n * 200))));
        assert_eq!(None, bursts.due(at(0)));
    }
}
