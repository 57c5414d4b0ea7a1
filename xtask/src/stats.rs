//! Is this an even draw? The few formulas that the demonstration and the tests share.
#![expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]

use anyhow::{Context as _, Result, ensure};
use statrs::distribution::{Binomial, ChiSquared, ContinuousCDF as _, DiscreteCDF as _};

/// Probability that `n` equally likely outcomes are as uneven as `counts` or more, by Pearson's
/// chi-square test. Small is suspicious: below one in a million something is wrong.
pub fn evenness(counts: &[u64]) -> Result<f64> {
    ensure!(counts.len() > 1, "one outcome is always even");
    let total: u64 = counts.iter().sum();
    ensure!(total > 0, "nothing was counted");
    let expected = total as f64 / counts.len() as f64;
    let statistic: f64 = counts
        .iter()
        .map(|count| (*count as f64 - expected).powi(2) / expected)
        .sum();
    let freedom = (counts.len() - 1) as f64;
    let distribution = ChiSquared::new(freedom).context("chi-square")?;
    Ok(distribution.sf(statistic))
}

/// Probability that any of `n` equally likely outcomes is as far from its share as the farthest of
/// `counts`, at most. One outcome of hundreds that is never drawn shows here and hardly in
/// [`evenness`].
pub fn farthest(counts: &[u64]) -> Result<f64> {
    ensure!(counts.len() > 1, "one outcome is always even");
    let n = counts.len() as f64;
    let draws = Binomial::new(1.0 / n, counts.iter().sum()).context("binomial")?;
    let tail = |count: &u64| {
        let above = count.checked_sub(1).map_or(1.0, |less| draws.sf(less));
        above.min(draws.cdf(*count))
    };
    let least = counts.iter().map(tail).fold(1.0, f64::min);
    // Two tails each, and n chances to be the farthest.
    Ok((2.0 * n * least).min(1.0))
}

/// How many standard errors `count` lies above its expectation, if each of `total` draws hits one
/// of `n` outcomes.
pub fn deviation(count: u64, total: u64, n: usize) -> f64 {
    let share = 1.0 / n as f64;
    let expected = total as f64 * share;
    let error = (expected * (1.0 - share)).sqrt();
    if error == 0.0 {
        return 0.0;
    }
    (count as f64 - expected) / error
}

/// A part of a whole, 0 of nothing.
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(expected: f64, actual: f64) {
        assert!((expected - actual).abs() < 1e-6, "{expected} != {actual}");
    }

    #[test]
    fn p_values_are_those_of_the_tables() {
        // Statistics 0, 4, 10, 12 and 2.5 with 1, 1, 2, 3 and 4 degrees of freedom.
        close(1.0, evenness(&[50, 50]).unwrap());
        close(0.045_500_264, evenness(&[60, 40]).unwrap());
        close(0.006_737_947, evenness(&[10, 20, 30]).unwrap());
        close(0.007_383_161, evenness(&[40, 20, 20, 20]).unwrap());
        close(0.644_635_793, evenness(&[100, 110, 90, 95, 105]).unwrap());
    }

    #[test]
    fn the_farthest_is_judged_by_its_tail() {
        // 7 of 8 or more: 9/256 of all sequences; two tails, two outcomes.
        close(4.0 * 9.0 / 256.0, farthest(&[7, 1]).unwrap());
        close(1.0, farthest(&[50, 50]).unwrap());
        let mut counts = [25; 400];
        counts[17] = 0;
        assert!(evenness(&counts).unwrap() > 0.99);
        assert!(farthest(&counts).unwrap() < 1e-6);
    }

    #[test]
    fn nothing_and_one_outcome_are_no_draws() {
        assert!(evenness(&[]).is_err());
        assert!(evenness(&[7]).is_err());
        assert!(evenness(&[0, 0]).is_err());
    }

    #[test]
    fn deviation_counts_standard_errors() {
        close(2.0, deviation(60, 100, 2));
        close(-2.0, deviation(40, 100, 2));
        close(0.0, deviation(9, 9, 1));
    }
}
