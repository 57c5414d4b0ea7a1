//! `kube-lottery cleanup`

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::dataplane::{Lock, Place, cleanup};
use crate::node::neighbours;

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
    let kept = release_neighbours(false)?;
    if all.is_empty() && kept == 0 {
        println!("nothing to remove");
        return Ok(());
    }
    if args.dry_run {
        for item in &all {
            println!("would remove {item}");
        }
        if kept > 0 {
            println!("would release {kept} neighbours");
        }
        return Ok(());
    }
    // A controller that runs would attach again, or pin what nobody finds. Where nothing is pinned,
    // none runs.
    let _lock = (!all.is_empty()).then(|| Lock::take(&place)).transpose()?;
    let released = release_neighbours(true)?;
    if released > 0 {
        println!("released {released} neighbours");
    }
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

/// Releases the neighbours that the kernel was asked to keep, or only counts them.
fn release_neighbours(really: bool) -> Result<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let released = runtime.block_on(neighbours::release(really));
    released.context("cannot release the neighbours of this node")
}
