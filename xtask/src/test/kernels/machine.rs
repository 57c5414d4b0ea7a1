//! An emulated machine: started, listened to, and ended.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::debian::Kernel;
use crate::process::find;
use crate::test::tally::Tally;

/// The machine has booted; followed by its time in seconds.
pub(super) const BOOTED: &str = "kube-lottery: booted";
/// The tests have ended; followed by how, and the time.
pub(super) const ENDED: &str = "kube-lottery: ended";

/// What a machine has, in MiB.
const MEMORY: usize = 1024;
/// Lines that are shown of a machine that says nothing of its end.
const LAST_WORDS: usize = 40;

pub(super) struct Machine {
    pub(super) kernel: Kernel,
    pub(super) initrd: PathBuf,
    /// Everything that it says.
    pub(super) log: PathBuf,
    /// How long it may take.
    pub(super) limit: Duration,
}

/// What a machine that ran to its end has said.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) tally: Tally,
    /// When the first process had control, and when the tests had ended, in seconds.
    pub(super) booted: f64,
    pub(super) ended: f64,
    /// What was said in between.
    pub(super) console: Vec<String>,
}

/// How many machines this one has memory for.
pub(super) fn fit_in_memory() -> usize {
    let available = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text
            .lines()
            .find(|line| line.starts_with("MemAvailable:"))?;
        line.split_whitespace().nth(1)?.parse::<usize>().ok()
    });
    // The emulator takes some itself.
    available.map_or(1, |kib| kib / 1024 / (MEMORY + MEMORY / 4))
}

impl Machine {
    pub(super) fn run(&self) -> Result<Outcome> {
        let mut log = File::create(&self.log)
            .with_context(|| format!("cannot write {}", self.log.display()))?;
        let (mut emulator, lines) = self.start()?;
        let deadline = Instant::now() + self.limit;
        let mut said = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match lines.recv_timeout(left) {
                Ok(line) => {
                    writeln!(log, "{line}").context("cannot write the log")?;
                    said.push(line);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    emulator.end();
                    bail!(
                        "not at its end after {} s, see {}; its last words:\n{}",
                        self.limit.as_secs(),
                        self.log.display(),
                        last_words(&said)
                    );
                }
            }
        }
        emulator.end();
        Outcome::of(&said).with_context(|| format!("its last words:\n{}", last_words(&said)))
    }

    fn start(&self) -> Result<(Emulator, Receiver<String>)> {
        let mut command = lasting_as_long_as_this("qemu-system-x86_64");
        command
            // Software emulation: the machine that this runs on may be a virtual one.
            .args(["-accel", "tcg", "-cpu", "max"])
            .args(["-m", &MEMORY.to_string()])
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-serial", "stdio", "-no-reboot"])
            .arg("-kernel")
            .arg(&self.kernel.image)
            .arg("-initrd")
            .arg(&self.initrd)
            .args(["-append", "console=ttyS0 panic=-1 quiet"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = command.spawn().context("cannot start qemu")?;
        let output = child.stdout.take().context("output is piped")?;
        let (sender, lines) = channel();
        // Ends with the emulator, whose output it reads.
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                line.clear();
                if sender.send(text).is_err() {
                    break;
                }
            }
        });
        Ok((Emulator(child), lines))
    }
}

/// A running emulator; it ends when dropped.
struct Emulator(Child);

impl Emulator {
    fn end(&mut self) {
        // It fails where there is none any more.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.end();
    }
}

/// A program that the kernel ends when the thread that starts it ends, however that may be.
fn lasting_as_long_as_this(program: &str) -> Command {
    let Some(setpriv) = find("setpriv") else {
        return Command::new(program);
    };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL", program]);
    command
}

impl Outcome {
    fn of(said: &[String]) -> Result<Self> {
        let place = |marker: &str| {
            said.iter()
                .enumerate()
                .find(|(_, line)| line.contains(marker))
                .with_context(|| format!("it never said \"{marker}\""))
        };
        let ((begin, first), (end, last)) = (place(BOOTED)?, place(ENDED)?);
        let booted = numbers_after(first, BOOTED);
        let result = numbers_after(last, ENDED);
        let (&[booted], &[code, ended]) = (&booted[..], &result[..]) else {
            bail!("it said \"{first}\" and \"{last}\"");
        };
        let console = said.get(begin + 1..end).unwrap_or_default().to_vec();
        let mut tally = Tally::default();
        let mut closed = false;
        for counted in console
            .iter()
            .filter_map(|line| Tally::of_result_line(line))
        {
            tally += counted;
            closed = true;
        }
        // A crash, or no module.
        if tally.failed == 0 && (code != 0.0 || !closed) {
            tally += Tally::failure();
        }
        Ok(Self {
            tally,
            booted,
            ended,
            console,
        })
    }
}

fn numbers_after(line: &str, marker: &str) -> Vec<f64> {
    let rest = line.split_once(marker).map_or("", |(_, rest)| rest);
    rest.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

fn last_words(said: &[String]) -> String {
    let from = said.len().saturating_sub(LAST_WORDS);
    said.split_at(from).1.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(lines: &[&str]) -> Result<Outcome> {
        let said: Vec<_> = lines.iter().map(|&line| line.to_owned()).collect();
        Outcome::of(&said)
    }

    const RESULT: &str = "test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s";

    #[test]
    fn the_tests_of_a_machine_are_counted_between_its_marks() {
        let Outcome {
            tally,
            booted,
            ended,
            console,
        } = outcome(&[
            "noise",
            "kube-lottery: booted 2.5",
            RESULT,
            "kube-lottery: ended 0 12.5",
        ])
        .expect("ran to its end");
        assert_eq!((7, 0), (tally.passed, tally.failed));
        assert_eq!("2.5 12.5", format!("{booted} {ended}"));
        assert_eq!(vec![RESULT], console);
    }

    #[test]
    fn a_crash_is_a_failure_whatever_was_said_before() {
        let lines = [
            "kube-lottery: booted 2.5",
            RESULT,
            "kube-lottery: ended 134 9",
        ];
        assert_eq!(1, outcome(&lines).expect("ended").tally.failed);
        let silent = ["kube-lottery: booted 2.5", "kube-lottery: ended 0 9"];
        assert_eq!(1, outcome(&silent).expect("ended").tally.failed);
    }

    #[test]
    fn a_machine_that_stops_on_the_way_has_no_outcome() {
        outcome(&["kube-lottery: booted 2.5", RESULT, "Kernel panic"]).expect_err("no end");
        outcome(&["Kernel panic"]).expect_err("no begin");
    }
}
