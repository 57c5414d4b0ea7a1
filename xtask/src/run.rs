//! `cargo xtask run`.

use anyhow::{Result, bail};

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Leave the demonstration's cluster up.
    pub keep: bool,
    /// Flags of `kube-lottery run`.
    pub flags: Vec<String>,
}

/// Shows the proxy at work, or loads it on this node with the flags given.
pub fn run(_options: &Options) -> Result<()> {
    bail!("the demonstration is not part of this tree yet")
}
