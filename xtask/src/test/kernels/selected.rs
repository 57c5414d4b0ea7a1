//! Which tests run on an emulated kernel: in the long form whatever it can show, otherwise what
//! emulation is not too slow for.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::debian::{Network, Suite};
use crate::test::Selection;
use crate::test::build::Executable;
use crate::test::ring::Ring;

/// Tests that ask a kernel what others may answer otherwise.
const KERNEL: [&str; 7] = [
    "agreement::random_packets",
    "capability::",
    "golden::",
    "netfilter::",
    "old::",
    "sweep::the_program",
    "tables::what_was_written",
];

/// Connections through a Service, and whatever goes by how programs are attached.
const NETWORK: [&str; 1] = ["paths::a_pod_reaches_an_endpoint_on_its_own_node"];
const LONG_NETWORK: [&str; 1] = ["paths::"];

/// An executable and what it is told to run.
pub(super) struct Tests {
    /// Where it lies here.
    pub(super) file: PathBuf,
    /// Where it lies there.
    pub(super) path: &'static str,
    pub(super) arguments: Vec<String>,
    /// The proxy that they start, at the same place here and there.
    pub(super) proxy: Option<PathBuf>,
}

/// What runs on the kernel of a suite.
pub(super) fn tests(
    executables: &[Executable],
    selection: &Selection,
    suite: &Suite,
) -> Result<Vec<Tests>> {
    let long = selection.long;
    let mut tests = vec![Tests {
        file: of(executables, Ring::Kernel)?.to_owned(),
        path: "/bin/kernel",
        arguments: arguments(selection, if long { &[] } else { &KERNEL }),
        proxy: None,
    }];
    let has_network = match suite.network {
        Network::Always => true,
        Network::Long => long,
        Network::Never => false,
    };
    if has_network {
        let file = of(executables, Ring::Network)?;
        tests.push(Tests {
            file: file.to_owned(),
            path: "/bin/network",
            arguments: arguments(selection, if long { &LONG_NETWORK } else { &NETWORK }),
            proxy: Some(proxy_beside(file)?),
        });
    }
    Ok(tests)
}

/// The ring's own executable: others, whose names only begin so, ask nothing of another kernel.
fn of(executables: &[Executable], ring: Ring) -> Result<&Path> {
    let source = format!("tests/{ring}.rs");
    executables
        .iter()
        .find(|executable| executable.ring == ring && executable.title.ends_with(&source))
        .map(|executable| executable.file.as_path())
        .with_context(|| format!("the {ring} ring has no executable"))
}

/// Cargo puts binaries one folder above the tests.
fn proxy_beside(tests: &Path) -> Result<PathBuf> {
    let folder = tests.parent().and_then(Path::parent);
    Ok(folder
        .context("the tests lie in no folder")?
        .join("kube-lottery"))
}

/// One after the other: such a machine has one CPU.
fn arguments(selection: &Selection, usual: &[&str]) -> Vec<String> {
    let one_by_one = "--test-threads=1".to_owned();
    let filters = match &selection.filter {
        Some(filter) => vec![filter.clone()],
        None => usual.iter().map(|&name| name.to_owned()).collect(),
    };
    [one_by_one].into_iter().chain(filters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITE: Suite = Suite::new("bookworm", "6.1", Network::Long);

    fn selected(filter: Option<&str>, long: bool) -> Vec<Tests> {
        let executable = |name: &str, ring| Executable {
            file: format!("/build/debug/deps/{name}-1").into(),
            ring,
            title: format!("package tests/{name}.rs"),
            directory: "/repository".into(),
        };
        let executables = [
            executable("kernel_of_another_package", Ring::Kernel),
            executable("kernel", Ring::Kernel),
            executable("network", Ring::Network),
        ];
        let selection = Selection {
            rings: vec![Ring::Kernels],
            filter: filter.map(str::to_owned),
            long,
        };
        tests(&executables, &selection, &SUITE).expect("all are there")
    }

    #[test]
    fn the_short_form_names_its_tests_and_the_long_one_runs_them_all() {
        let [kernel] = &selected(None, false)[..] else {
            panic!("no network in the short form of this suite");
        };
        assert!(kernel.arguments.contains(&KERNEL[0].to_owned()));
        assert_eq!(Path::new("/build/debug/deps/kernel-1"), kernel.file);
        let [kernel, network] = &selected(None, true)[..] else {
            panic!("both in the long form");
        };
        assert_eq!(["--test-threads=1"], *kernel.arguments);
        assert_eq!(Some("/build/debug/kube-lottery".into()), network.proxy);
    }

    #[test]
    fn a_filter_takes_the_place_of_the_names() {
        let [kernel] = &selected(Some("golden"), false)[..] else {
            panic!("no network in the short form of this suite");
        };
        assert_eq!(["--test-threads=1", "golden"], *kernel.arguments);
    }
}
