//! Two agents that both want one place must not take it from each other for ever.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How often each of some places was taken back, and when that may happen again.
#[derive(Debug)]
pub(super) struct Patience<K>(HashMap<K, Taken>);

#[derive(Debug)]
struct Taken {
    times: u32,
    at: Instant,
}

impl<K> Default for Patience<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

/// So often a place is taken back at once.
const AT_ONCE: u32 = 3;
/// The first pause after that; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_secs(4);
/// The longest pause. A place that was kept for twice as long is taken back at once again.
const LONGEST: Duration = Duration::from_secs(256);

impl<K: Eq + Hash> Patience<K> {
    /// Whether a place may be taken back, which then is noted.
    pub(super) fn may(&mut self, place: K, now: Instant) -> bool {
        let Some(taken) = self.0.get_mut(&place) else {
            self.0.insert(place, Taken { times: 1, at: now });
            return true;
        };
        let past = now.saturating_duration_since(taken.at);
        if past < pause(taken.times) {
            return false;
        }
        taken.times = if past >= 2 * LONGEST {
            1
        } else {
            taken.times.saturating_add(1)
        };
        taken.at = now;
        true
    }

    /// How often a place was taken back lately.
    pub(super) fn times(&self, place: &K) -> u32 {
        self.0.get(place).map_or(0, |taken| taken.times)
    }

    /// Forgets places.
    pub(super) fn forget(&mut self, is_gone: impl Fn(&K) -> bool) {
        self.0.retain(|place, _| !is_gone(place));
    }
}

fn pause(times: u32) -> Duration {
    match times.checked_sub(AT_ONCE) {
        None => Duration::ZERO,
        Some(more) => PAUSE.saturating_mul(1 << more.min(16)).min(LONGEST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_shorter_and_recovers() {
        let mut patience = Patience::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for times in 1..=3 {
            assert!(patience.may(1, at(0)));
            assert_eq!(times, patience.times(&1));
        }
        assert!(!patience.may(1, at(3)));
        assert!(patience.may(1, at(4)));
        assert!(!patience.may(1, at(11)));
        assert!(patience.may(1, at(12)));
        // Another place.
        assert!(patience.may(2, at(12)));
        for round in 0..20 {
            patience.may(1, at(20 + 300 * round));
        }
        let last = 20 + 300 * 19;
        assert!(!patience.may(1, at(last + 255)));
        assert!(patience.may(1, at(last + 512)));
        assert_eq!(1, patience.times(&1));
        patience.forget(|place| *place == 1);
        assert_eq!(0, patience.times(&1));
    }
}
