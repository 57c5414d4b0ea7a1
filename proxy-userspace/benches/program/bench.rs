//! Rounds in which everything is measured in turn, so that all meet the same machine.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use kube_lottery::dataplane::load::OBJECT;
use kube_lottery::dataplane::{LogLevel, settings};
use proxy_common::abi::{Settings, reference};
use proxy_common::datapath::memory::world::World;
use proxy_common::net::Proto;

use super::figures::{Figures, budgets, write_budgets};
use super::options::{Format, Options};
use super::paths::Paths;
use super::report;
use super::runner::Runner;
use super::samples::Samples;
use crate::object::{Object, PROGRAMS};

/// Room in each flow map: little, so that it stays in the caches as far as flows let it.
const FLOWS: u32 = 1 << 12;
/// Rounds with known flows for each load.
const ROUNDS: u32 = 200;
/// Where its maps and its code come to lie makes some paths of a load dearer by half, for as long as
/// it lives. So budgets are taken from the best of so many loads.
const LOADS: u32 = 5;
/// A budget that is broken in every load of so long a time is broken.
const PATIENCE: Duration = Duration::from_secs(40);
/// UDP flows that are answered and older than this are established.
const UDP_PROOF: Duration = Duration::from_millis(3100);

pub(crate) fn run(options: &Options) -> ExitCode {
    let start = Instant::now();
    let budgets = budgets();
    let mut samples = Samples::default();
    let mut loads = 0;
    let figures = loop {
        let runner = measure(samples);
        loads += 1;
        let figures = Figures::new(&runner, &budgets, options);
        let is_enough = if options.write {
            loads >= LOADS
        } else {
            !options.gate || figures.is_within() || start.elapsed() > PATIENCE
        };
        if is_enough {
            break figures;
        }
        samples = runner.samples;
    };
    match options.output {
        Format::Table => report::print_table(&figures, options.gate),
        Format::Json => report::print_json(&figures),
    }
    if options.write {
        write_budgets(&figures, budgets);
    }
    if options.gate {
        report::print_result(&figures, start.elapsed());
        if !figures.is_within() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Loads the programs as they are shipped, and measures them.
fn measure(samples: Samples) -> Runner {
    let settings = Settings::with_hz(settings::detect().hz);
    let mut world = World::new(settings);
    let families = [false, true].map(|is_v6| Paths::declare(&mut world, is_v6));
    for n in 0..reference::FRONTENDS {
        world.service(([0; 4].into(), n), Proto::TCP, &[]);
    }
    let others = ["sweeper", "noop", "reference_known", "reference_new"];
    let programs = [&PROGRAMS[..], &others].concat();
    let mut object = Object::load_with(OBJECT, settings, LogLevel::Off, FLOWS, &programs);
    object.write(&world.tables);
    let mut runner = Runner::new(object, FLOWS, samples);
    let opened = Instant::now();
    let known = families
        .iter()
        .map(|family| family.establish(&runner))
        .sum();
    while opened.elapsed() < UDP_PROOF {
        round(&families, &mut runner, false);
    }
    for family in &families {
        family.establish(&runner);
    }
    for _ in 0..ROUNDS {
        round(&families, &mut runner, true);
    }
    runner.check(known);
    runner
}

fn round(families: &[Paths], runner: &mut Runner, established: bool) {
    for family in families {
        family.round(runner, established);
    }
    runner.clear();
}
