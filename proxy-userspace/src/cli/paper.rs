//! `kube-lottery completion` and `kube-lottery man`: the command line as shells and readers of manual
//! pages want it.

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Command, ValueEnum};
use clap_complete::Shell;

/// Flags of `completion`.
#[derive(Debug, clap::Args)]
pub(super) struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Known,
}

/// Shells that are tested.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Known {
    Bash,
    Zsh,
    Fish,
}

/// Flags of `man`.
#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// Write one page for each command into this directory.
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

/// Prints a completion script.
pub(super) fn completion(args: &CompletionArgs, mut command: Command) -> Result<()> {
    let shell = match args.shell {
        Known::Bash => Shell::Bash,
        Known::Zsh => Shell::Zsh,
        Known::Fish => Shell::Fish,
    };
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    let script = String::from_utf8(script)?;
    // The generator takes the two underscores that it writes for a dash for its own separator, and
    // then calls one command by two names.
    print(
        script
            .replace("kube__subcmd__lottery", "kube__lottery")
            .as_bytes(),
    )
}

/// Prints or writes manual pages.
pub(super) fn man(args: &ManArgs, command: Command) -> Result<()> {
    let Some(directory) = &args.directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        return print(&page);
    };
    clap_mangen::generate_to(command, directory)
        .with_context(|| format!("cannot write manual pages into {}", directory.display()))
}

/// A reader that has seen enough is no error.
fn print(text: &[u8]) -> Result<()> {
    match io::stdout().write_all(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}
