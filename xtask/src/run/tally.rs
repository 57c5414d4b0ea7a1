//! Who answered how often.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};

use crate::lab::client::Answer;
use crate::lab::{Family, Protocol};
use crate::stats;

/// The kinds of connections that are counted apart.
pub(super) const KINDS: [(Protocol, Family); 4] = [
    (Protocol::Tcp, Family::V4),
    (Protocol::Udp, Family::V4),
    (Protocol::Tcp, Family::V6),
    (Protocol::Udp, Family::V6),
];

/// Counters of a set of endpoints, by kind of connection.
#[derive(Debug)]
pub(super) struct Tally {
    names: Vec<String>,
    counts: Vec<[AtomicU64; KINDS.len()]>,
    strangers: AtomicU64,
}

impl Tally {
    /// All zero.
    pub(super) fn new(names: &[&str]) -> Self {
        Self {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            counts: names.iter().map(|_| Default::default()).collect(),
            strangers: AtomicU64::new(0),
        }
    }

    /// Counts an answer.
    pub(super) fn count(&self, kind: (Protocol, Family), answer: &Answer) {
        let row = self.names.iter().position(|name| *name == answer.name);
        let column = KINDS.iter().position(|other| *other == kind);
        let counter = row
            .and_then(|row| self.counts.get(row))
            .zip(column)
            .and_then(|(row, column)| row.get(column));
        counter
            .unwrap_or(&self.strangers)
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Names of the endpoints.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Counts of each endpoint, by kind, at one moment.
    pub(super) fn rows(&self) -> Vec<Row> {
        let load =
            |row: &[AtomicU64; KINDS.len()]| Row(row.each_ref().map(|n| n.load(Ordering::Relaxed)));
        self.counts.iter().map(load).collect()
    }

    /// Fails if this cannot be an even draw, or if somebody else has answered.
    pub(super) fn check(&self) -> Result<()> {
        let strangers = self.strangers.load(Ordering::Relaxed);
        ensure!(
            strangers == 0,
            "{strangers} answers came from other endpoints"
        );
        let rows = self.rows();
        let columns = (0..KINDS.len()).map(|kind| column(&rows, kind));
        for counts in columns.chain([picks(&rows)]) {
            let p = stats::evenness(&counts)?;
            ensure!(p > SUSPICIOUS, "{counts:?} is no even draw: p = {p:e}");
        }
        Ok(())
    }
}

/// One endpoint's counts, by kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row(pub(super) [u64; KINDS.len()]);

/// Counts of all endpoints, all kinds together.
pub(super) fn picks(rows: &[Row]) -> Vec<u64> {
    rows.iter().map(|row| row.0.iter().sum()).collect()
}

/// Counts of all endpoints, for one kind.
pub(super) fn column(rows: &[Row], kind: usize) -> Vec<u64> {
    let cell = |row: &Row| row.0.get(kind).copied().unwrap_or_default();
    rows.iter().map(cell).collect()
}

/// A fair lottery is accused once in a million runs.
const SUSPICIOUS: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(name: &str) -> Answer {
        format!("{name} 10.0.0.1:80 10.0.0.2:90").parse().unwrap()
    }

    #[test]
    fn even_counts_pass_and_uneven_ones_do_not() {
        let tally = Tally::new(&["a", "b"]);
        for kind in KINDS {
            for n in 0..100 {
                tally.count(kind, &answer(if n % 2 == 0 { "a" } else { "b" }));
            }
        }
        assert_eq!(vec![200, 200], picks(&tally.rows()));
        tally.check().unwrap();
        for _ in 0..100 {
            tally.count(KINDS[0], &answer("a"));
        }
        assert!(tally.check().is_err());
    }

    #[test]
    fn strangers_are_noticed() {
        let tally = Tally::new(&["a", "b"]);
        tally.count(KINDS[0], &answer("c"));
        assert!(tally.check().is_err());
    }
}
