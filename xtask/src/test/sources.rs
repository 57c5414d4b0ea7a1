//! Where this machine has its Debian packages from.

use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process::output;

const FORMAT: &str = "$(ORIGIN) $(COMPONENT) $(CODENAME) $(REPO_URI) $(RELEASE)";

pub(super) struct Sources {
    pub(super) release: String,
    pub(super) mirror: String,
    /// Where security updates come from, if from anywhere.
    pub(super) security: Option<String>,
    /// A `sources.list` with Debian's own archives.
    pub(super) list: String,
    /// Settings without which they may not be reached from here.
    pub(super) settings: String,
}

impl Sources {
    pub(super) fn of_this_machine() -> Result<Self> {
        let mut targets = Command::new("apt-get");
        targets.args(["indextargets", "--format", FORMAT, "Created-By: Packages"]);
        let mut settings = Command::new("apt-config");
        settings.args(["dump", "Acquire"]);
        Self::read(&output(&mut targets)?, &output(&mut settings)?)
            .context("apt has no package list of Debian's main archive: run apt-get update")
    }

    fn read(targets: &str, settings: &str) -> Option<Self> {
        let mut archives = Vec::new();
        for target in targets.lines() {
            if let ["Debian", "main", codename, address, release] =
                *target.split(' ').collect::<Vec<_>>()
            {
                archives.push((codename, address, release));
            }
        }
        // The others are named after it, as its updates are.
        let &(release, mirror, _) = archives
            .iter()
            .min_by_key(|(codename, ..)| codename.len())?;
        let security = archives
            .iter()
            .find(|(codename, ..)| codename.ends_with("-security"));
        let lines = archives
            .iter()
            .map(|(_, address, release)| format!("deb {address} {release} main"));
        let matters =
            |line: &&str| line.starts_with("Acquire::Check-") || line.contains("::Proxy ");
        let settings: Vec<_> = settings.lines().filter(matters).collect();
        Some(Self {
            release: release.to_owned(),
            mirror: mirror.to_owned(),
            security: security.map(|(_, address, _)| (*address).to_owned()),
            list: lines.collect::<Vec<_>>().join("\n") + "\n",
            settings: settings.join("\n") + "\n",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &str = "Debian main bookworm-updates http://deb.test/debian/ bookworm-updates\n\
                           Debian main bookworm http://deb.test/debian/ bookworm\n\
                           Debian main bookworm-security http://deb.test/safe/ bookworm-security\n\
                           Debian contrib bookworm http://deb.test/debian/ bookworm\n\
                           Node stable nodistro http://node.test/ nodistro\n";

    #[test]
    fn only_debians_own_main_archives_are_taken_over() {
        let sources = Sources::read(TARGETS, "").expect("Debian is there");
        assert_eq!(
            (
                "bookworm",
                "http://deb.test/debian/",
                Some("http://deb.test/safe/")
            ),
            (
                sources.release.as_str(),
                sources.mirror.as_str(),
                sources.security.as_deref()
            )
        );
        let expected = "deb http://deb.test/debian/ bookworm-updates main\n\
                        deb http://deb.test/debian/ bookworm main\n\
                        deb http://deb.test/safe/ bookworm-security main\n";
        assert_eq!(expected, sources.list);
    }

    #[test]
    fn only_settings_that_decide_on_reaching_them_are_taken_over() {
        let settings = "Acquire \"\";\nAcquire::Check-Date \"false\";\nAcquire::http::Proxy \"http://proxy.test\";\n";
        let expected =
            "Acquire::Check-Date \"false\";\nAcquire::http::Proxy \"http://proxy.test\";\n";
        assert_eq!(
            expected,
            Sources::read(TARGETS, settings)
                .expect("Debian is there")
                .settings
        );
    }

    #[test]
    fn a_machine_without_debian_is_told_so() {
        assert!(Sources::read("Node stable nodistro http://node.test/ nodistro\n", "").is_none());
    }
}
