//! Debian's newest kernel of a release, whatever this machine runs itself.
//!
//! apt does the work, with lists and folders of its own, so that the machine's stay as they are;
//! Debian's keys vouch for what it fetches.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use super::cache::Folder;
use crate::process::{output, run};
use crate::test::sources::Sources;

/// Depends on the newest kernel of its suite; its kernels are made for virtual machines, and small.
const NEWEST: &str = "linux-image-cloud-amd64";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Addresses of a mirror of `debian`, and of one of `debian-security` if it has it, for machines
/// that have their own packages from elsewhere.
const MIRROR: &str = "KUBE_LOTTERY_DEBIAN_MIRROR";

/// A Debian release.
pub(super) struct Suite {
    pub(super) name: &'static str,
    /// The version that its kernels have, as far as it does not change.
    pub(super) version: &'static str,
    pub(super) network: Network,
}

/// When a kernel has tests over real sockets.
#[derive(Clone, Copy)]
pub(super) enum Network {
    Always,
    /// In the long form.
    Long,
    Never,
}

/// A kernel on this machine.
pub(super) struct Kernel {
    pub(super) suite: &'static str,
    pub(super) package: String,
    /// The version of the package, which is the kernel's own with a number behind it.
    pub(super) release: String,
    /// The kernel.
    pub(super) image: PathBuf,
    /// The directory with its modules.
    pub(super) modules: PathBuf,
}

impl Suite {
    pub(super) const fn new(name: &'static str, version: &'static str, network: Network) -> Self {
        Self {
            name,
            version,
            network,
        }
    }

    /// The newest kernel, from the cache if it is there.
    pub(super) fn newest(&self) -> Result<Kernel> {
        let folder = Folder::lock(self.name)?;
        let apt = Apt::new(&folder, self)?;
        apt.refresh(&folder)?;
        let package = apt.newest()?;
        let release = apt.version(&package)?;
        ensure!(
            release.starts_with(&format!("{}.", self.version)),
            "{package} of {} is {release}, not {}",
            self.name,
            self.version
        );
        let tree = folder.path().join(format!("{package}_{release}"));
        if !tree.exists() {
            println!("fetching {package} {release} from Debian {}", self.name);
            remove_others(&folder)?;
            apt.unpack(&package, &tree)?;
        }
        self.kernel(package, release, &tree)
    }

    fn kernel(&self, package: String, release: String, tree: &Path) -> Result<Kernel> {
        let name = package
            .strip_prefix("linux-image-")
            .context("a kernel's package is called linux-image")?;
        let modules = modules_below(tree)?.join(name);
        Ok(Kernel {
            suite: self.name,
            image: tree.join("boot").join(format!("vmlinuz-{name}")),
            modules,
            package,
            release,
        })
    }
}

/// `lib/modules` of an unpacked package, wherever the release has `lib`.
fn modules_below(tree: &Path) -> Result<PathBuf> {
    ["lib/modules", "usr/lib/modules"]
        .into_iter()
        .map(|place| tree.join(place))
        .find(|path| path.is_dir())
        .context("the package has no modules")
}

