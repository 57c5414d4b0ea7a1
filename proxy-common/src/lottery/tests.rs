#![expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

use std::vec;
use std::vec::Vec;

use super::*;

/// Replays prepared draws.
struct Draws<'a>(core::slice::Iter<'a, u32>);

impl Random for Draws<'_> {
    fn draw(&mut self) -> u32 {
        *self.0.next().unwrap()
    }
}

/// How many of the 2^32 draws are accepted at once, and how many of those give `h`.
///
/// Accepted are the draws whose product has a low word of at least `2^32 mod k`. By the theorem
/// that the module names there are `floor(2^32 / k)` for each `h`; here it is counted: the draws
/// with high word `h` are those in `[ceil(h·2^32/k), ceil((h+1)·2^32/k))`, and the low word of the
/// first is the smallest of them, below the threshold for at most one draw.
fn accepted(k: u64, h: u64) -> u64 {
    let space = 1u64 << 32;
    let first = (h * space).div_ceil(k);
    let end = ((h + 1) * space).div_ceil(k);
    let threshold = space % k;
    // Low words grow by k from draw to draw and stay below 2^32 within one high word.
    let rejected = (first..end)
        .take_while(|draw| (draw * k) % space < threshold)
        .count() as u64;
    end - first - rejected
}

#[test]
fn every_rule_fires_for_exactly_its_share_of_the_accepted_draws() {
    for k in 1..=4096u64 {
        let share = (1u64 << 32) / k;
        assert_eq!(share, accepted(k, 0), "rule 1/{k}");
        // The single draw must give the last and the middle index the same share as the first.
        assert_eq!(share, accepted(k, k - 1), "index {} of {k}", k - 1);
        assert_eq!(share, accepted(k, k / 2), "index {} of {k}", k / 2);
    }
}

#[test]
fn every_index_has_the_same_share_of_the_accepted_draws() {
    for k in [1u64, 2, 3, 7, 10, 16, 17, 100, 1000, 4096, 65_535] {
        let share = (1u64 << 32) / k;
        assert!((0..k).all(|h| accepted(k, h) == share), "{k}");
    }
}

#[test]
fn a_rule_fires_exactly_on_the_draws_that_the_arithmetic_says() {
    for k in [2u32, 3, 5, 10, 17, 1000, 4096] {
        let space = 1u64 << 32;
        let threshold = (space % u64::from(k)) as u32;
        let end = space.div_ceil(u64::from(k)) as u32;
        for draw in [0, 1, end - 1, end, end + 1, u32::MAX] {
            if draw.wrapping_mul(k) < threshold {
                continue;
            }
            let draws = [draw];
            assert_eq!(
                draw < end,
                fires(&mut Draws(draws.iter()), k),
                "{draw} of 1/{k}"
            );
        }
    }
}

#[test]
fn a_draw_that_would_bias_is_replaced_and_at_last_taken() {
    // 2^32 mod 3 is 1: only the draw 0 has a low word below it.
    let draws = [0, 0, 0xffff_ffff];
    assert_eq!(2, below(&mut Draws(draws.iter()), 3));
    let draws = [0; 1 + REDRAWS as usize];
    let mut random = Draws(draws.iter());
    assert_eq!(0, below(&mut random, 3));
    assert!(random.0.next().is_none(), "a redraw was left out");
}

/// The bias of one rule, computed: a draw is taken unexamined only after `REDRAWS + 1` draws in a
/// row were rejected.
#[test]
fn the_bias_that_remains_is_below_its_bound() {
    for n in 1..=65_535u32 {
        let rejected = (1u64 << 32) % u64::from(n);
        let unexamined = (rejected as f64 / 2f64.powi(32)).powi(REDRAWS as i32 + 1);
        let bound = (f64::from(n) / 2f64.powi(32)).powi(REDRAWS as i32 + 1);
        assert!(unexamined <= bound);
        // For the largest Service, not one connection in 10^23 is drawn by a biased rule.
        assert!(bound < 1e-23, "{n}: {bound}");
    }
}

/// The distribution of the cascade in exact fractions: every rule must leave each of the later
/// endpoints the same chance.
#[test]
fn the_product_of_the_rules_telescopes_to_one_nth() {
    for n in 1..=4096u128 {
        // Reaching rule i has probability (n-i)/n.
        for i in [0, 1, n / 2, n.saturating_sub(2), n - 1] {
            if i >= n {
                continue;
            }
            let (reach, of) = (n - i, n);
            let (fire, out_of) = (1, n - i);
            assert_eq!(reach * fire * n, of * out_of, "endpoint {i} of {n}");
        }
        // And the product of the misses is indeed (n-i)/n, step by step: a/b · (n-j-1)/(n-j).
        let mut reach = (n, n);
        for j in 0..n - 1 {
            assert_eq!(n - j, reach.0);
            reach = (reach.0 * (n - j - 1) / (n - j), reach.1);
        }
    }
}

#[test]
fn the_cascade_asks_the_rules_in_order_and_needs_none_for_the_last() {
    for n in (0..50u32).chain(63..67).chain([128, 129, 200]) {
        let mut asked = Vec::new();
        let chosen = cascade(n, |k| {
            asked.push(k);
            false
        });
        assert_eq!(n.saturating_sub(1), chosen);
        assert_eq!((2..=n).rev().collect::<Vec<_>>(), asked);
        for winner in 0..n.saturating_sub(1) {
            assert_eq!(winner, cascade(n, |k| k == n - winner));
        }
    }
}

/// Chi-square of `counts` against a uniform distribution, in standard deviations from its mean.
fn excess(counts: &[u64]) -> f64 {
    let total: u64 = counts.iter().sum();
    let expected = total as f64 / counts.len() as f64;
    let chi: f64 = counts
        .iter()
        .map(|count| (*count as f64 - expected).powi(2) / expected)
        .sum();
    let freedom = counts.len() as f64 - 1.0;
    (chi - freedom) / (2.0 * freedom).sqrt()
}

#[test]
fn literal_and_telescoped_draws_agree() {
    let mut random = XorShift(0x2545_f491_4f6c_dd1d);
    for n in [2u32, 3, 10, 16, 17, 100] {
        for limit in [0, u32::MAX] {
            let mut counts = vec![0u64; n as usize];
            for _ in 0..200_000 {
                counts[pick(&mut random, n, limit) as usize] += 1;
            }
            // Six standard deviations: one false alarm in some hundred million runs, and the
            // generator is seeded, so that a pass today is a pass tomorrow.
            assert!(
                excess(&counts).abs() < 6.0,
                "n {n} limit {limit}: {}",
                excess(&counts)
            );
        }
    }
}

#[test]
fn a_cascade_with_one_rule_off_is_noticed() {
    let mut random = XorShift(0x2545_f491_4f6c_dd1d);
    let mut counts = vec![0u64; 10];
    for _ in 0..200_000 {
        // The classic mistake: 1/n for every rule.
        counts[cascade(10, |_| fires(&mut random, 10)) as usize] += 1;
    }
    assert!(excess(&counts) > 100.0);
}
