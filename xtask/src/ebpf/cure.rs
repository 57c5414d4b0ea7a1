//! The one error for a machine that cannot build the eBPF programs yet.

use super::OBJECT_VARIABLE;
use super::compiler::{self, Compiler, Rejected};
use super::linker::{self, Linker};

/// What is missing, what was tried, and every way out.
pub(super) fn explain(
    compiler: &Result<Compiler, Vec<Rejected>>,
    linker: Option<&Linker>,
) -> String {
    let mut lines = vec!["the eBPF programs cannot be built on this machine yet".to_owned()];
    if let Err(rejected) = compiler {
        lines.extend(compiler_cures(rejected));
    }
    if linker.is_none() {
        lines.extend(linker_cures(
            compiler
                .as_ref()
                .map_or(linker::USUAL_LLVM, |compiler| compiler.llvm),
        ));
    }
    lines.extend([
        "either of these cures all of it:".to_owned(),
        command("cargo xtask setup", "picks from the above and does it"),
        command(
            &format!("export {OBJECT_VARIABLE}=/path/to/proxy-ebpf"),
            "an object built elsewhere",
        ),
    ]);
    lines.join("\n")
}

fn compiler_cures(rejected: &[Rejected]) -> Vec<String> {
    let mut lines = vec![
        "no Rust compiler with `core` for bpfel-unknown-none, prebuilt or as rust-src:".to_owned(),
    ];
    lines.extend(
        rejected
            .iter()
            .map(|Rejected { rustc, reason }| format!("    {}: {reason}", rustc.display())),
    );
    lines.extend([
        "  any of these cures it:".to_owned(),
        command("rustup component add rust-src", "for the active toolchain"),
        command(
            "apt-get install rustc-web libstd-rust-web-dev-bpf",
            "Debian, as root",
        ),
        command(
            &format!("export {}=/path/to/rustc", compiler::CHOSEN_COMPILER),
            "a compiler elsewhere",
        ),
    ]);
    lines
}

fn linker_cures(llvm: u32) -> Vec<String> {
    let (variable, prefix) = linker::install_prefix(llvm);
    let packages = linker::build_packages(llvm).join(" ");
    let install = linker::install_arguments(llvm).join(" ");
    vec![
        "no bpf-linker in PATH or in cargo's bin directory".to_owned(),
        "  either of these cures it:".to_owned(),
        command(
            "cargo install cargo-binstall && cargo binstall bpf-linker",
            "prebuilt, LLVM inside",
        ),
        command(&format!("apt-get install {packages}"), "as root, and then"),
        format!("    {variable}={prefix} cargo {install}"),
    ]
}

/// A command to type, and a remark that does not hinder pasting it.
fn command(text: &str, remark: &str) -> String {
    format!("    {text:<58}  # {remark}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ebpf::Core;

    fn rejected() -> Vec<Rejected> {
        vec![Rejected {
            rustc: "/usr/bin/rustc".into(),
            reason: "1.63.0 is older than 1.95".to_owned(),
        }]
    }

    fn assert_names(text: &str, expected: &[&str]) {
        for part in expected {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }

    #[test]
    fn an_empty_machine_is_told_every_cure_at_once() {
        let text = explain(&Err(rejected()), None);
        assert_names(
            &text,
            &[
                "/usr/bin/rustc: 1.63.0 is older than 1.95",
                "rustup component add rust-src",
                "apt-get install rustc-web libstd-rust-web-dev-bpf",
                "export PROXY_BPF_RUSTC=",
                "cargo binstall bpf-linker",
                "LLVM_PREFIX=/usr/lib/llvm-22 cargo install bpf-linker --version",
                "cargo xtask setup",
                "export PROXY_EBPF_OBJECT=",
            ],
        );
    }

    #[test]
    fn a_linker_to_install_matches_the_compiler_that_is_there() {
        let rustc = "/usr/bin/rustc".into();
        let compiler = Compiler {
            rustc,
            release: "1.99.0".to_owned(),
            llvm: 23,
            core: Core::Source,
        };
        let text = explain(&Ok(compiler), None);
        assert_names(&text, &["llvm-23-dev", "--features llvm-23"]);
        assert!(
            !text.contains("rust-src"),
            "the compiler is not at fault:\n{text}"
        );
    }
}
