//! Pearson's statistic of sets, summed.

use statrs::distribution::{ChiSquared, ContinuousCDF as _};

/// Least number of draws that must be expected of each endpoint of a set.
///
/// Pearson's statistic follows the chi-square distribution for many draws only; with few, its tail is
/// heavier. A p-value of 10^-6, which is what ten thousand Services take, is exceeded so many times
/// as often at worst: 2.5 with 10 draws expected, 1.3 with 50, 1.14 with 100. And with fewer than 50,
/// no split but a gross one could be told from a fair one anyway.
pub const LEAST_EXPECTED: u64 = 50;

/// What the draws from some sets come to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// All draws.
    pub draws: u64,
    /// Those from sets that count: of two endpoints at least, and drawn from often enough.
    pub tested: u64,
    /// How many sets count.
    pub sets: u64,
    /// Their statistic.
    pub statistic: f64,
    /// Its degrees of freedom.
    pub freedom: u64,
}

impl Tally {
    /// Of one set, by the draws of each of its endpoints.
    pub fn of(counts: &[u64]) -> Self {
        let draws = counts.iter().sum();
        let mut tally = Self {
            draws,
            ..Self::default()
        };
        if counts.len() < 2 || missing(counts) > 0 {
            return tally;
        }
        let expected = expected(counts);
        let squares = counts.iter().map(|count| (real(*count) - expected).powi(2));
        tally.tested = draws;
        tally.sets = 1;
        tally.statistic = squares.sum::<f64>() / expected;
        tally.freedom = counts.len() as u64 - 1;
        tally
    }

    /// Adds another set's, or several others'.
    pub fn add(&mut self, other: &Self) {
        self.draws += other.draws;
        self.tested += other.tested;
        self.sets += other.sets;
        self.statistic += other.statistic;
        self.freedom += other.freedom;
    }

    /// Probability that equal odds lead to a split as uneven as this or more; `None` where no set
    /// counts.
    pub fn p_value(&self) -> Option<f64> {
        let distribution = ChiSquared::new(real(self.freedom)).ok()?;
        Some(distribution.sf(self.statistic).clamp(0.0, 1.0))
    }
}

/// Draws that each endpoint of a set is expected to get.
pub fn expected(counts: &[u64]) -> f64 {
    real(counts.iter().sum()) / real(counts.len().max(1) as u64)
}

/// How many draws a set still needs to count.
pub fn missing(counts: &[u64]) -> u64 {
    let needed = LEAST_EXPECTED * counts.len() as u64;
    needed.saturating_sub(counts.iter().sum())
}

/// How many standard errors an endpoint of a set lies above what is expected of it; 0 where it
/// cannot be anywhere else.
pub fn deviation(count: u64, counts: &[u64]) -> f64 {
    let expected = expected(counts);
    let error = (expected * (1.0 - 1.0 / real(counts.len().max(1) as u64))).sqrt();
    if error > 0.0 {
        (real(count) - expected) / error
    } else {
        0.0
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
const fn real(count: u64) -> f64 {
    count as f64
}
