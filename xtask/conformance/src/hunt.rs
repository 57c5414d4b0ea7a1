//! Cases at random, on the real kube-proxy and on the data path.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use kube_lottery::config::Mode;

use crate::case::{self, Case};
use crate::oracle::{Oracle, fill_in};
use crate::random::Random;
use crate::run::{Failure, Report, is_same, mode_name, run};
use crate::shrink::shrink;
use crate::world::World;

/// How many cases the oracle looks at in one go.
const AT_ONCE: usize = 50;
/// How many failures are shrunk; further ones are mostly the same again.
const SHRUNK: usize = 5;

const HEADER: &str = "# Made at random; expectations as observed on the real kube-proxy.\n\n";

/// What to look for.
pub struct Hunt<'a> {
    /// How many cases.
    pub cases: usize,
    /// What they are made from.
    pub seed: u64,
    /// In which modes.
    pub modes: &'a [Mode],
    /// The real kube-proxy.
    pub oracle: &'a Oracle,
    /// Where small cases are written that fail.
    pub folder: &'a Path,
    /// What is new is told here.
    pub tell: &'a mut dyn FnMut(&str),
}

impl Hunt<'_> {
    /// Looks for cases that fare otherwise than on kube-proxy.
    pub fn run(mut self) -> Result<Report> {
        let mut random = Random::new(self.seed);
        let mut worlds: Vec<_> = self
            .modes
            .iter()
            .map(|mode| World::load(*mode))
            .collect::<Result<_>>()?;
        let mut total = Report::default();
        let mut left = self.cases;
        let mut left_out = 0;
        while left > 0 {
            let count = left.min(AT_ONCE);
            left -= count;
            let mut cases: Vec<_> = (0..count).map(|_| random.case()).collect::<Result<_>>()?;
            let odd = fill_in(&mut cases, self.oracle)?;
            left_out += odd.len();
            for line in &odd {
                (self.tell)(&format!("left out: {line}"));
            }
            for case in &cases {
                for world in &mut worlds {
                    let report = self.checked(world, case)?;
                    self.failed(world, case, &report.failures, &total)?;
                    total += report;
                }
            }
            let done = self.cases - left;
            (self.tell)(&format!("{done} of {} cases: {total}", self.cases));
        }
        if left_out > 0 {
            (self.tell)(&format!(
                "{left_out} packets left out: kube-proxy gave no certain answer"
            ));
        }
        Ok(total)
    }

    /// How the packets of a case fare. What fails is shown to kube-proxy once more, for not all
    /// that it does is the same each time.
    fn checked(&mut self, world: &mut World, case: &Case) -> Result<Report> {
        let mut report = run(world, case)?;
        if report.failures.is_empty() {
            return Ok(report);
        }
        let mut again = [case.clone()];
        fill_in(&mut again, self.oracle)?;
        let [again] = again;
        let mode = world.mode();
        let (same, other): (Vec<_>, Vec<_>) = report.failures.into_iter().partition(|failure| {
            let mut packets = again.packets.iter();
            let packet = packets.find(|packet| packet.name == failure.packet);
            let expected = packet.and_then(|packet| packet.expected(mode));
            expected.is_some_and(|expected| is_same(expected, &failure.expected))
        });
        for failure in other {
            (self.tell)(&format!(
                "left out: {}: {}: kube-proxy does something else each time",
                failure.case, failure.packet
            ));
        }
        report.failures = same;
        Ok(report)
    }

    fn failed(
        &mut self,
        world: &mut World,
        case: &Case,
        failures: &[Failure],
        total: &Report,
    ) -> Result<()> {
        for failure in failures {
            (self.tell)(&failure.to_string());
        }
        let Some(first) = failures.first() else {
            return Ok(());
        };
        if total.failures.len() >= SHRUNK {
            return Ok(());
        }
        let small = shrink(world, case, &first.packet, self.oracle)?;
        let file = self.write(small, world.mode())?;
        (self.tell)(&format!("    small case: {}", file.display()));
        Ok(())
    }

    fn write(&self, small: Case, mode: Mode) -> Result<PathBuf> {
        fs::create_dir_all(self.folder)
            .with_context(|| format!("cannot make {}", self.folder.display()))?;
        let name = format!("{}-{}.yaml", small.name, mode_name(mode));
        let file = self.folder.join(name);
        let mut cases = [small];
        fill_in(&mut cases, self.oracle)?;
        case::write(&file, HEADER, &cases)?;
        Ok(file)
    }
}
