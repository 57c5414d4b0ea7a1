//! How honest p-values are where they are small, by importance sampling: splits are drawn from a
//! distribution that spreads further (Dirichlet-multinomial), and weighed by how much less likely
//! equal odds lead to them.

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand_distr::{Binomial, Distribution as _, Gamma};
use statrs::distribution::{ChiSquared, ContinuousCDF as _};
use statrs::function::gamma::ln_gamma;

use super::super::Tally;

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
        let drawn =
            ln_gamma(total) - ln_gamma(draws_real + total) + counts.iter().map(each).sum::<f64>();
        let weight = (-draws_real * n_real.ln() - drawn).exp() / level;
        sum += weight;
        squares += weight * weight;
    }
    let samples = f64::from(samples);
    let mean = sum / samples;
    (mean, ((squares / samples - mean * mean) / samples).sqrt())
}

fn split(draws: u64, parts: &[f64], rng: &mut SmallRng) -> Vec<u64> {
    let mut rest: f64 = parts.iter().sum();
    let mut left = draws;
    let mut counts = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let count = if index + 1 == parts.len() {
            left
        } else {
            let p = if rest > 0.0 {
                (part / rest).clamp(0.0, 1.0)
            } else {
                1.0
            };
            Binomial::new(left, p).unwrap().sample(rng)
        };
        counts.push(count);
        left -= count;
        rest -= part;
    }
    counts
}

#[test]
fn table() {
    let mut rng = SmallRng::seed_from_u64(1);
    for level in [1e-6, 1e-4] {
        for n in [2, 3, 5, 10, 30, 100, 1000] {
            let mut line = String::new();
            for e in [10, 20, 50, 100] {
                let (m, s) = excess(n, e, level, (300_000 / n as u32).max(3000), &mut rng);
                line += &format!("  {e}: {m:.2}±{s:.2}");
            }
            println!("{level:e} n {n}:{line}");
        }
    }
}
