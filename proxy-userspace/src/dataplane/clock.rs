//! The programs' clock, read from here.

use std::fs;
use std::sync::OnceLock;

/// How far the clock of this process is ahead of the kernel's own. A time namespace
/// (`time_namespaces(7)`, Linux 5.6) moves it; the programs run in none.
const OFFSETS: &str = "/proc/self/timens_offsets";

const NANOS: i128 = 1_000_000_000;

/// The time by the programs' clock: whole seconds of `jiffies`, which the kernel starts five
/// minutes before the number overflows 32 bits. `hz` is the number of ticks a second.
///
/// It goes on at the same pace whatever becomes of the wall clock.
pub fn now(hz: u32) -> u32 {
    static AHEAD: OnceLock<i128> = OnceLock::new();
    let ahead = AHEAD.get_or_init(|| {
        let offsets = fs::read_to_string(OFFSETS);
        // Without the file there are no time namespaces.
        offsets.map_or(0, |text| monotonic(&text).unwrap_or(0))
    });
    let up = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let up = i128::from(up.tv_sec) * NANOS + i128::from(up.tv_nsec) - ahead;
    jiffies_seconds(u64::try_from(up / NANOS).unwrap_or_default(), hz)
}

/// Whole seconds of `jiffies` so many seconds after the kernel began to count.
fn jiffies_seconds(up: u64, hz: u32) -> u32 {
    let hz = u64::from(hz.max(1));
    let jiffies = (1 << 32) - 300 * hz + up * hz;
    u32::try_from(jiffies / hz).unwrap_or(u32::MAX)
}

/// The offset of `CLOCK_MONOTONIC` in nanoseconds, as the kernel writes it: the name of a clock, whole
/// seconds and the nanoseconds beyond them in every line.
fn monotonic(offsets: &str) -> Option<i128> {
    let mut lines = offsets.lines().map(str::split_whitespace);
    let mut words = lines.find_map(|mut words| {
        // By number as well, as who writes it may.
        let name = words.next()?;
        matches!(name, "monotonic" | "1").then_some(words)
    })?;
    let mut number = || words.next()?.parse::<i128>().ok();
    Some(number()? * NANOS + number()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_starts_counting_five_minutes_before_the_overflow() {
        for hz in [100, 250, 300, 1000] {
            let begin = u32::try_from((1_u64 << 32) / u64::from(hz)).unwrap() - 300;
            assert!(jiffies_seconds(0, hz).abs_diff(begin) <= 1);
            let day = jiffies_seconds(86_400, hz) - jiffies_seconds(0, hz);
            assert!(day.abs_diff(86_400) <= 1, "{day}");
        }
    }

    #[test]
    fn offsets_are_read_as_the_kernel_writes_them() {
        let text = "monotonic       86400         5\nboottime           7         0\n";
        assert_eq!(Some(86_400 * NANOS + 5), monotonic(text));
        let text = "boottime 7 0\nmonotonic -3 999999999\n";
        assert_eq!(Some(-2 * NANOS - 1), monotonic(text));
        for text in ["", "boottime 7 0", "monotonic", "monotonic x 0"] {
            assert_eq!(None, monotonic(text), "{text:?}");
        }
    }
}
