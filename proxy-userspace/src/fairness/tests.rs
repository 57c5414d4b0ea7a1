//! The statistics against simulations.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small numbers, none of them negative"
)]

mod crowd;
mod split;
mod tail;

use super::*;

#[test]
fn a_set_counts_once_enough_is_expected_of_each_endpoint() {
    let few = [LEAST_EXPECTED - 1, LEAST_EXPECTED];
    assert_eq!(1, missing(&few));
    let tally = Tally::of(&few);
    assert_eq!((99, 0, 0), (tally.draws, tally.tested, tally.freedom));
    assert_eq!(None, tally.p_value());
    // However they fall.
    let tally = Tally::of(&[2 * LEAST_EXPECTED, 0]);
    assert_eq!((100, 100, 1), (tally.draws, tally.tested, tally.freedom));
    assert!((tally.statistic - 100.0).abs() < 1e-9);
    // One endpoint is no choice.
    assert_eq!(None, Tally::of(&[1_000_000]).p_value());
    assert_eq!(Tally::default(), Tally::of(&[]));
}

#[test]
fn statistics_and_degrees_of_freedom_add_up() {
    let mut sum = Tally::of(&[60, 40]);
    sum.add(&Tally::of(&[40, 80, 60]));
    sum.add(&Tally::of(&[7, 9]));
    assert_eq!(
        (296, 280, 2, 3),
        (sum.draws, sum.tested, sum.sets, sum.freedom)
    );
    // 4, and 800/60.
    assert!((sum.statistic - 4.0 - 800.0 / 60.0).abs() < 1e-9);
    // Of 17.333 with 3 degrees of freedom.
    let p = sum.p_value().unwrap();
    assert!((p - 6.03e-4).abs() < 1e-6, "{p}");
}

#[test]
fn deviations_are_in_standard_errors() {
    let counts = [60, 40];
    assert!((deviation(60, &counts) - 2.0).abs() < 1e-9);
    assert!((deviation(40, &counts) + 2.0).abs() < 1e-9);
    assert!(deviation(9, &[9]).abs() < 1e-9);
    assert!(deviation(0, &[0, 0]).abs() < 1e-9);
}

#[test]
fn sets_that_are_left_count_until_their_port_ends() {
    let mut account = Account::default();
    account.close(7, &[vec![60, 40], vec![1, 2]], false);
    account.close(7, &[vec![50, 50]], false);
    account.close(8, &[vec![80, 20]], false);
    let former = account.of(7);
    assert_eq!((203, 2, 2), (former.draws, former.sets, former.freedom));
    account.close(7, &[vec![3]], true);
    assert_eq!(Tally::default(), account.of(7));
    assert_eq!(100, account.of(8).draws);
    assert_eq!(306, account.draws());
}

#[test]
fn those_below_the_line_are_named_and_all_before_them() {
    // Statistics with one degree of freedom and these p-values, of five that count: the line is at
    // 0.01, 0.02, 0.03, 0.04, 0.05 for a rate of 0.05.
    let of = |statistic: f64| Tally {
        statistic,
        freedom: 1,
        ..Tally::default()
    };
    let statistics = [0.5, 6.0, 20.0, 5.5, 0.1];
    let mut all: Vec<_> = statistics.map(of).to_vec();
    all.insert(2, Tally::default());
    let found = judge(all, 0.05);
    let verdicts: Vec<_> = found.iter().map(|finding| finding.verdict.name()).collect();
    let expected = ["fair", "off", "too-few", "off", "off", "fair"];
    assert_eq!(expected, *verdicts);
    assert!(judge([], 0.05).is_empty());
}
