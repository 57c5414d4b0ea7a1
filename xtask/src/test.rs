//! `cargo xtask test`: the rings, their totals and their times.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::setup;

pub(crate) mod build;
mod execute;
mod fresh;
mod kernels;
mod lint;
mod report;
pub(crate) mod ring;
mod sources;
mod tally;

use report::Report;
use ring::Ring;
use tally::Tally;

#[derive(Default, clap::Args)]
pub(crate) struct Options {
    /// Rings to run (lint, host, kernel, kernels, network, bench, fresh), all but fresh by default,
    /// and a filter for the names of tests
    #[arg(value_name = "RING|FILTER")]
    words: Vec<String>,
    /// Also what waits or repeats much, and the fresh ring
    #[arg(long)]
    long: bool,
    /// Do not look for missing tools first
    #[arg(long)]
    no_setup: bool,
}

/// What was asked for.
struct Selection {
    rings: Vec<Ring>,
    filter: Option<String>,
    long: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let selection = Selection::new(options)?;
    if !options.no_setup {
        setup::run(&setup::Options::default())?;
    }
    let mut report = Report::new(selection.filter.is_some());
    run_rings(&selection, &mut report);
    report.print();
    Ok(if report.is_success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn run_rings(selection: &Selection, report: &mut Report) {
    let mut executables = None;
    for &ring in &selection.rings {
        if ring.is_built() && executables.is_none() {
            let start = Instant::now();
            println!("\n==> build");
            let built = build::executables(build::ALL);
            report.add_build(&built, start.elapsed());
            executables = Some(built.unwrap_or_default());
        }
        println!("\n==> {ring}");
        let start = Instant::now();
        let result = match ring {
            Ring::Lint => lint::run(),
            Ring::Host | Ring::Kernel | Ring::Network | Ring::Bench => {
                execute::run(ring, executables.as_deref().unwrap_or_default(), selection)
            }
            Ring::Kernels => kernels::run(executables.as_deref().unwrap_or_default(), selection),
            Ring::Fresh => fresh::run(),
        };
        let tally = result.unwrap_or_else(|error| {
            println!("error: {error:#}");
            Tally::failure()
        });
        report.add(ring, tally, start.elapsed());
    }
}

impl Selection {
    fn new(options: &Options) -> Result<Self> {
        let (rings, others): (Vec<_>, Vec<_>) = options
            .words
            .iter()
            .partition(|word| Ring::named(word).is_some());
        ensure!(others.len() <= 1, "one filter at most, not {others:?}");
        let mut rings: Vec<_> = rings
            .into_iter()
            .filter_map(|word| Ring::named(word))
            .collect();
        let filter = others.first().map(|&word| word.clone());
        if rings.is_empty() {
            rings = Ring::usual(options.long, filter.is_some());
        }
        Ok(Self {
            rings,
            filter,
            long: options.long,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(words: &[&str], long: bool) -> Result<(Vec<Ring>, Option<String>)> {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        Selection::new(&Options {
            words,
            long,
            no_setup: true,
        })
        .map(|selection| (selection.rings, selection.filter))
    }

    #[test]
    fn all_rings_but_the_fresh_machine_run_by_default() {
        let expected = vec![
            Ring::Lint,
            Ring::Host,
            Ring::Kernel,
            Ring::Kernels,
            Ring::Network,
            Ring::Bench,
        ];
        assert_eq!((expected, None), select(&[], false).expect("valid"));
    }

    #[test]
    fn long_adds_the_fresh_machine() {
        assert!(select(&[], true).expect("valid").0.contains(&Ring::Fresh));
    }

    #[test]
    fn a_word_that_is_no_ring_filters_tests_and_leaves_the_rest_out() {
        let expected = vec![Ring::Host, Ring::Kernel, Ring::Network];
        assert_eq!(
            (expected, Some("checksum".to_owned())),
            select(&["checksum"], false).expect("valid")
        );
        let expected = (vec![Ring::Kernel], Some("loads".to_owned()));
        assert_eq!(
            expected,
            select(&["kernel", "loads"], false).expect("valid")
        );
    }

    #[test]
    fn two_filters_are_refused() {
        select(&["one", "two"], false).expect_err("the second would be ignored");
    }
}
