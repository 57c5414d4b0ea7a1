//! Who is busiest, again and again.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, stdout};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use super::output::{self, Column, Format, columns, grouped, percent};
use super::{Namespace, START, View, ask_within, scope};
use crate::control::api::{Top, TopRow};
use crate::control::{TopBy, TopQuery};

/// Lines of the screen that are no rows.
const HEAD: usize = 4;
/// Rows where nobody says how many, and no screen is too small for them.
const ROWS: usize = 20;

/// Flags of `top`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct TopArgs {
    /// Rows of what: Services and endpoints by new flows, clients by live flows.
    #[arg(value_enum, default_value_t)]
    by: TopBy,
    /// Only this Service, its endpoints or its clients.
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    service: Option<String>,
    #[command(flatten)]
    namespace: Namespace,
    /// Time between two readings, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// So many rows at most; as many as the screen has room for, or 20, unless said.
    #[arg(long, value_name = "ROWS")]
    limit: Option<usize>,
    /// Print one screen and end.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    view: View,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_none| "not a number".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if (0.01..=60.0).contains(&seconds) => Ok(time),
        _ => Err("from 0.01 to 60 seconds".to_owned()),
    }
}

/// Prints who is busiest, until nobody looks any more.
pub(in crate::cli) fn execute(args: &TopArgs) -> Result<ExitCode> {
    let scope = scope(&args.namespace, args.service.as_deref())?;
    let is_screen = stdout().is_terminal() && !args.once && is_table(args.view.output);
    loop {
        let query = TopQuery {
            by: args.by,
            interval: args.interval,
            limit: args.limit.unwrap_or_else(|| rows_of(is_screen)),
        };
        let target = format!("/v1/top?{}&{}", query.to_query(), scope.to_query());
        let top: Top = match ask_within(&args.view, &target, START, args.interval)? {
            Ok(top) => top,
            Err(code) => return Ok(code),
        };
        let text = if is_table(args.view.output) {
            table(&top, &args.view)
        } else {
            output::object(args.view.output, &top)?
        };
        let is_read = if is_screen {
            output::print_to_reader(&repaint(&text))?
        } else if args.once {
            output::print_to_reader(&text)?
        } else {
            output::print_to_reader(&(text + "\n"))?
        };
        if args.once || !is_read {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

const fn is_table(format: Format) -> bool {
    matches!(format, Format::Table | Format::Wide)
}

fn rows_of(is_screen: bool) -> usize {
    let size = is_screen.then(|| rustix::termios::tcgetwinsize(stdout()).ok());
    match size.flatten() {
        // The cursor stands below the last row.
        Some(size) if size.ws_row > 0 => usize::from(size.ws_row).saturating_sub(HEAD + 1).max(1),
        _ => ROWS,
    }
}

/// The text in place of the one before: each line to its end, then nothing below.
fn repaint(text: &str) -> String {
    let mut screen = "\u{1b}[H".to_owned();
    for line in text.lines() {
        screen.push_str(line);
        screen.push_str("\u{1b}[K\n");
    }
    screen.push_str("\u{1b}[J");
    screen
}

fn table(top: &Top, view: &View) -> String {
    let rates = [("NEW/S", true), ("FLOWS", true), ("SHARE", true)];
    let names: &[Column] = match &*top.by {
        "clients" => &[("CLIENT", false)],
        "endpoints" => &[
            ("NAMESPACE", false),
            ("SERVICE", false),
            ("PORT", false),
            ("PROTO", false),
            ("ENDPOINT", false),
        ],
        _ => &[("NAMESPACE", false), ("NAME", false)],
    };
    let header = [names, &rates].concat();
    let rows = columns(&header, top.items.iter().map(row), view.no_headers);
    if view.no_headers {
        return rows;
    }
    head(top) + "\n" + &rows
}

fn head(top: &Top) -> String {
    let mut text = format!(
        "{} new flows a second, {} flows, {} {}",
        rate(top.new_flows_per_second),
        grouped(top.flows),
        grouped(top.total as u64),
        top.by,
    );
    if top.items.len() < top.total {
        // Writing to a string does not fail.
        write!(text, " ({} shown)", top.items.len()).ok();
    }
    text.push_str("\nflow table:");
    for (index, map) in top.tables.iter().enumerate() {
        let Some(entries) = map.entries else {
            continue;
        };
        #[expect(clippy::cast_precision_loss, reason = "a part of a whole")]
        let part = entries as f64 / map.max_entries as f64;
        let comma = if index == 0 { "" } else { "," };
        write!(
            text,
            "{comma} {} {} {}",
            map.family,
            map.name,
            percent(Some(part))
        )
        .ok();
    }
    text.push('\n');
    text
}

fn row(row: &TopRow) -> Vec<String> {
    let names = [&row.namespace, &row.service, &row.port, &row.protocol];
    let mut all: Vec<_> = names.into_iter().flatten().cloned().collect();
    all.extend(row.address.as_ref().map(|address| {
        match (row.target_port, address.contains(':')) {
            (None, _) => address.clone(),
            (Some(port), false) => format!("{address}:{port}"),
            (Some(port), true) => format!("[{address}]:{port}"),
        }
    }));
    all.push(rate(row.new_flows_per_second));
    all.push(row.flows.to_string());
    all.push(percent(row.share));
    all
}

fn rate(rate: f64) -> String {
    format!("{rate:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::api::{Kind, Map};

    fn top(by: &str, items: Vec<TopRow>) -> Top {
        Top {
            kind: Kind::new("Top"),
            by: by.into(),
            seconds: 1.0,
            new_flows_per_second: 12.34,
            flows: 1234,
            total: 3,
            tables: vec![Map {
                name: "flows".into(),
                family: "IPv4".into(),
                entries: Some(50),
                max_entries: 200,
            }],
            items,
        }
    }

    #[test]
    fn each_kind_of_row_has_its_columns() {
        let row = TopRow {
            new_flows: 12,
            new_flows_per_second: 12.0,
            flows: 3,
            share: Some(0.5),
            ..TopRow::default()
        };
        let view = View {
            control_socket: "x".into(),
            output: Format::Table,
            no_headers: false,
        };
        let client = TopRow {
            address: Some("fd00::1".into()),
            ..row.clone()
        };
        let expected = "\
12.3 new flows a second, 1,234 flows, 3 clients (1 shown)
flow table: IPv4 flows 25.00%

CLIENT   NEW/S  FLOWS   SHARE
fd00::1   12.0      3  50.00%
";
        assert_eq!(
            expected,
            table(&top("clients", vec![client.clone()]), &view)
        );
        let of_service = |row: TopRow| TopRow {
            namespace: Some("shop".into()),
            service: Some("web".into()),
            ..row
        };
        let endpoint = TopRow {
            port: Some(String::new()),
            protocol: Some("TCP".into()),
            target_port: Some(8080),
            ..of_service(client)
        };
        let text = table(&top("endpoints", vec![endpoint]), &view);
        let line = "shop       web      -     TCP    [fd00::1]:8080   12.0      3  50.00%";
        assert_eq!(Some(line), text.lines().nth(HEAD), "{text}");
        let text = table(&top("services", vec![of_service(row)]), &view);
        let line = "shop       web    12.0      3  50.00%";
        assert_eq!(Some(line), text.lines().nth(HEAD), "{text}");
    }

    #[test]
    fn a_screen_is_painted_over_the_one_before() {
        assert_eq!("\u{1b}[Ha\u{1b}[K\nb\u{1b}[K\n\u{1b}[J", repaint("a\nb\n"));
    }

    #[test]
    fn intervals_are_seconds() {
        assert_eq!(Ok(Duration::from_millis(250)), interval("0.25"));
        assert!(
            ["0", "61", "x", "-1", "NaN"]
                .iter()
                .all(|text| interval(text).is_err())
        );
    }
}
