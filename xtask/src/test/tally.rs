//! Counting what test runners say.

use std::ops::AddAssign;

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
}

impl Tally {
    pub(super) const fn success() -> Self {
        Self {
            passed: 1,
            failed: 0,
            skipped: 0,
        }
    }

    pub(super) const fn failure() -> Self {
        Self {
            passed: 0,
            failed: 1,
            skipped: 0,
        }
    }

    pub(super) const fn of(success: bool) -> Self {
        if success {
            Self::success()
        } else {
            Self::failure()
        }
    }

    /// Reads the closing line of a Rust test executable.
    pub(super) fn of_result_line(line: &str) -> Option<Self> {
        let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
        Some(Self {
            passed: count(counts, "passed")?,
            failed: count(counts, "failed")?,
            skipped: count(counts, "ignored")?,
        })
    }

    /// Reads the closing line of this very runner.
    pub(super) fn of_total_line(line: &str) -> Option<Self> {
        let rest = line.split_once(" passed, ")?;
        let (failed, rest) = rest.1.split_once(" failed")?;
        let skipped = rest
            .strip_prefix(", ")
            .and_then(|rest| rest.strip_suffix(" skipped"));
        Some(Self {
            passed: line.split(' ').next()?.parse().ok()?,
            failed: failed.parse().ok()?,
            skipped: skipped.map_or(Some(0), |skipped| skipped.parse().ok())?,
        })
    }

    pub(super) const fn ran(self) -> u64 {
        self.passed + self.failed
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// 12 for `12 passed; 0 failed; …` and `passed`.
fn count(counts: &str, what: &str) -> Option<u64> {
    counts
        .split("; ")
        .find_map(|part| part.strip_suffix(what)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_of_a_test_executable_is_counted() {
        let line = "test result: FAILED. 12 passed; 3 failed; 4 ignored; 0 measured; 9 filtered out; finished in 0.02s";
        assert_eq!(
            Some(Tally {
                passed: 12,
                failed: 3,
                skipped: 4
            }),
            Tally::of_result_line(line)
        );
    }

    #[test]
    fn other_lines_are_not_counted() {
        for line in ["test a ... ok", "running 3 tests", "test result: what", ""] {
            assert_eq!(None, Tally::of_result_line(line), "{line}");
        }
    }

    #[test]
    fn our_own_closing_line_is_counted() {
        assert_eq!(
            Some(Tally {
                passed: 7,
                failed: 1,
                skipped: 0
            }),
            Tally::of_total_line("7 passed, 1 failed")
        );
        let skipped = Tally::of_total_line("7 passed, 1 failed, 2 skipped");
        assert_eq!(
            Some(Tally {
                passed: 7,
                failed: 1,
                skipped: 2
            }),
            skipped
        );
        assert_eq!(None, Tally::of_total_line("all passed, nothing failed"));
    }
}
