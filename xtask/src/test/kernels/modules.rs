//! The modules that a machine may load.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::archive::Archive;
use super::debian::Kernel;
use crate::process::{find, run};

/// Modules by the names that they are loaded by, or how those begin: what clusters of network
/// namespaces are made of, and what stands beside the programs on a node. One that a kernel has
/// built in, or has not, is left out.
const WANTED: [&str; 29] = [
    "8021q",
    "act_mirred",
    "bonding",
    "br_netfilter",
    "bridge",
    "cls_bpf",
    "cls_matchall",
    "dummy",
    "geneve",
    "ifb",
    "ip6_tables",
    "ip6table_*",
    "ip_tables",
    "ip_vs*",
    "ipip",
    "iptable_*",
    "ipvlan",
    "macvlan",
    "nf_*",
    "nfnetlink*",
    "nft_*",
    "sch_ingress",
    "sch_netem",
    "sctp",
    "sit",
    "veth",
    "vrf",
    "vxlan",
    "xt_*",
];

/// Modules without which a machine would show little.
pub(super) const PROOF: [&str; 5] = ["veth", "bridge", "sch_ingress", "cls_bpf", "nf_tables"];

/// Uncompresses the modules of an unpacked package and takes down what needs what, as the package
/// would have done at its installation.
pub(super) fn make_loadable(all: &Path) -> Result<()> {
    let version = fs::read_dir(all)
        .context("cannot read the modules")?
        .flatten()
        .map(|entry| entry.path())
        .next()
        .context("the package has no modules")?;
    let compressed: Vec<_> = files_below(&version)?
        .into_iter()
        .filter(|file| file.extension().is_some_and(|end| end == "xz"))
        .collect();
    if !compressed.is_empty() {
        run(Command::new("xz").arg("--decompress").args(compressed))?;
    }
    // It looks for `lib/modules` in the directory that it is given.
    let mut base = all.to_owned();
    base.pop();
    base.pop();
    let depmod = find("depmod").context("there is no depmod here")?;
    run(Command::new(depmod)
        .arg("--basedir")
        .arg(base)
        .arg(version.file_name().context("modules have a version")?))
}

fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).context("cannot read the modules")? {
            let entry = entry.context("cannot read the modules")?;
            let kind = entry.file_type().context("cannot read the modules")?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// Puts the wanted modules of a kernel into the archive, with all that they need and the lists that
/// modprobe looks at.
pub(super) fn add(archive: &mut Archive, kernel: &Kernel) -> Result<()> {
    let read = |name: &str| {
        fs::read(kernel.modules.join(name)).with_context(|| format!("no {name} beside the modules"))
    };
    let version = kernel
        .modules
        .file_name()
        .context("modules have a version")?
        .display();
    let lists = read("modules.dep")?;
    for file in needed(&String::from_utf8_lossy(&lists), &WANTED) {
        archive.file(&format!("/lib/modules/{version}/{file}"), &read(&file)?);
    }
    for list in [
        "modules.dep.bin",
        "modules.alias.bin",
        "modules.symbols.bin",
        "modules.builtin.bin",
        "modules.softdep",
        "modules.dep",
        "modules.alias",
        "modules.builtin",
    ] {
        archive.file(&format!("/lib/modules/{version}/{list}"), &read(list)?);
    }
    Ok(())
}

/// The files of the wanted modules and of those they need, by a list as depmod writes it.
fn needed(dependencies: &str, wanted: &[&str]) -> BTreeSet<String> {
    let is_wanted = |module: &str| {
        wanted.iter().any(|name| match name.strip_suffix('*') {
            Some(begin) => module.starts_with(begin),
            None => module == *name,
        })
    };
    // What a module needs is listed to the end, needs of needs included.
    let needs = dependencies
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(file, _)| is_wanted(&module_name(file)))
        .flat_map(|(file, needs)| [file].into_iter().chain(needs.split_whitespace()));
    needs.map(str::to_owned).collect()
}

/// A module's name, of its file; `-` and `_` are the same.
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    let name = name.split('.').next().unwrap_or(name);
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_comes_with_what_it_needs_and_nothing_else() {
        let list = "kernel/net/bridge/bridge.ko: kernel/net/802/stp.ko kernel/net/llc/llc.ko\n\
                    kernel/net/802/stp.ko: kernel/net/llc/llc.ko\n\
                    kernel/net/llc/llc.ko:\n\
                    kernel/net/sched/cls-bpf.ko:\n\
                    kernel/net/netfilter/nft_ct.ko: kernel/net/netfilter/nf_tables.ko\n\
                    kernel/net/netfilter/nf_tables.ko:\n\
                    kernel/drivers/net/veth.ko:\n";
        let files = needed(list, &["bridge", "cls_bpf", "is_built_in", "nft_*"]);
        let expected = [
            "kernel/net/802/stp.ko",
            "kernel/net/bridge/bridge.ko",
            "kernel/net/llc/llc.ko",
            "kernel/net/netfilter/nf_tables.ko",
            "kernel/net/netfilter/nft_ct.ko",
            "kernel/net/sched/cls-bpf.ko",
        ];
        assert_eq!(expected.map(str::to_owned).to_vec(), Vec::from_iter(files));
    }

    #[test]
    fn what_is_to_be_proved_is_taken_along() {
        let list = PROOF.map(|name| format!("kernel/{name}.ko:\n")).concat();
        assert_eq!(PROOF.len(), needed(&list, &WANTED).len());
        assert!(WANTED.is_sorted());
    }
}
