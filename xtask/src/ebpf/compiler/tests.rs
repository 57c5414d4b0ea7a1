use super::*;
use crate::ebpf::scratch::Scratch;

const VERSION: &str = "rustc 1.96.0 (abc 2026-05-25)\nrelease: 1.96.0\nLLVM version: 22.1.8\n";

fn qualify(version: &str, sysroot: &Scratch) -> Result<Compiler, String> {
    Compiler::qualify(Path::new("/usr/bin/rustc"), version, sysroot.path(), None)
}

#[test]
fn a_prebuilt_core_qualifies() {
    let sysroot = Scratch::new("prebuilt");
    sysroot.file("lib/rustlib/bpfel-unknown-none/lib/libcore-01.rlib");
    let found = qualify(VERSION, &sysroot).expect("qualifies");
    assert_eq!(
        (Core::Prebuilt, 22, "1.96.0"),
        (found.core, found.llvm, found.release.as_str())
    );
}

#[test]
fn rust_src_qualifies() {
    let sysroot = Scratch::new("rust-src");
    sysroot.file("lib/rustlib/src/rust/library/core/Cargo.toml");
    assert_eq!(
        Ok(Core::Source),
        qualify(VERSION, &sysroot).map(|found| found.core)
    );
}

#[test]
fn a_prebuilt_core_is_preferred_to_rust_src() {
    let sysroot = Scratch::new("both");
    sysroot.file("lib/rustlib/bpfel-unknown-none/lib/libcore-01.rlib");
    sysroot.file("lib/rustlib/src/rust/library/core/Cargo.toml");
    assert_eq!(
        Ok(Core::Prebuilt),
        qualify(VERSION, &sysroot).map(|found| found.core)
    );
}

#[test]
fn an_empty_target_directory_does_not_qualify() {
    let sysroot = Scratch::new("empty");
    sysroot.file("lib/rustlib/bpfel-unknown-none/lib/README");
    let reason = qualify(VERSION, &sysroot).expect_err("nothing to link with");
    assert_eq!(
        "1.96.0 has neither a prebuilt core for BPF nor rust-src",
        reason
    );
}

#[test]
fn a_compiler_older_than_the_workspace_wants_does_not_qualify() {
    let sysroot = Scratch::new("old");
    sysroot.file("lib/rustlib/bpfel-unknown-none/lib/libcore-01.rlib");
    let reason = qualify("release: 1.63.0\nLLVM version: 14.0.6\n", &sysroot).expect_err("too old");
    assert_eq!(format!("1.63.0 is older than {OLDEST}"), reason);
}

#[test]
fn a_compiler_newer_than_the_linker_does_not_qualify() {
    let sysroot = Scratch::new("newer");
    sysroot.file("lib/rustlib/src/rust/library/core/Cargo.toml");
    let nightly = "release: 1.99.0-nightly\nLLVM version: 23.1.0\n";
    let with = |llvm| {
        let linker = Linker {
            path: "/bin/bpf-linker".into(),
            llvm,
        };
        Compiler::qualify(Path::new("rustc"), nightly, sysroot.path(), Some(&linker))
    };
    let reason = "1.99.0-nightly writes bitcode of LLVM 23, too new for bpf-linker (/bin/bpf-linker, LLVM 22)";
    assert_eq!(Err(reason.to_owned()), with(Some(22)));
    assert!(with(Some(23)).is_ok() && with(None).is_ok());
}

#[test]
fn the_executable_in_the_sysroot_stands_for_its_proxy() {
    let sysroot = Scratch::new("proxy");
    sysroot.file("lib/rustlib/src/rust/library/core/Cargo.toml");
    sysroot.file("bin/rustc");
    assert_eq!(
        Ok(sysroot.path().join("bin/rustc")),
        qualify(VERSION, &sysroot).map(|found| found.rustc)
    );
}

#[test]
fn candidates_come_in_the_documented_order() {
    let machine = Scratch::new("order");
    for file in [
        "rustup/toolchains/nightly-x/bin/rustc",
        "rustup/toolchains/stable-x/bin/rustc",
        "bin/rustc",
    ] {
        machine.file(file);
    }
    let at = |path: &str| machine.path().join(path);
    let places = Places {
        chosen: None,
        active: "rustc".into(),
        rustup_home: Some(at("rustup")),
        search_path: vec![at("bin"), at("sbin")],
    };
    let expected = [
        PathBuf::from("rustc"),
        at("rustup/toolchains/stable-x/bin/rustc"),
        at("rustup/toolchains/nightly-x/bin/rustc"),
        at("bin/rustc"),
    ];
    assert_eq!(expected, places.candidates()[..4]);
}

#[test]
fn a_chosen_compiler_is_the_only_candidate() {
    let places = Places {
        chosen: Some("/opt/rustc".into()),
        active: "rustc".into(),
        ..Places::default()
    };
    assert_eq!(vec![PathBuf::from("/opt/rustc")], places.candidates());
}
