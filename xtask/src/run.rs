//! `cargo xtask run`.

use anyhow::{Result, bail};

/// Shows the proxy at work, or loads it on this node with the flags given.
pub fn run(_keep: bool, _flags: &[String]) -> Result<()> {
    bail!("the demonstration is not part of this tree yet")
}
