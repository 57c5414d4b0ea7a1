//! The kernel ring again, on the kernels of three Debian releases: each boots in an emulated
//! machine with nothing but the test executable and a shell, and says how its tests went.
//!
//! `docs/kernels.md` says what each kernel lacks, and what is done about it.

use std::num::NonZero;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use xtask::ebpf::workspace_root;

use super::Selection;
use super::build::Executable;
use super::ring::Ring;
use super::tally::Tally;
use crate::setup;

mod archive;
mod cache;
mod debian;
mod machine;
mod modules;
mod programs;
mod root;

use debian::Suite;
use machine::{Machine, Outcome};

/// The kernels, and the Debian release that has them; the one that takes longest first.
const SUITES: [Suite; 3] = [
    Suite::new("trixie", "6.12"),
    Suite::new("bookworm", "6.1"),
    Suite::new("bullseye", "5.10"),
];

/// Set to `optional`, a kernel that cannot be had is skipped, with the reason; otherwise it fails.
const LENIENT: &str = "KUBE_LOTTERY_KERNELS";

/// What it takes, beside what the other rings need.
const NEEDED: [(&str, &str); 7] = [
    ("apt-get", "apt"),
    ("busybox", "busybox-static"),
    ("depmod", "kmod"),
    ("dpkg-deb", "dpkg"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("strip", "binutils"),
    ("xz", "xz-utils"),
];

/// Emulation is slow, and this machine may be busy; but it ends.
const LIMIT: Duration = Duration::from_mins(15);
const LONG_LIMIT: Duration = Duration::from_mins(45);

pub(super) fn run(executables: &[Executable], selection: &Selection) -> Result<Tally> {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: the kernels are those of x86-64, and so must the tests be");
        return Ok(skipped(SUITES.len()));
    }
    setup::ensure_commands(&mut setup::Host::new(false, false), &NEEDED)?;
    let executable = executables
        .iter()
        .find(|executable| executable.ring == Ring::Kernel)
        .context("the kernel ring has no executable")?;
    let root = root::Root::new(&executable.file, &test_arguments(selection), selection.long)?;
    let mut total = Tally::default();
    let mut machines = Vec::new();
    for suite in &SUITES {
        match prepare(suite, &root, selection.long) {
            Ok(machine) => machines.push(machine),
            Err(error) if is_lenient() => {
                println!("{}: skipped: {error:#}", suite.version);
                total += skipped(1);
            }
            Err(error) => {
                println!("{}: cannot be had: {error:#}", suite.version);
                total += Tally::failure();
            }
        }
    }
    total += run_all(machines)?;
    Ok(total)
}

/// Fetches a kernel, if need be, and makes the machine that it will run on.
fn prepare(suite: &Suite, root: &root::Root, long: bool) -> Result<Machine> {
    let kernel = suite.newest()?;
    let folder = workspace_root().join("target/kernels");
    std::fs::create_dir_all(&folder).context("cannot write to target")?;
    let initrd = folder.join(format!("{}.cpio", suite.name));
    std::fs::write(&initrd, root.with_modules_of(&kernel)?)
        .with_context(|| format!("cannot write {}", initrd.display()))?;
    Ok(Machine {
        log: folder.join(format!("{}.log", suite.name)),
        kernel,
        initrd,
        limit: if long { LONG_LIMIT } else { LIMIT },
    })
}

/// As many at once as there is room for.
fn run_all(machines: Vec<Machine>) -> Result<Tally> {
    let workers = thread::available_parallelism()
        .map_or(1, NonZero::get)
        .min(machine::fit_in_memory())
        .clamp(1, machines.len().max(1));
    let waiting = Mutex::new(machines.into_iter());
    // A function of its own: the lock would last as long as the loop's turn.
    let next = || lock(&waiting).next();
    let total = Mutex::new(Tally::default());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(machine) = next() {
                    let tally = report(&machine);
                    *lock(&total) += tally;
                }
            });
        }
    });
    total.into_inner().ok().context("a thread has died")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs one machine to its end and says in one line how it went, or in all that it said.
fn report(machine: &Machine) -> Tally {
    let kernel = &machine.kernel;
    let title = format!("{} ({}, {})", kernel.release, kernel.suite, kernel.package);
    match machine.run() {
        Ok(outcome) => {
            let Outcome {
                tally,
                booted,
                ended,
                console,
            } = outcome;
            // In one piece: other machines report at the same time.
            let said = if tally.failed == 0 {
                String::new()
            } else {
                console.join("\n") + "\n"
            };
            println!(
                "{said}{title}: booted in {booted:.1} s, {} passed, {} failed in {:.1} s",
                tally.passed,
                tally.failed,
                ended - booted
            );
            tally
        }
        Err(error) => {
            println!("{title}: {error:#}");
            Tally::failure()
        }
    }
}

/// Tests that ask a kernel what others may answer otherwise, and take no minutes to it.
const SHORT: [&str; 6] = [
    "agreement::random_packets",
    "capability::",
    "golden::",
    "old::",
    "sweep::the_program",
    "tables::what_was_written",
];

/// Which tests run: all in the long form, without one those for which emulation is not too slow.
fn test_arguments(selection: &Selection) -> Vec<String> {
    let mut arguments = vec!["--test-threads=1".to_owned()];
    match &selection.filter {
        Some(filter) => arguments.push(filter.clone()),
        None if selection.long => {}
        None => arguments.extend(SHORT.map(str::to_owned)),
    }
    arguments
}

fn is_lenient() -> bool {
    std::env::var(LENIENT).is_ok_and(|value| value == "optional")
}

fn skipped(count: usize) -> Tally {
    Tally {
        skipped: count as u64,
        ..Tally::default()
    }
}
