//! `kube-lottery drops`: packets that did not get through, by reason.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::value_parser;

use super::output::{self, Format, grouped, print_object};
use super::{Common, ask_for, directory, maps};
use crate::control::api::{Counter, Kind, List};

/// Flags of `drops`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct DropsArgs {
    /// Reasons that have not been met, too.
    #[arg(long)]
    all: bool,
    /// Print anew every so many seconds, with the rate since the last time, until interrupted.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
        value_parser = value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
    #[command(flatten)]
    common: Common,
}

/// Prints what was dropped, once or again and again.
pub(in crate::cli) fn execute(args: &DropsArgs) -> Result<ExitCode> {
    let directory = directory(&args.common)?;
    let mut before: Option<(Instant, HashMap<String, u64>)> = None;
    loop {
        let list = match &directory {
            Some(directory) => List {
                kind: Kind::new("CounterList"),
                items: maps::counters(directory)?,
            },
            None => match ask_for(&args.common.view, "/v1/counters", "")? {
                Ok(list) => list,
                Err(code) => return Ok(code),
            },
        };
        let now = Instant::now();
        let List { kind, mut items } = list;
        items.retain(|counter: &Counter| counter.next.is_some() && (args.all || counter.value > 0));
        let rates = before.as_ref().map(|(at, values)| Rates {
            values,
            seconds: now.duration_since(*at).as_secs_f64(),
        });
        let text = match args.common.view.output {
            Format::Table | Format::Wide => {
                screen(&items, rates.as_ref(), args.common.view.no_headers)
            }
            format => {
                print_object(
                    format,
                    &List {
                        kind,
                        items: items.clone(),
                    },
                )?;
                String::new()
            }
        };
        output::print(&text)?;
        let Some(seconds) = args.watch else {
            return Ok(ExitCode::SUCCESS);
        };
        before = Some((now, values(items)));
        sleep(Duration::from_secs(seconds));
    }
}

fn values(counters: Vec<Counter>) -> HashMap<String, u64> {
    let own = counters.into_iter();
    own.map(|counter| (counter.name, counter.value)).collect()
}

/// What was counted the last time, and how long ago that was.
struct Rates<'a> {
    values: &'a HashMap<String, u64>,
    seconds: f64,
}

impl Rates<'_> {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn of(&self, counter: &Counter) -> f64 {
        let before = self.values.get(&counter.name).copied().unwrap_or_default();
        counter.value.saturating_sub(before) as f64 / self.seconds.max(0.001)
    }
}

/// Each reason with its count, what it means and what to look at next.
fn screen(counters: &[Counter], rates: Option<&Rates<'_>>, no_headers: bool) -> String {
    let mut text = String::new();
    if counters.is_empty() {
        return "nothing was dropped\n".to_owned();
    }
    let rate_header = if rates.is_some() { "        RATE" } else { "" };
    if !no_headers {
        writeln!(text, "{:<24}{:>12}{rate_header}  AT", "REASON", "PACKETS").ok();
    }
    for counter in counters {
        let rate = rates.map_or_else(String::new, |rates| {
            format!("{:>10.1}/s", rates.of(counter))
        });
        let reason = counter.name.trim_start_matches("drop-");
        let meaning = counter.meaning.trim_start_matches("dropped: ");
        // Writing to a string does not fail.
        writeln!(
            text,
            "{reason:<24}{:>12}{rate}  {}, {}\n    {meaning}",
            grouped(counter.value),
            counter.hook,
            counter.direction,
        )
        .ok();
        if let Some(next) = &counter.next {
            writeln!(text, "    next: {next}").ok();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxy_common::abi;

    #[test]
    fn each_reason_says_what_it_means_and_what_to_look_at() {
        let counters = [
            Counter::from((abi::Counter::DropNoEndpoint, 1_312)),
            Counter {
                next: Some("look".into()),
                ..Counter::from((abi::Counter::DropRewriteOut, 2))
            },
        ];
        let text = screen(&counters, None, false);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!("REASON                       PACKETS  AT", lines[0]);
        assert_eq!(
            "no-endpoint                    1,312  tc ingress, to an endpoint",
            lines[1]
        );
        assert!(
            lines[2].starts_with("    the Service has no endpoint"),
            "{text}"
        );
        assert!(
            lines[3].starts_with("    next: kube-lottery services"),
            "{text}"
        );
        assert_eq!("    next: look", lines[6]);

        let before = HashMap::from([("drop-no-endpoint".to_owned(), 1_300)]);
        let rates = Rates {
            values: &before,
            seconds: 2.0,
        };
        let text = screen(&counters, Some(&rates), true);
        assert!(
            text.starts_with("no-endpoint                    1,312       6.0/s  tc ingress"),
            "{text}"
        );
        assert_eq!("nothing was dropped\n", screen(&[], None, false));
    }

    #[test]
    fn all_that_does_not_get_through_has_a_next_step() {
        for counter in abi::Counter::ALL {
            let is_drop = counter.name().starts_with("drop-") || counter.name() == "reject";
            assert_eq!(is_drop, counter.next().is_some(), "{counter:?}");
        }
    }
}
