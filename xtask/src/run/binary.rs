//! Builds the proxy.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::ebpf::workspace_root;

/// Builds the proxy and returns the path of its binary.
pub(super) fn build() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(workspace_root())
        .args([
            "build",
            "--package",
            "proxy-userspace",
            "--bin",
            "kube-lottery",
        ])
        // Errors and progress go to the user, the paths of what was built come to us.
        .args(["--message-format", "json-render-diagnostics"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = command.output().context("cannot start cargo")?;
    ensure!(
        output.status.success(),
        "the proxy does not build, see above"
    );
    executable(&String::from_utf8_lossy(&output.stdout)).context("cargo named no binary")
}

// Configuration may move the build folder anywhere: only cargo knows where it put the file.
fn executable(messages: &str) -> Option<PathBuf> {
    messages.lines().rev().find_map(|line| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        let (path, _) = rest.split_once('"')?;
        path.ends_with("/kube-lottery").then(|| PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_found_in_what_cargo_says() {
        let messages = "{\"executable\":null}\n{\"x\":1,\"executable\":\"/a/kube-lottery\",\"fresh\":true}\n{}";
        assert_eq!(Some(PathBuf::from("/a/kube-lottery")), executable(messages));
        assert_eq!(None, executable("{\"executable\":null}"));
    }
}
