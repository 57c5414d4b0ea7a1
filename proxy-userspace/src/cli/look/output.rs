//! How things are printed.

use std::io::{IsTerminal as _, Write as _, stdout};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    Table,
    /// For people, with all columns.
    Wide,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

/// Says on standard error what is not data.
pub(super) fn note(text: &str) {
    // Nobody can be told that there is no place to tell anything.
    writeln!(std::io::stderr(), "{text}").ok();
}

/// Prints on standard output. A reader that has seen enough is no mistake.
pub(super) fn print(text: &str) -> Result<()> {
    print_to_reader(text).map(drop)
}

/// The same; whether somebody still reads.
pub(super) fn print_to_reader(text: &str) -> Result<bool> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot print"),
    }
}

/// Prints a line at once; whether somebody reads on.
pub(super) fn print_line(line: &str) -> Result<bool> {
    let mut out = stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot print"),
    }
}

/// Prints for programs; whether that was wanted.
pub(super) fn print_object(format: Format, object: &impl Serialize) -> Result<bool> {
    let text = self::object(format, object)?;
    print(&text)?;
    Ok(!text.is_empty())
}

/// The text for programs; nothing if people are to read it.
pub(super) fn object(format: Format, object: &impl Serialize) -> Result<String> {
    Ok(match format {
        Format::Table | Format::Wide => String::new(),
        Format::Json => serde_json::to_string_pretty(object)? + "\n",
        Format::Yaml => serde_saphyr::to_string(object)?,
    })
}

/// A column: its header, and whether it holds numbers.
pub(super) type Column = (&'static str, bool);

/// Rows in columns, without lines between them: fit for `awk` and `column`.
pub(super) fn columns(
    columns: &[Column],
    rows: impl IntoIterator<Item = Vec<String>>,
    no_headers: bool,
) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    if !no_headers {
        table.set_header(columns.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }
    for row in rows {
        // Between fields that nothing stands in, nobody could count.
        let row = row.into_iter().map(|text| match &*text {
            "" => "-".to_owned(),
            _ => text,
        });
        table.add_row(row.collect::<Vec<_>>());
    }
    for (column, (_, is_number)) in table.column_iter_mut().zip(columns) {
        column.set_padding((0, 2));
        if *is_number {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = String::new();
    for line in table.to_string().lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A word in colour, where people look at it and like colours.
pub(super) fn coloured(word: &str, is_good: bool) -> String {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if !stdout().is_terminal() || is_set("NO_COLOR") || is_dumb {
        return word.to_owned();
    }
    let colour = if is_good { 32 } else { 33 };
    format!("\u{1b}[{colour}m{word}\u{1b}[0m")
}

/// A part of a whole in per cent.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| format!("{:.2}%", share * 100.0))
}

/// A number with its digits in threes.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time in its two largest units.
pub(super) fn duration(seconds: u64) -> String {
    let parts = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let first = parts.iter().position(|(unit, _)| seconds >= *unit);
    let mut rest = seconds;
    let mut text = String::new();
    for (unit, name) in parts.iter().skip(first.unwrap_or(3)).take(2) {
        text.push_str(&(rest / unit).to_string());
        text.push_str(name);
        rest %= unit;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_legible() {
        let numbers = [0, 12, 123, 1234, 1_234_567].map(grouped);
        assert_eq!(
            ["0", "12", "123", "1,234", "1,234,567"],
            numbers.each_ref().map(|text| &**text)
        );
        let times = [0, 59, 60, 3601, 90_000].map(duration);
        assert_eq!(
            ["0s", "59s", "1m0s", "1h0m", "1d1h"],
            times.each_ref().map(|text| &**text)
        );
        assert_eq!("25.00%", percent(Some(0.25)));
    }

    #[test]
    fn columns_stand_below_each_other_without_blanks_at_the_end() {
        let rows = vec![
            vec!["web".to_owned(), "7".to_owned(), "x".to_owned()],
            vec![String::new(), "1234".to_owned(), "yy".to_owned()],
        ];
        let header = [("NAME", false), ("PICKS", true), ("END", false)];
        let expected = "NAME  PICKS  END\nweb       7  x\n-      1234  yy\n";
        assert_eq!(expected, columns(&header, rows.clone(), false));
        assert_eq!(
            "web     7  x\n-    1234  yy\n",
            columns(&header, rows, true)
        );
    }
}
