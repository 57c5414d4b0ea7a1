//! Removes what labs of dead processes left behind.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::command;

/// Deletes the namespaces of labs whose process is gone; returns how many there were.
///
/// A lab cleans up behind itself even when its process is killed. What is left here is from a
/// machine where the shell that does it was killed as well.
pub fn sweep() -> Result<usize> {
    let names = match fs::read_dir("/run/netns") {
        Ok(entries) => entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| owner(name).is_some_and(|pid| !is_alive(pid)))
            .collect::<Vec<_>>(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).context("cannot list /run/netns"),
    };
    let lines: Vec<_> = names
        .iter()
        .map(|name| format!("netns delete {name}"))
        .collect();
    if !lines.is_empty() {
        // Another sweep may be at it: what is gone already is no failure.
        drop(command::ip(None, &lines));
    }
    Ok(lines.len())
}

/// The process in the name of a lab's namespace.
fn owner(namespace: &str) -> Option<u32> {
    let (pid, _) = namespace.strip_prefix(super::PREFIX)?.split_once('-')?;
    pid.parse().ok()
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_labs_have_an_owner() {
        assert_eq!(Some(12), owner("kl-12-0-node1"));
        assert_eq!(None, owner("kl-x-0-node1"));
        assert_eq!(None, owner("cni-12-0"));
    }

    #[test]
    fn this_process_is_alive() {
        assert!(is_alive(std::process::id()));
        assert!(!is_alive(u32::MAX));
    }
}
