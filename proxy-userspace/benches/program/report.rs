//! The figures, printed.

use std::time::Duration;

use comfy_table::{CellAlignment, Table};
use xtask::budgets::Verdict;

use super::figures::Figures;

pub(crate) fn print_json(figures: &Figures) {
    println!("{}", serde_json::to_string_pretty(figures).unwrap());
}

pub(crate) fn print_table(figures: &Figures, gate: bool) {
    let programs = figures.programs.iter().map(|program| {
        [
            program.name.clone(),
            program.verified_instructions.to_string(),
            program.machine_code_bytes.to_string(),
            program.budget.map_or("-".to_owned(), |b| b.to_string()),
            said(program.verdict),
        ]
    });
    let head = ["program@kernel", "verified", "bytes", "budget", ""];
    print_columns(head, programs, gate);
    let fixed = figures.fixed.iter().map(|fixed| {
        let figure = fixed.nanoseconds.to_string();
        [fixed.name.clone(), figure]
    });
    print_columns(["of fixed work", "ns"], fixed, true);
    let paths = figures.paths.iter().map(|path| {
        [
            path.name.clone(),
            format!("{:.0}", path.net_nanoseconds),
            format!("{:.2}", path.to_empty),
            format!("{:.3}", path.to_reference),
            path.budget.map_or("-".to_owned(), |b| format!("{b:.3}")),
            said(path.verdict),
        ]
    });
    let head = ["path", "net ns", "x empty", "x reference", "budget", ""];
    print_columns(head, paths, gate);
    for name in &figures.without {
        println!("{name}: a budget, but nothing was measured");
    }
}

fn said(verdict: Verdict) -> String {
    match verdict {
        Verdict::Within => "ok",
        Verdict::Cheaper => "ok, cheaper: renew the budget",
        Verdict::Broken => "FAILED: over budget",
        Verdict::Missing => "no budget",
    }
    .to_owned()
}

/// Rows in columns, the verdict in the last one if `all`.
fn print_columns<const N: usize>(
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    all: bool,
) {
    let columns = if all { N } else { N - 2 };
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(&head[..columns]);
    for row in rows {
        table.add_row(&row[..columns]);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index > 0 && (index + 1 < N || N == 2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for line in table.to_string().lines() {
        println!("{}", line.trim_end());
    }
    println!();
}

/// The closing line, as that of a test executable.
pub(crate) fn print_result(figures: &Figures, time: Duration) {
    let (passed, failed, skipped) = figures.tally();
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "test result: {result}. {passed} passed; {failed} failed; {skipped} ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        time.as_secs_f64()
    );
}
