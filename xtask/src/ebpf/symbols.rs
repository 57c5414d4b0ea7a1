//! The panic check: a program that can reach a panic is refused by the verifier, with a message
//! that names no line. Its symbols name it here, at build time.

use anyhow::{Context as _, Result, bail};
use object::{Object as _, ObjectSymbol as _, SymbolKind};

/// Fails if a function of the object is part of the panic machinery.
pub(super) fn refuse_panics(object: &[u8]) -> Result<()> {
    let object = object::File::parse(object).context("not an ELF object")?;
    let functions = object
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text);
    let names: Vec<_> = functions.filter_map(|symbol| symbol.name().ok()).collect();
    refuse(&names)
}

fn refuse(functions: &[&str]) -> Result<()> {
    let panics: Vec<_> = functions
        .iter()
        .copied()
        .filter(|name| name.contains("panicking"))
        .collect();
    if panics.is_empty() {
        return Ok(());
    }
    bail!(
        "the eBPF programs can panic, so the kernel would refuse them:\n  {}\n\
         look for indexing, slicing, division by a variable, unwrap and expect in what changed last",
        panics.join("\n  ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_functions_pass() {
        refuse(&[
            "tc_ingress",
            "_ZN12proxy_common8datapath7ingress17h0E",
            "memset",
        ])
        .expect("no panic");
    }

    #[test]
    fn a_panic_path_is_refused_by_name() {
        let legacy = "_ZN4core9panicking18panic_bounds_check17h8f1dE";
        let v0 = "_RNvNtCs1_4core9panicking11panic_const";
        let error = refuse(&["tc_ingress", legacy, v0])
            .expect_err("two panic paths")
            .to_string();
        assert!(
            error.contains(legacy) && error.contains(v0) && !error.contains("tc_ingress"),
            "{error}"
        );
    }

    #[test]
    fn this_very_test_has_panic_paths() {
        let executable = std::fs::read(std::env::current_exe().expect("known")).expect("readable");
        refuse_panics(&executable).expect_err("its assertions panic");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        refuse_panics(b"not an object").expect_err("no ELF header");
    }
}
