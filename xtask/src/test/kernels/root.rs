//! The root directory of an emulated machine: a shell, the tests, and the first process.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use super::archive::Archive;
use super::debian::Kernel;
use super::machine::{BOOTED, ENDED};
use super::{modules, programs};

/// The same for all kernels, but for their modules.
pub(super) struct Root {
    archive: Archive,
}

const TESTS: &str = "/bin/tests";

impl Root {
    pub(super) fn new(tests: &Path, arguments: &[String], long: bool) -> Result<Self> {
        let mut archive = Archive::default();
        for directory in ["/dev", "/proc", "/run", "/sys", "/tmp"] {
            archive.directory(directory);
        }
        programs::add(&mut archive, "busybox", "/bin/busybox")?;
        // It knows more than the shell's own, and is found first.
        programs::add(&mut archive, "ip", "/sbin/ip")?;
        // Where the kernel looks for it.
        programs::add(&mut archive, "modprobe", "/sbin/modprobe")?;
        programs::add(&mut archive, "ip", "/sbin/ip")?;
        programs::add_stripped(&mut archive, tests, TESTS)?;
        archive.file("/init", init(arguments, long).as_bytes());
        Ok(Self { archive })
    }

    /// The archive for one kernel.
    pub(super) fn with_modules_of(&self, kernel: &Kernel) -> Result<Vec<u8>> {
        let mut archive = self.archive.clone();
        modules::add(&mut archive, kernel)?;
        Ok(archive.finish())
    }
}

/// The first process. Its last act is to turn the machine off; should it end by itself, the kernel
/// does so.
fn init(arguments: &[String], long: bool) -> String {
    let mut script = format!(
        "#!/bin/busybox sh
export PATH=/sbin:/bin
set -e
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
echo {BOOTED} $(cut -d' ' -f1 /proc/uptime)
set +e
# Until 5.11, maps are counted against this limit.
ulimit -l unlimited
export KUBE_LOTTERY_RINGS=required KUBE_LOTTERY_EMULATED=1
"
    );
    if long {
        script += "export KUBE_LOTTERY_LONG=1\n";
    }
    // The kernel's own words would cut the tests' in two.
    script += "dmesg -n 1\n";
    let proof = modules::PROOF.join(" ");
    writeln!(
        script,
        "modprobe -a {proof} && {TESTS}{}",
        quoted(arguments)
    )
    .expect("a string takes everything");
    writeln!(
        script,
        "echo {ENDED} $? $(cut -d' ' -f1 /proc/uptime)\npoweroff -f"
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
        let script = init(&["--skip=a".to_owned(), "it's $one".to_owned()], false);
        assert!(
            script.contains(r"/bin/tests '--skip=a' 'it'\''s $one'"),
            "{script}"
        );
        assert!(!script.contains("KUBE_LOTTERY_LONG"));
        assert!(init(&[], true).contains("KUBE_LOTTERY_LONG=1"));
    }
}
