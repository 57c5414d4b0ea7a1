//! Cargo, called from inside `cargo run`.

use std::env;
use std::process::Command;

use xtask::ebpf::workspace_root;

/// A cargo command in the workspace's root, with the environment of a fresh one.
pub(crate) fn command() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace_root());
    // Some build scripts look at these, and would run again each time the caller changes.
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_of_this_crate) {
            cargo.env_remove(name);
        }
    }
    cargo
}

fn is_of_this_crate(variable: &str) -> bool {
    [
        "CARGO_PKG_",
        "CARGO_MANIFEST_",
        "CARGO_BIN_",
        "CARGO_CRATE_",
    ]
    .iter()
    .any(|prefix| variable.starts_with(prefix))
}
