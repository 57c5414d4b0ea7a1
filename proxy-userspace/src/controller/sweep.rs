//! Rids the flow tables of what is over, from time to time.

use std::time::Duration;

use tokio::time::sleep;
use tracing::{debug, warn};

use crate::dataplane::{Sweeper, Swept, reader};

/// Between two rounds.
const PAUSE: Duration = Duration::from_secs(30);
/// Between two rounds while a table is filling up.
const SHORT_PAUSE: Duration = Duration::from_secs(10);
/// From here on a table counts as filling up, in percent.
const FULL: usize = 75;

/// Sweeps without end; `hz` is the number of ticks of `jiffies` a second.
pub(super) async fn run(sweeper: Sweeper, hz: u32) {
    let mut sweeper = sweeper;
    let mut hurry = false;
    loop {
        // Walking a large table takes a tenth of a second.
        let round = tokio::task::spawn_blocking(move || {
            let swept = sweeper.round(reader::now(hz), hurry);
            (sweeper, swept)
        });
        let Ok((back, swept)) = round.await else {
            return;
        };
        sweeper = back;
        let swept = swept.unwrap_or_else(|error| {
            warn!(%error, "the flow tables cannot be swept; the kernel makes room by age only");
            Swept::default()
        });
        debug!(
            entries = swept.seen,
            removed = swept.removed,
            "flow tables swept"
        );
        hurry = swept.fullest > FULL;
        sleep(pause(swept)).await;
    }
}

/// How long to wait after a round.
const fn pause(swept: Swept) -> Duration {
    if swept.fullest > FULL {
        SHORT_PAUSE
    } else {
        PAUSE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_fills_up_is_swept_more_often() {
        let swept = |fullest| Swept {
            fullest,
            ..Swept::default()
        };
        assert_eq!(PAUSE, pause(swept(75)));
        assert_eq!(SHORT_PAUSE, pause(swept(76)));
    }
}
