//! What the kernel programs cost for one packet, by path; with `--gate`, whether that is within
//! the budgets. `cargo xtask bench program` builds it and runs it as root.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "like a test: a panic is how it fails, and figures are printed"
)]

use std::process::ExitCode;

use clap::Parser as _;

#[expect(dead_code, reason = "the kernel ring needs more of it")]
#[path = "../tests/kernel/object.rs"]
mod object;
#[path = "../tests/kernel/privilege.rs"]
mod privilege;

mod program {
    pub(super) mod bench;
    pub(super) mod cycle;
    pub(super) mod figures;
    pub(super) mod frame;
    pub(super) mod options;
    pub(super) mod paths;
    pub(super) mod report;
    pub(super) mod runner;
    pub(super) mod samples;
}

fn main() -> ExitCode {
    let options = program::options::Options::parse();
    if !rustix::process::geteuid().is_root() {
        // Plain `cargo bench` and `cargo test --all-targets` come along here too.
        println!("skipped: programs are measured as root, see `cargo xtask bench program`");
        return if options.gate || options.write {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        };
    }
    // Who is often interrupted finds its caches full of others' things; what is not allowed to jump
    // the queue still measures, with more loads.
    rustix::process::nice(-15).ok();
    privilege::with_only(privilege::SHIPPED, move || program::bench::run(&options))
        .unwrap_or(ExitCode::FAILURE)
}
