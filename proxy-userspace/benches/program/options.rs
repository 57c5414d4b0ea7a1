//! The command line.

use clap::ValueEnum;

/// What the kernel programs cost for one packet, by path.
#[derive(clap::Parser)]
pub(crate) struct Options {
    /// Only what has this in its name
    pub(crate) filter: Option<String>,
    /// Compare with the budgets, and fail where one is broken
    #[arg(long)]
    pub(crate) gate: bool,
    /// Renew the budgets
    #[arg(long, conflicts_with_all = ["gate", "filter"])]
    pub(crate) write: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
    /// Said by `cargo bench` to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}
