//! The one error for a machine that cannot build the eBPF programs yet.

use super::OBJECT_VARIABLE;
use super::compiler::{self, Compiler, Rejected};
use super::linker::{self, Linker};

/// Assumed where no compiler tells: the LLVM of the oldest rustc that the workspace accepts.
const USUAL_LLVM: u32 = 22;

/// What is missing, what was tried, and every way out.
pub(super) fn explain(
    compiler: &Result<Compiler, Vec<Rejected>>,
    linker: Option<&Linker>,
) -> String {
    let mut text = String::from("the eBPF programs cannot be built on this machine yet\n");
    if let Err(rejected) = compiler {
        text += "\nno Rust compiler with `core` for bpfel-unknown-none, prebuilt or as rust-src:\n";
        for Rejected { rustc, reason } in rejected {
            text += &format!("    {}: {reason}\n", rustc.display());
        }
        text += "  either of these cures it:\n    \
                 rustup component add rust-src --toolchain stable\n    \
                 apt-get install rustc-web libstd-rust-web-dev-bpf      # Debian, as root\n";
        text += &format!(
            "    export {}=/path/to/rustc           # a compiler elsewhere\n",
            compiler::VARIABLE
        );
    }
    if linker.is_none() {
        let llvm = compiler
            .as_ref()
            .map_or(USUAL_LLVM, |compiler| compiler.llvm);
        text += "\nno bpf-linker in PATH or in cargo's bin directory; either of these cures it:\n    \
                 cargo binstall bpf-linker                              # prebuilt, LLVM inside\n    ";
        text += &from_source(llvm);
    } else if let Some(llvm) = linker
        .and_then(|linker| linker.llvm)
        .filter(|_| compiler.is_err())
    {
        text += &format!("\nbpf-linker is here, for compilers up to LLVM {llvm}\n");
    }
    text += "\neither of these cures all of it:\n    \
             cargo xtask setup                                      # picks from the above and does it\n";
    text += &format!(
        "    export {OBJECT_VARIABLE}=/path/to/proxy-ebpf     # an object built elsewhere\n"
    );
    text
}

fn from_source(llvm: u32) -> String {
    let (variable, prefix) = linker::install_prefix(llvm);
    format!(
        "apt-get install g++ llvm-{llvm}-dev libpolly-{llvm}-dev zlib1g-dev   # as root, and then\n    \
         {variable}={prefix} cargo {}\n",
        linker::install_arguments(llvm).join(" ")
    )
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
                "rustup component add rust-src --toolchain stable",
                "apt-get install rustc-web libstd-rust-web-dev-bpf",
                "export PROXY_BPF_RUSTC=",
                "cargo binstall bpf-linker",
                "LLVM_SYS_221_PREFIX=/usr/lib/llvm-22 cargo install bpf-linker --version",
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

    #[test]
    fn a_linker_that_is_too_old_is_named_beside_the_compilers_it_excludes() {
        let linker = Linker {
            path: "/bin/bpf-linker".into(),
            llvm: Some(21),
        };
        assert_names(
            &explain(&Err(rejected()), Some(&linker)),
            &["bpf-linker is here, for compilers up to LLVM 21"],
        );
    }
}
