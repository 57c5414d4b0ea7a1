//! The table at the end, and the line that a CI looks for.

use std::time::Duration;

use anyhow::Result;

use super::build::Executable;
use super::ring::Ring;
use super::tally::Tally;

pub(super) struct Report {
    rows: Vec<Row>,
    /// A filter may well leave a ring without a test.
    filtered: bool,
}

struct Row {
    name: &'static str,
    tally: Tally,
    time: Duration,
    note: &'static str,
}

impl Report {
    pub(super) const fn new(filtered: bool) -> Self {
        Self {
            rows: Vec::new(),
            filtered,
        }
    }

    /// The time of the build; it counts as a test only when it fails.
    pub(super) fn add_build(&mut self, built: &Result<Vec<Executable>>, time: Duration) {
        let tally = if let Err(error) = built {
            println!("error: {error:#}");
            Tally::failure()
        } else {
            Tally::default()
        };
        self.rows.push(Row {
            name: "build",
            tally,
            time,
            note: "",
        });
    }

    /// A ring without a test is a failure: nothing was shown.
    pub(super) fn add(&mut self, ring: Ring, mut tally: Tally, time: Duration) {
        // Skipped lints are said so in the table; there is nothing else to run in their ring.
        // So are kernels that cannot be had, where they need not be.
        let is_said = ring == Ring::Lint || ring == Ring::Kernels && tally.skipped > 0;
        let is_empty = tally.ran() == 0 && !self.filtered && !is_said;
        if is_empty {
            tally += Tally::failure();
        }
        let note = if is_empty { "no test in this ring" } else { "" };
        self.rows.push(Row {
            name: ring.name(),
            tally,
            time,
            note,
        });
    }

    pub(super) fn is_success(&self) -> bool {
        let total = self.total();
        total.failed == 0 && total.passed > 0
    }

    pub(super) fn print(&self) {
        println!(
            "\n{:<8}  {:>6}  {:>6}  {:>7}  {:>7}",
            "ring", "passed", "failed", "skipped", "seconds"
        );
        for Row {
            name,
            tally,
            time,
            note,
        } in &self.rows
        {
            let Tally {
                passed,
                failed,
                skipped,
            } = tally;
            let seconds = time.as_secs_f64();
            println!(
                "{}",
                format!(
                    "{name:<8}  {passed:>6}  {failed:>6}  {skipped:>7}  {seconds:>7.1}  {note}"
                )
                .trim_end()
            );
        }
        println!("\n{}", self.closing());
    }

    fn closing(&self) -> String {
        let Tally {
            passed,
            failed,
            skipped,
        } = self.total();
        let skipped = if skipped == 0 {
            String::new()
        } else {
            format!(", {skipped} skipped")
        };
        format!("{passed} passed, {failed} failed{skipped}")
    }

    fn total(&self) -> Tally {
        let mut total = Tally::default();
        for row in &self.rows {
            total += row.tally;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(filtered: bool, rows: &[(Ring, Tally)]) -> Report {
        let mut report = Report::new(filtered);
        for &(ring, tally) in rows {
            report.add(ring, tally, Duration::from_secs(1));
        }
        report
    }

    const TWO: Tally = Tally {
        passed: 2,
        failed: 0,
        skipped: 0,
    };

    #[test]
    fn kernels_that_may_be_missing_are_no_failure() {
        let skipped = Tally {
            skipped: 3,
            ..Tally::default()
        };
        let rows = [(Ring::Host, TWO), (Ring::Kernels, skipped)];
        assert_eq!(
            "2 passed, 0 failed, 3 skipped",
            report(false, &rows).closing()
        );
        let rows = [(Ring::Host, TWO), (Ring::Network, skipped)];
        assert_eq!(
            "2 passed, 1 failed, 3 skipped",
            report(false, &rows).closing()
        );
    }

    #[test]
    fn the_closing_line_adds_the_rings_up() {
        let skipped = Tally {
            passed: 1,
            failed: 1,
            skipped: 3,
        };
        assert_eq!(
            "4 passed, 0 failed",
            report(false, &[(Ring::Host, TWO), (Ring::Kernel, TWO)]).closing()
        );
        assert_eq!(
            "3 passed, 1 failed, 3 skipped",
            report(false, &[(Ring::Host, TWO), (Ring::Lint, skipped)]).closing()
        );
    }

    #[test]
    fn a_ring_without_a_test_fails_the_run() {
        assert!(report(false, &[(Ring::Host, TWO)]).is_success());
        assert!(
            !report(
                false,
                &[(Ring::Host, TWO), (Ring::Kernel, Tally::default())]
            )
            .is_success()
        );
    }

    #[test]
    fn a_filter_may_empty_a_ring_but_not_all_of_them() {
        assert!(report(true, &[(Ring::Host, TWO), (Ring::Kernel, Tally::default())]).is_success());
        assert!(!report(true, &[(Ring::Host, Tally::default())]).is_success());
    }

    #[test]
    fn a_failed_build_fails_the_run() {
        let mut report = report(false, &[(Ring::Host, TWO)]);
        report.add_build(&Err(anyhow::anyhow!("does not compile")), Duration::ZERO);
        assert!(!report.is_success());
    }
}
