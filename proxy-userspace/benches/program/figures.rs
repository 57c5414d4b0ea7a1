//! What is made of the measured: costs, ratios, and how they compare with the budgets.

use std::path::Path;

use serde::Serialize;
use xtask::budgets::{Budgets, Verdict};

use super::options::Options;
use super::runner::{NOOP, REFERENCE_KNOWN, REFERENCE_NEW, Runner};
use super::samples::{Harness, Samples, Subject};
use crate::object::PROGRAMS;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/budgets.txt");
const HEADER: &str = "\
# What the kernel programs may cost; `--gate` allows 15 % more.
# Renewed by `cargo xtask bench program --write`.
#
# program@kernel: instructions that the verifier of that kernel goes through.
# path/family/way: nanoseconds net of the empty program, as a part of what a reference program
# takes on the same machine: reference_known where nothing changes, reference_new elsewhere.
";
/// How many nanoseconds a figure may be off. The kernel tells whole ones, of a path and of the empty
/// program; a single run is timed less well than the mean of many.
const fn resolution(harness: Harness) -> f64 {
    match harness {
        Harness::Steady => 2.0,
        Harness::Circle => 4.0,
        Harness::Once => 10.0,
    }
}

/// Everything that is compared and printed.
#[derive(Serialize)]
pub(crate) struct Figures {
    kernel: String,
    pub(crate) programs: Vec<Program>,
    pub(crate) fixed: Vec<Fixed>,
    pub(crate) paths: Vec<PathCost>,
    /// Budgets for which nothing was measured.
    pub(crate) without: Vec<String>,
}

/// How large a program is.
#[derive(Serialize)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) verified_instructions: u32,
    pub(crate) machine_code_bytes: u32,
    pub(crate) budget: Option<f64>,
    #[serde(skip)]
    pub(crate) verdict: Verdict,
}

/// What a program takes that always does the same.
#[derive(Serialize)]
pub(crate) struct Fixed {
    pub(crate) name: String,
    pub(crate) nanoseconds: f64,
}

/// What a path costs.
#[derive(Serialize)]
pub(crate) struct PathCost {
    pub(crate) name: String,
    /// As measured.
    pub(crate) nanoseconds: f64,
    /// Without what the empty program takes.
    pub(crate) net_nanoseconds: f64,
    /// As a multiple of what the empty program takes.
    pub(crate) to_empty: f64,
    /// Net, as a multiple of what the reference program takes.
    pub(crate) to_reference: f64,
    pub(crate) budget: Option<f64>,
    #[serde(skip)]
    pub(crate) verdict: Verdict,
}

impl Figures {
    pub(crate) fn new(runner: &Runner, budgets: &Budgets, options: &Options) -> Self {
        let kernel = kernel_series();
        let is_wanted = |name: &str| match &options.filter {
            Some(filter) => name.contains(filter.as_str()),
            None => true,
        };
        let mut programs: Vec<_> = PROGRAMS
            .iter()
            .chain(&["sweeper"])
            .map(|name| Program::new(runner, name, &kernel, budgets))
            .collect();
        let mut paths: Vec<_> = runner
            .samples
            .paths()
            .map(|path| PathCost::new(path, &runner.samples, budgets))
            .collect();
        let is_measured = |name: &str| {
            paths.iter().any(|path| path.name == name)
                // Of another kernel.
                || name.contains('@')
        };
        let without = budgets
            .names()
            .filter(|name| is_wanted(name) && !is_measured(name))
            .map(str::to_owned)
            .collect();
        programs.retain(|program| is_wanted(&program.name));
        paths.retain(|path| is_wanted(&path.name));
        let fixed = [NOOP, REFERENCE_KNOWN, REFERENCE_NEW].map(|program| Fixed {
            name: program.to_string(),
            nanoseconds: runner.samples.fixed(program, Harness::Steady),
        });
        Self {
            kernel,
            programs,
            fixed: fixed.into(),
            paths,
            without,
        }
    }

    /// All verdicts.
    pub(crate) fn verdicts(&self) -> impl Iterator<Item = Verdict> {
        let programs = self.programs.iter().map(|program| program.verdict);
        programs.chain(self.paths.iter().map(|path| path.verdict))
    }

    /// Passed, failed and skipped comparisons. Of a kernel without budgets no instructions are
    /// compared.
    pub(crate) fn tally(&self) -> (usize, usize, usize) {
        let skipped = self
            .programs
            .iter()
            .filter(|program| program.verdict == Verdict::Missing)
            .count();
        let passed = self
            .verdicts()
            .filter(|verdict| matches!(verdict, Verdict::Within | Verdict::Cheaper))
            .count();
        let all = self.programs.len() + self.paths.len() + self.without.len();
        (passed, all - passed - skipped, skipped)
    }

    pub(crate) fn is_within(&self) -> bool {
        self.tally().1 == 0
    }
}

impl Program {
    fn new(runner: &Runner, name: &str, kernel: &str, budgets: &Budgets) -> Self {
        let info = runner.object.program(name).info().unwrap();
        let verified = info.verified_instruction_count().unwrap();
        let name = format!("{name}@{kernel}");
        Self {
            budget: budgets.get(&name),
            verdict: budgets.judge(&name, verified.into(), 0.0),
            name,
            verified_instructions: verified,
            machine_code_bytes: info.size_jitted(),
        }
    }
}

impl PathCost {
    fn new((path, harness, taken): (Subject, Harness, f64), of: &Samples, to: &Budgets) -> Self {
        let empty = of.fixed(NOOP, harness);
        let reference = match harness {
            Harness::Steady => REFERENCE_KNOWN,
            Harness::Once | Harness::Circle => REFERENCE_NEW,
        };
        let reference = of.fixed(reference, Harness::Steady) - of.fixed(NOOP, Harness::Steady);
        let name = path.to_string();
        let net = (taken - empty).max(0.0);
        let to_reference = net / reference;
        Self {
            budget: to.get(&name),
            verdict: to.judge(&name, to_reference, resolution(harness) / reference),
            name,
            nanoseconds: taken,
            net_nanoseconds: net,
            to_empty: taken / empty,
            to_reference,
        }
    }
}

/// 6.18 of 6.18.44.
fn kernel_series() -> String {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    release.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// What was agreed on.
pub(crate) fn budgets() -> Budgets {
    let text = std::fs::read_to_string(Path::new(FILE)).unwrap();
    Budgets::parse(&text).unwrap_or_else(|error| panic!("{FILE}: {error:#}"))
}

/// Agrees on what was measured; what other kernels go through stays.
pub(crate) fn write_budgets(figures: &Figures, mut budgets: Budgets) {
    budgets.retain(|name| name.contains('@'));
    for program in &figures.programs {
        budgets.set(&program.name, program.verified_instructions.into());
    }
    for path in &figures.paths {
        budgets.set(&path.name, path.to_reference);
    }
    std::fs::write(FILE, format!("{HEADER}\n{budgets}")).unwrap();
}
