//! Runs the executables of one ring.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::Selection;
use super::build::Executable;
use super::ring::Ring;
use super::tally::Tally;
use crate::{cargo, privilege};

/// Makes tests that need root or a kernel feature fail, not skip, where it is missing.
const REQUIRED: (&str, &str) = ("KUBE_LOTTERY_RINGS", "required");
/// Asks for the tests that wait or repeat much.
const LONG: (&str, &str) = ("KUBE_LOTTERY_LONG", "1");

pub(super) fn run(ring: Ring, executables: &[Executable], selection: &Selection) -> Result<Tally> {
    let mut total = Tally::default();
    for executable in executables
        .iter()
        .filter(|executable| executable.ring == ring)
    {
        println!(
            "\n     Running {} ({})",
            executable.title,
            executable.file.display()
        );
        total += count(&mut command(executable, selection)?, Tally::of_result_line)?;
    }
    if ring == Ring::Host && !executables.is_empty() {
        println!("\n     Running documentation tests");
        let mut documentation = cargo::command();
        documentation
            .args(["test", "--quiet", "--workspace", "--doc", "--"])
            .args(&selection.filter);
        total += count(&mut documentation, Tally::of_result_line)?;
    }
    Ok(total)
}

fn command(executable: &Executable, selection: &Selection) -> Result<Command> {
    let ring = executable.ring;
    let mut variables = Vec::new();
    variables.extend(ring.needs_root().then_some(REQUIRED));
    variables.extend(selection.long.then_some(LONG));
    let mut command = if ring.needs_root() {
        privilege::check()?;
        let file = executable
            .file
            .to_str()
            .context("the path of the repository is not text")?;
        privilege::as_root(file, &variables)
    } else {
        let mut command = Command::new(&executable.file);
        command.envs(variables);
        command
    };
    if ring == Ring::Network {
        // Each test starts processes and measures times: more at once would measure each other.
        command.arg("--test-threads=2");
    }
    if ring == Ring::Bench {
        command.arg("--gate");
    }
    command
        .args(&selection.filter)
        .current_dir(&executable.directory);
    command.env("CARGO_MANIFEST_DIR", &executable.directory);
    Ok(command)
}

/// Passes the output on and adds up the closing lines in it.
pub(super) fn count(command: &mut Command, read: impl Fn(&str) -> Option<Tally>) -> Result<Tally> {
    let program = command.get_program().to_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let mut total = Tally::default();
    let mut closed = false;
    for line in BufReader::new(child.stdout.take().context("output is piped")?).lines() {
        let line =
            line.with_context(|| format!("{} prints something else than text", program.display()))?;
        println!("{line}");
        if let Some(tally) = read(&line) {
            total += tally;
            closed = true;
        }
    }
    let status = child
        .wait()
        .with_context(|| format!("cannot wait for {}", program.display()))?;
    // A crash takes the closing line with it.
    if !closed || (!status.success() && total.failed == 0) {
        println!(
            "error: {} ended with {status}, without a test result that says so",
            program.display()
        );
        total += Tally::failure();
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Tally {
        count(
            Command::new("sh").args(["-c", script]),
            Tally::of_result_line,
        )
        .expect("a shell is everywhere")
    }

    const CLOSING: &str =
        "echo 'test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out'";

    #[test]
    fn several_closing_lines_add_up() {
        assert_eq!(
            Tally {
                passed: 4,
                failed: 0,
                skipped: 2
            },
            shell(&format!("{CLOSING}; {CLOSING}"))
        );
    }

    #[test]
    fn a_crash_after_the_closing_line_is_a_failure() {
        assert_eq!(1, shell(&format!("{CLOSING}; kill -ABRT $$")).failed);
    }

    #[test]
    fn silence_is_a_failure() {
        assert_eq!(Tally::failure(), shell("true"));
    }
}
