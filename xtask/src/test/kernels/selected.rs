//! Which tests run on an emulated kernel: in the long form whatever a kernel may answer otherwise,
//! in the usual one the first among them.

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

/// What counts millions of packets to learn what no kernel decides, or what hardware costs.
const HARDWARE: [&str; 4] = ["capacity::", "cost::", "lottery::", "race::sets"];

/// Connections through a Service, and whatever goes by how programs are attached.
const NETWORK: [&str; 1] = ["paths::a_pod_reaches_an_endpoint_on_its_own_node"];
const LONG_NETWORK: [&str; 2] = ["paths::", "sctp::"];

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
        arguments: if long {
            all_but(selection, &HARDWARE)
        } else {
            arguments(selection, &KERNEL)
        },
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

/// All tests but these, or the ones that a filter names.
fn all_but(selection: &Selection, left_out: &[&str]) -> Vec<String> {
    let mut arguments = arguments(selection, &[]);
    if selection.filter.is_none() {
        for name in left_out {
            arguments.extend(["--skip".to_owned(), (*name).to_owned()]);
        }
    }
    arguments
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
    fn the_short_form_names_its_tests_and_the_long_one_what_it_leaves_out() {
        let [kernel] = &selected(None, false)[..] else {
            panic!("no network in the short form of this suite");
        };
        assert!(kernel.arguments.contains(&KERNEL[0].to_owned()));
        assert_eq!(Path::new("/build/debug/deps/kernel-1"), kernel.file);
        let [kernel, network] = &selected(None, true)[..] else {
            panic!("both in the long form");
        };
        assert_eq!("--test-threads=1", kernel.arguments[0]);
        assert_eq!(["--skip", HARDWARE[0]], kernel.arguments[1..3]);
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
