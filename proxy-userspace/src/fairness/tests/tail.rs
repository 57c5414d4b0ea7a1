//! How honest p-values are where they are small, by importance sampling: splits are drawn from a
//! distribution that spreads further (Dirichlet-multinomial), and weighed by how much less likely
//! equal odds lead to them.

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand_distr::{Distribution as _, Gamma};
use statrs::distribution::{ChiSquared, ContinuousCDF as _};
use statrs::function::gamma::ln_gamma;

use super::super::{LEAST_EXPECTED, Tally};
use super::split::split;

/// Probability that the p-value of `n` endpoints with `expected` draws each is at most `level`, as
/// a multiple of that, and the standard error.
fn excess(n: u64, expected: u64, level: f64, samples: u32, rng: &mut SmallRng) -> (f64, f64) {
    let draws = n * expected;
    let critical = ChiSquared::new((n - 1) as f64)
        .unwrap()
        .inverse_cdf(1.0 - level);
    let spread = critical / (n - 1) as f64;
    let (n_real, draws_real) = (n as f64, draws as f64);
    let total = (draws_real - spread) / (spread - 1.0);
    if total <= 0.0 {
        return (0.0, 0.0);
    }
    let alpha = total / n_real;
    let gamma = Gamma::new(alpha, 1.0).unwrap();
    let (mut sum, mut squares) = (0.0, 0.0);
    for _ in 0..samples {
        let parts: Vec<f64> = (0..n).map(|_| gamma.sample(rng)).collect();
        let counts = split(draws, &parts, rng);
        let tally = Tally::of(&counts);
        if tally.p_value().is_none_or(|p| p > level) {
            continue;
        }
        let each = |count: &u64| ln_gamma(*count as f64 + alpha) - ln_gamma(alpha);
        let likelihood =
            ln_gamma(total) - ln_gamma(draws_real + total) + counts.iter().map(each).sum::<f64>();
        let weight = (-draws_real * n_real.ln() - likelihood).exp() / level;
        sum += weight;
        squares += weight * weight;
    }
    let samples = f64::from(samples);
    let mean = sum / samples;
    (mean, ((squares / samples - mean * mean) / samples).sqrt())
}

#[test]
fn the_tail_is_honest_from_the_least_number_of_draws_on() {
    let mut rng = SmallRng::seed_from_u64(1);
    for (n, samples) in [
        (2, 20_000),
        (3, 20_000),
        (5, 20_000),
        (10, 20_000),
        (30, 6_000),
        (100, 3_000),
    ] {
        for expected in [LEAST_EXPECTED, 4 * LEAST_EXPECTED] {
            let (excess, error) = excess(n, expected, 1e-6, samples, &mut rng);
            assert!(
                error < 0.1,
                "{n} endpoints, {expected} draws: {excess} +- {error}"
            );
            assert!(
                excess < 1.4 + 3.0 * error,
                "{n} endpoints, {expected} draws: {excess} +- {error}"
            );
        }
    }
}
