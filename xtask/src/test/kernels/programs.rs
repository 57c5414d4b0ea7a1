//! Programs of this machine, with the libraries that they need, for another one.
//!
//! The tests as they were built for the kernel ring: built once more without shared libraries they
//! would cost as much time again as the whole build.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use xtask::ebpf::workspace_root;

use super::archive::Archive;
use crate::process::{find, run};

/// Puts a program of this machine into the archive, at `path`.
pub(super) fn add(archive: &mut Archive, program: &str, path: &str) -> Result<()> {
    let file = find(program).with_context(|| format!("there is no {program} here"))?;
    add_file(archive, &file, path)
}

/// The same of a program that was built here, without what only a debugger needs.
pub(super) fn add_stripped(archive: &mut Archive, program: &Path, path: &str) -> Result<()> {
    let folder = workspace_root().join("target/kernels");
    fs::create_dir_all(&folder).context("cannot write to target")?;
    let stripped = folder.join("stripped");
    run(Command::new("strip").arg("-o").arg(&stripped).arg(program))?;
    add_file(archive, &stripped, path)
}

fn add_file(archive: &mut Archive, file: &Path, path: &str) -> Result<()> {
    let read =
        |file: &Path| fs::read(file).with_context(|| format!("cannot read {}", file.display()));
    archive.file(path, &read(file)?);
    for library in libraries(file)? {
        if !archive.has(&library) {
            archive.file(&library, &read(Path::new(&library))?);
        }
    }
    Ok(())
}

/// What the loader would load; nothing for a static program.
fn libraries(file: &Path) -> Result<Vec<String>> {
    // It fails on static programs, and says so.
    let output = Command::new("ldd")
        .arg(file)
        .output()
        .context("cannot start ldd")?;
    Ok(paths_in(&String::from_utf8_lossy(&output.stdout)))
}

fn paths_in(listing: &str) -> Vec<String> {
    listing
        .lines()
        .filter_map(|line| {
            let line = line.split_once("=>").map_or(line, |(_, path)| path);
            let path = line.split_whitespace().next()?;
            path.starts_with('/').then(|| path.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_loader_are_found_in_a_listing() {
        let listing = "\tlinux-vdso.so.1 (0x00007f12f4f7f000)\n\
                       \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f12f451e000)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f12f4f81000)\n";
        assert_eq!(
            vec![
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib64/ld-linux-x86-64.so.2"
            ],
            paths_in(listing)
        );
        assert!(paths_in("\tnot a dynamic executable\n").is_empty());
    }
}