/// Kernels that are not the newest any more.
fn remove_others(folder: &Folder) -> Result<()> {
    for entry in fs::read_dir(folder.path()).context("cannot read the cache")? {
        let path = entry.context("cannot read the cache")?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("linux-image-") {
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Where this machine gets Debian's packages: the archive, then its security updates.
fn mirrors() -> Result<Vec<String>> {
    if let Ok(set) = std::env::var(MIRROR) {
        return Ok(set.split_whitespace().map(str::to_owned).collect());
    }
    let sources = Sources::of_this_machine()
        .with_context(|| format!("no mirror of Debian is known here (set {MIRROR})"))?;
    Ok([sources.mirror]
        .into_iter()
        .chain(sources.security)
        .collect())
}

/// A `sources.list` with one suite.
fn list(suite: &str, mirrors: &[String]) -> String {
    let suites = [suite.to_owned(), format!("{suite}-security")];
    let lines: Vec<String> = mirrors
        .iter()
        .zip(suites)
        .map(|(mirror, suite)| format!("deb [signed-by={KEYS}] {mirror} {suite} main\n"))
        .collect();
    lines.concat()
}

/// apt, with one suite as its only source.
struct Apt {
    options: Vec<String>,
    folder: PathBuf,
}

impl Apt {
    fn new(folder: &Folder, suite: &Suite) -> Result<Self> {
        ensure!(
            Path::new(KEYS).exists(),
            "{KEYS} is not here: install debian-archive-keyring"
        );
        let folder = folder.path().to_owned();
        let path = |name: &str| folder.join(name).display().to_string();
        for directory in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(path(directory)).context("cannot write to the cache")?;
        }
        fs::write(path("sources.list"), list(suite.name, &mirrors()?))
            .context("cannot write to the cache")?;
        let options = [
            format!("Dir::Etc::SourceList={}", path("sources.list")),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            format!("Dir::State::Lists={}", path("lists")),
            format!("Dir::Cache={folder}", folder = folder.display()),
            // What is installed here does not matter.
            "Dir::State::status=/dev/null".to_owned(),
            "APT::Architecture=amd64".to_owned(),
            "APT::Architectures=amd64".to_owned(),
            // Packages only, in their own language.
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "Acquire::Retries=3".to_owned(),
            // As root it would read as another user, which may not see this folder.
            "APT::Sandbox::User=root".to_owned(),
        ];
        Ok(Self {
            options: options.into(),
            folder,
        })
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        command
    }

    /// Asks the mirror what it has, unless that is known.
    fn refresh(&self, folder: &Folder) -> Result<()> {
        if folder.is_fresh() {
            return Ok(());
        }
        // apt takes an unreachable mirror for a warning, unless told.
        let strict = ["-qq", "--error-on=any", "update"];
        match output(&mut self.command("apt-get", &strict)) {
            Ok(_) => folder.set_fresh(),
            Err(error) if folder.was_ever_asked() => {
                println!("what Debian has was last asked days ago: {error:#}");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The package that has the newest kernel.
    fn newest(&self) -> Result<String> {
        let depends = output(&mut self.command("apt-cache", &["depends", NEWEST]))?;
        dependency_in(&depends)
            .map(str::to_owned)
            .with_context(|| format!("{NEWEST} depends on no kernel"))
    }

    fn version(&self, package: &str) -> Result<String> {
        let shown = self.command("apt-cache", &["show", "--no-all-versions", package]);
        let mut shown = shown;
        output(&mut shown)?
            .lines()
            .find_map(|line| line.strip_prefix("Version: "))
            .map(str::to_owned)
            .with_context(|| format!("{package} has no version"))
    }

    /// Fetches a package and makes `tree` of it, modules ready to be loaded.
    fn unpack(&self, package: &str, tree: &Path) -> Result<()> {
        let unready = self.folder.join("unready");
        if unready.exists() {
            fs::remove_dir_all(&unready).context("cannot remove what a killed run has left")?;
        }
        fs::create_dir_all(&unready).context("cannot write to the cache")?;
        run(self
            .command("apt-get", &["-qq", "download", package])
            .current_dir(&unready))?;
        let file = only_file_in(&unready)?;
        run(Command::new("dpkg-deb")
            .arg("--extract")
            .arg(&file)
            .arg(&unready))?;
        fs::remove_file(&file).context("cannot remove the package")?;
        super::modules::make_loadable(&modules_below(&unready)?)?;
        fs::rename(&unready, tree).context("cannot name what was unpacked")
    }
}

fn only_file_in(folder: &Path) -> Result<PathBuf> {
    let mut files = fs::read_dir(folder)
        .context("cannot read the cache")?
        .flatten();
    match (files.next(), files.next()) {
        (Some(file), None) => Ok(file.path()),
        _ => bail!("apt-get has not fetched one package"),
    }
}

/// The kernel among what a package depends on, as apt-cache tells it.
fn dependency_in(depends: &str) -> Option<&str> {
    depends.lines().find_map(|line| {
        let package = line.trim().strip_prefix("Depends: ")?;
        package.starts_with("linux-image-").then_some(package)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn security_updates_come_from_a_mirror_of_their_own() {
        let mirrors = ["http://a.test/".to_owned(), "http://b.test/".to_owned()];
        let expected = format!(
            "deb [signed-by={KEYS}] http://a.test/ bookworm main\n\
             deb [signed-by={KEYS}] http://b.test/ bookworm-security main\n"
        );
        assert_eq!(expected, list("bookworm", &mirrors));
    }

    #[test]
    fn the_kernel_is_found_among_the_dependencies() {
        let depends = "linux-image-cloud-amd64\n  Depends: linux-image-5.10.0-46-cloud-amd64\n";
        assert_eq!(
            Some("linux-image-5.10.0-46-cloud-amd64"),
            dependency_in(depends)
        );
        assert_eq!(
            None,
            dependency_in("linux-image-cloud-amd64\n  Depends: kmod\n")
        );
    }
}
