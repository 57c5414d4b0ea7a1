//! `kube-lottery cleanup`

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::dataplane::{Cleanup, Lock, PinError, Place, cleanup};
use crate::netfilter::{Leftover, leftovers};
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

/// Something to remove.
enum Item {
    Table(Leftover),
    Pinned(Cleanup),
    /// So many entries that the kernel was asked to keep.
    Neighbours(usize),
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => table.fmt(f),
            Self::Pinned(item) => item.fmt(f),
            Self::Neighbours(count) => write!(f, "mark of {count} neighbours"),
        }
    }
}

impl Item {
    fn remove(&self) -> Result<()> {
        match self {
            Self::Table(table) => table
                .remove()
                .with_context(|| format!("cannot remove {table}")),
            Self::Pinned(item) => item.carry_out().map_err(PinError::into),
            Self::Neighbours(_) => release_neighbours(true).map(drop),
        }
    }
}

/// Everything, in a safe order: as long as programs translate, the tables drop nothing.
fn items(place: &Place) -> Vec<Item> {
    // Where nftables cannot be read there is nothing of ours in it.
    let tables = leftovers().unwrap_or_default().into_iter().map(Item::Table);
    let pinned = cleanup(place).into_iter().map(Item::Pinned);
    let kept = release_neighbours(false).unwrap_or_default();
    let neighbours = (kept > 0).then_some(Item::Neighbours(kept));
    tables.chain(pinned).chain(neighbours).collect()
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "its output")]
pub(super) fn execute(args: &Args) -> Result<()> {
    let place = Place::here(&args.bpf_dir)?;
    let all = items(&place);
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
    // A controller that runs would attach again, or pin what nobody finds. Where there is no folder
    // there is none.
    let _lock = if place.folder().is_dir() {
        Some(Lock::take(&place)?)
    } else {
        None
    };
    let mut failed = 0;
    // Looked at again: whoever held the lock until now may have changed it.
    for item in items(&place) {
        match item.remove() {
            Ok(()) => println!("removed {item}"),
            Err(error) => {
                failed += 1;
                eprintln!("{error:#}");
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
