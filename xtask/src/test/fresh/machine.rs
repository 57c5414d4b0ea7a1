//! A Debian root directory with rustup in it, entered through namespaces that end with the command.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use xtask::ebpf::workspace_root;

use crate::privilege;
use crate::process::{find, output, run};
use crate::test::sources::Sources;

/// All that a user has before the first command of the README.
const PACKAGES: &str = "ca-certificates,curl,gcc,git,libc6-dev";

/// Mounts what a machine has, then becomes it. The mounts are private to this process and its
/// children, and the kernel takes them back with the last of them, however that ends.
const ENTER: &str = r#"
set -e
root=$1
# ip(8) asks for a root directory that is a mount of its own.
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
for dir in dev sys; do
    mount --rbind "/$dir" "$root/$dir"
    mount --make-rslave "$root/$dir"
done
mount -t bpf bpf "$root/sys/fs/bpf"
exec chroot "$root" sh -c "cd /root && $2"
"#;

/// The names under which rustup calls the active toolchain.
const PROXIES: &str = "cargo cargo-clippy cargo-fmt clippy-driver rustc rustdoc rustfmt";

/// Settings of this machine's network that the new one shares.
const PASSED_ON: [&str; 6] = [
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

pub(super) struct Machine {
    root: PathBuf,
}

impl Machine {
    /// Removes what a killed run may have left, and makes a new one.
    pub(super) fn new() -> Result<Self> {
        let machine = Self {
            root: workspace_root().join("target/fresh"),
        };
        machine.remove()?;
        machine.install().context("cannot make the new machine")?;
        Ok(machine)
    }

    fn install(&self) -> Result<()> {
        let sources = Sources::of_this_machine()?;
        println!("debootstrap {} with {PACKAGES}", sources.release);
        let mut debootstrap = privilege::as_root("debootstrap", &[]);
        debootstrap
            .arg("--variant=minbase")
            .arg(format!("--include={PACKAGES}"));
        debootstrap
            .arg(&sources.release)
            .arg(&self.root)
            .arg(&sources.mirror);
        // Some hundred lines about packages; its errors come by the other stream.
        run(debootstrap.stdout(Stdio::null()))?;
        self.write(&sources.list, "etc/apt/sources.list")?;
        self.write(&sources.settings, "etc/apt/apt.conf.d/99host")?;
        for file in [
            "etc/resolv.conf",
            "etc/hosts",
            "etc/ssl/certs/ca-certificates.crt",
        ] {
            let host = Path::new("/").join(file);
            if host.exists() {
                self.copy(&host, file)?;
            }
        }
        self.install_rustup()
    }

    /// Copies the active toolchain and rustup, as its installer would have put them there.
    fn install_rustup(&self) -> Result<()> {
        let rustup = find("rustup")
            .context("this ring needs rustup, to give a copy of it to the new machine")?;
        let mut rustc = Command::new("rustc");
        rustc.args(["--print", "sysroot"]);
        let sysroot = output(&mut rustc)?;
        let sysroot = Path::new(sysroot.trim());
        let name = sysroot
            .file_name()
            .context("the toolchain has no name")?
            .display();
        let toolchain = format!("root/.rustup/toolchains/{name}");
        run(privilege::as_root("mkdir", &[]).arg("-p").args([
            self.root.join(&toolchain),
            self.root.join("root/.cargo/bin"),
        ]))?;
        // Without `share`, half a gigabyte of manuals.
        for directory in ["bin", "lib"] {
            self.copy(sysroot.join(directory), &format!("{toolchain}/{directory}"))?;
        }
        self.copy(rustup, "root/.cargo/bin/rustup")?;
        let settings =
            format!("version = \"12\"\ndefault_toolchain = \"{name}\"\nprofile = \"minimal\"\n");
        self.write(&settings, "root/.rustup/settings.toml")?;
        let script = format!(
            "cd .cargo/bin && for tool in {PROXIES}; do ln -s rustup $tool; done && cargo --version\n\
             rustup --quiet component remove rust-src 2>/dev/null || true"
        );
        run(&mut self.command(&script))
    }

    /// A shell script on the new machine, in root's home.
    pub(super) fn command(&self, script: &str) -> Command {
        let mut variables: Vec<(&str, String)> = PASSED_ON
            .iter()
            .filter_map(|&name| Some((name, env::var(name).ok()?)))
            .collect();
        variables.extend([
            ("HOME", "/root".to_owned()),
            ("LANG", "C.UTF-8".to_owned()),
            (
                "PATH",
                "/root/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
                    .to_owned(),
            ),
            (
                "TERM",
                env::var("TERM").unwrap_or_else(|_| "dumb".to_owned()),
            ),
        ]);
        let mut command = privilege::as_root("env", &[]);
        command.arg("-i").args(
            variables
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        command.args([
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            ENTER,
            "enter",
        ]);
        command.arg(&self.root).arg(script).stdin(Stdio::null());
        command
    }

    /// Copies from this machine to `to`, relative to the new one's root.
    pub(super) fn copy(&self, from: impl AsRef<OsStr>, to: &str) -> Result<()> {
        let mut copy = privilege::as_root("cp", &[]);
        // Of a link, what it points to: the new machine has nothing else.
        run(copy
            .args(["--recursive", "--dereference", "--preserve=mode"])
            .arg(from)
            .arg(self.root.join(to)))
    }

    fn write(&self, text: &str, to: &str) -> Result<()> {
        let file = workspace_root().join("target/fresh.file");
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        self.copy(&file, to)
    }

    pub(super) fn remove(&self) -> Result<()> {
        let mut remove = privilege::as_root("rm", &[]);
        run(remove
            .args(["--recursive", "--force", "--one-file-system"])
            .arg(&self.root))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            println!("error: {error:#}");
        }
    }
}
