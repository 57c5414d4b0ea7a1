//! Verdicts over many Services at once.

use super::tally::Tally;

/// What is to be said of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its split is what equal odds lead to.
    Fair,
    /// It is not.
    Off,
    /// Too few draws to say anything.
    TooFew,
}

impl Verdict {
    /// As one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::Off => "off",
            Self::TooFew => "too-few",
        }
    }
}

/// What was found of a Service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// What its draws come to.
    pub tally: Tally,
    /// Probability that equal odds lead to such a split, if enough was drawn.
    pub p_value: Option<f64>,
    /// What follows.
    pub verdict: Verdict,
}

/// Judges Services by the step-up procedure of Benjamini and Hochberg ("Controlling the False
/// Discovery Rate", 1995): of the m that were drawn from often enough, those with the k smallest
/// p-values are off, with the largest k for which the k-th of them is at most k/m `rate`.
pub fn judge(tallies: impl IntoIterator<Item = Tally>, rate: f64) -> Vec<Finding> {
    let mut all: Vec<_> = tallies
        .into_iter()
        .map(|tally| {
            let p_value = tally.p_value();
            Finding {
                tally,
                p_value,
                verdict: p_value.map_or(Verdict::TooFew, |_| Verdict::Fair),
            }
        })
        .collect();
    let limit = limit(all.iter().filter_map(|finding| finding.p_value), rate);
    for finding in &mut all {
        if finding
            .p_value
            .is_some_and(|p| limit.is_some_and(|limit| p <= limit))
        {
            finding.verdict = Verdict::Off;
        }
    }
    all
}

/// The largest p-value that is too small.
fn limit(p_values: impl Iterator<Item = f64>, rate: f64) -> Option<f64> {
    let mut sorted: Vec<_> = p_values.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "numbers of Services")]
    let line = |rank: usize| rate * rank as f64 / sorted.len() as f64;
    let below = (1..).zip(&sorted).filter(|(rank, p)| **p <= line(*rank));
    below.last().map(|(_, p)| *p)
}
