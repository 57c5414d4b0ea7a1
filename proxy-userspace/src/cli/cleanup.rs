//! `kube-lottery cleanup`

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::dataplane::{Lock, Place, cleanup};

/// Flags of `cleanup`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Say what would be removed, and remove nothing.
    #[arg(long)]
    dry_run: bool,
    /// Directory of a BPF file system below which maps and links are pinned.
    #[arg(long, value_name = "DIR", default_value = super::BPF_DIR)]
    bpf_dir: PathBuf,
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "its output")]
pub(super) fn execute(args: &Args) -> Result<()> {
    let place = Place::here(&args.bpf_dir)?;
    let all = cleanup(&place);
    if all.is_empty() {
        println!("nothing to remove");
        return Ok(());
    }
    if args.dry_run {
        for item in &all {
            println!("would remove {item}");
        }
        return Ok(());
    }
    // A controller that runs would attach again, or pin what nobody finds.
    let _lock = Lock::take(&place)?;
    let mut failed = 0;
    // Looked at again: whoever held the lock until now may have changed it.
    for item in cleanup(&place) {
        match item.carry_out() {
            Ok(()) => println!("removed {item}"),
            Err(error) => {
                failed += 1;
                eprintln!("{:#}", anyhow::Error::new(error));
            }
        }
    }
    if failed > 0 {
        bail!("{failed} things could not be removed");
    }
    Ok(())
}
