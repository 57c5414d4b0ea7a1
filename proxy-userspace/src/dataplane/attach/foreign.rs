//! Programs of others: their names, and agents that serve Services themselves.

use std::collections::HashMap;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::dataplane::syscall::link;
use crate::dataplane::syscall::{pin, program};

/// Where others pin their links.
const BPF_FS: &str = "/sys/fs/bpf";
/// So deep, and among so many files, a name is looked for.
const DEPTH: usize = 6;
const FILES: usize = 4096;

/// Names of programs by their numbers, which the kernel gives anew only after two thousand million.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: HashMap<u32, String>,
    /// Since when a name is not to be had.
    missing: HashMap<u32, Instant>,
}

/// When a name that is missing is looked for again.
const AGAIN: Duration = Duration::from_secs(30);

impl Names {
    /// The name of a program; its number where its name is not to be had.
    pub(super) fn of(&mut self, id: u32) -> String {
        if !self.known.contains_key(&id)
            && self.missing.get(&id).is_none_or(|at| at.elapsed() > AGAIN)
        {
            self.find(id);
        }
        match self.known.get(&id) {
            Some(name) if !name.is_empty() => name.clone(),
            _ => format!("program {id}"),
        }
    }

    fn find(&mut self, id: u32) {
        let named = program::by_id(id).and_then(|fd| program::id_and_name(&fd));
        match named {
            Ok((_, name)) => drop(self.known.insert(id, name)),
            // Without CAP_SYS_ADMIN the kernel opens no program by its number. Agents pin the links
            // of theirs, by telling names.
            Err(_) => self.known.extend(
                files(Path::new(BPF_FS))
                    .iter()
                    .filter_map(|path| pinned(path)),
            ),
        }
        if !self.known.contains_key(&id) {
            self.missing.insert(id, Instant::now());
        }
    }
}

/// Files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < DEPTH => {
                    folders.push((entry.path(), depth + 1));
                }
                Ok(kind) if kind.is_file() && files.len() < FILES => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files
}

/// Number and name of the program that a pin leads to.
fn pinned(path: &Path) -> Option<(u32, String)> {
    let object = pin::open(path).ok()?;
    let kind = fs::read_link(format!("/proc/self/fd/{}", object.as_raw_fd())).ok()?;
    match kind.to_str()? {
        "anon_inode:bpf-prog" => program::id_and_name(&object).ok(),
        "anon_inode:bpf_link" => {
            let name = path.file_name()?.to_str()?;
            Some((link::info(&object).ok()?.program, name.to_owned()))
        }
        _ => None,
    }
}

/// The agent that a program belongs to, if it is one that translates Services itself. The kernel
/// keeps only the beginning of a name.
pub(super) fn agent(program: &str) -> Option<&'static str> {
    let of = |beginnings: &[&str]| beginnings.iter().any(|start| program.starts_with(start));
    if of(&[
        "cil_",
        "cilium",
        "bpf_lxc",
        "bpf_host",
        "bpf_netdev",
        "bpf_overlay",
    ]) {
        Some("Cilium")
    } else if of(&["cali_", "calico_"]) {
        Some("Calico")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_known_by_their_programs() {
        let names = [
            ("cil_from_contai", Some("Cilium")),
            ("cilium-eth0", Some("Cilium")),
            ("bpf_lxc.o:[from-container]", Some("Cilium")),
            ("cali_tc_preambl", Some("Calico")),
            ("calico_from_wor", Some("Calico")),
            ("handle_ingress", None),
            ("tc_in", None),
            ("", None),
        ];
        for (name, expected) in names {
            assert_eq!(expected, agent(name), "{name}");
        }
    }
}
