//! Splits drawn at random.

use rand::rngs::SmallRng;
use rand_distr::{Binomial, Distribution as _};

/// How `draws` fall on outcomes with these weights.
pub(super) fn split(draws: u64, weights: &[f64], rng: &mut SmallRng) -> Vec<u64> {
    let mut rest: f64 = weights.iter().sum();
    let mut left = draws;
    let mut counts = Vec::with_capacity(weights.len());
    for (index, weight) in weights.iter().enumerate() {
        let is_last = index + 1 == weights.len();
        let p = if is_last || rest <= 0.0 {
            1.0
        } else {
            (weight / rest).clamp(0.0, 1.0)
        };
        let count = Binomial::new(left, p).unwrap().sample(rng);
        counts.push(count);
        left -= count;
        rest -= weight;
    }
    counts
}
