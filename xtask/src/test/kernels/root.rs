//! The root directory of an emulated machine: a shell, the tests, and the first process.

use std::fmt::Write as _;

use anyhow::Result;

use super::archive::Archive;
use super::debian::Kernel;
use super::machine::{BOOTED, ENDED};
use super::selected::Tests;
use super::{modules, programs};

/// What clusters of network namespaces are made with and looked into.
const TOOLS: [&str; 6] = ["bridge", "conntrack", "ethtool", "nft", "nsenter", "tc"];

/// Everything in it but the modules, which are the kernel's.
pub(super) fn with_modules_of(kernel: &Kernel, tests: &[Tests], long: bool) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for directory in ["/dev", "/proc", "/run", "/sys", "/tmp"] {
        archive.directory(directory);
    }
    programs::add(&mut archive, "busybox", "/bin/busybox")?;
    // It knows more than the shell's own, and is found first.
    programs::add(&mut archive, "ip", "/sbin/ip")?;
    // Where the kernel looks for it.
    programs::add(&mut archive, "modprobe", "/sbin/modprobe")?;
    if tests.iter().any(|tests| tests.proxy.is_some()) {
        for tool in TOOLS {
            programs::add(&mut archive, tool, &format!("/sbin/{tool}"))?;
        }
    }
    for Tests {
        file, path, proxy, ..
    } in tests
    {
        programs::add_stripped(&mut archive, file, path)?;
        if let Some(proxy) = proxy {
            // Where the tests were told that it is.
            programs::add_stripped(&mut archive, proxy, &proxy.display().to_string())?;
        }
    }
    archive.file("/init", init(tests, long).as_bytes());
    modules::add(&mut archive, kernel)?;
    Ok(archive.finish())
}

/// The first process. Its last act is to turn the machine off; should it end by itself, the kernel
/// does so.
fn init(tests: &[Tests], long: bool) -> String {
    let mut script = format!(
        "#!/bin/busybox sh
export PATH=/sbin:/bin
set -e
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs run /run
ip link set lo up
echo {BOOTED} $(cut -d' ' -f1 /proc/uptime)
# The kernel's own words would cut the tests' in two.
dmesg -n 1
set +e
# Until 5.11, maps are counted against this limit.
ulimit -l unlimited
export KUBE_LOTTERY_RINGS=required KUBE_LOTTERY_EMULATED=1{}
failed=0
modprobe -a {} || failed=1
",
        if long { " KUBE_LOTTERY_LONG=1" } else { "" },
        modules::PROOF.join(" "),
    );
    for Tests {
        path, arguments, ..
    } in tests
    {
        writeln!(script, "{path}{} || failed=1", quoted(arguments))
            .expect("a string takes everything");
    }
    writeln!(
        script,
        "echo {ENDED} $failed $(cut -d' ' -f1 /proc/uptime)\npoweroff -f"
    )
    .expect("a string takes everything");
    script
}

fn quoted(arguments: &[String]) -> String {
    let quote = |argument: &String| format!(" '{}'", argument.replace('\'', r"'\''"));
    arguments.iter().map(quote).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_reaches_the_tests_as_one_word() {
        let tests = Tests {
            file: "/build/kernel-1".into(),
            path: "/bin/kernel",
            arguments: vec!["--skip=a".to_owned(), "it's $one".to_owned()],
            proxy: None,
        };
        let script = init(&[tests], false);
        assert!(
            script.contains(r"/bin/kernel '--skip=a' 'it'\''s $one' || failed=1"),
            "{script}"
        );
        assert!(!script.contains("KUBE_LOTTERY_LONG"));
        assert!(init(&[], true).contains("KUBE_LOTTERY_LONG=1"));
    }
}
