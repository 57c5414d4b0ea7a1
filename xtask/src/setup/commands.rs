//! The programs that tests and the demonstration call.

use anyhow::{Context as _, Result, ensure};

use super::{apt, host::Host};
use crate::process;

/// Program and the Debian package that has it; programs of one package stand together.
pub(super) const NEEDED: [(&str, &str); 9] = [
    ("conntrack", "conntrack"),
    ("ethtool", "ethtool"),
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("iptables", "iptables"),
    ("modprobe", "kmod"),
    ("nft", "nftables"),
    ("ping", "iputils-ping"),
    ("sysctl", "procps"),
];

/// Installs the packages of those programs that are not here.
pub(crate) fn ensure(host: &mut Host, needed: &[(&str, &'static str)]) -> Result<()> {
    let is_here = |program: &str| process::find(program).is_some();
    let absent = missing(needed, is_here);
    if absent.is_empty() {
        return Ok(());
    }
    Host::say(&format!("not here: {}", listed(&absent)));
    apt::install(host, &packages_of(&absent))
        .with_context(|| format!("cannot install {}", listed(&absent)))?;
    let absent = missing(needed, is_here);
    ensure!(
        host.is_dry_run() || absent.is_empty(),
        "still not here, though their packages are: {}",
        listed(&absent)
    );
    Ok(())
}

fn listed(needed: &[(&str, &str)]) -> String {
    needed
        .iter()
        .map(|(program, _)| *program)
        .collect::<Vec<_>>()
        .join(", ")
}

fn packages_of(missing: &[(&str, &'static str)]) -> Vec<&'static str> {
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    packages
}

fn missing<'n>(
    needed: &[(&'n str, &'static str)],
    is_here: impl Fn(&str) -> bool,
) -> Vec<(&'n str, &'static str)> {
    needed
        .iter()
        .copied()
        .filter(|(program, _)| !is_here(program))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_wanted() {
        let found = missing(&NEEDED, |program| program != "nft" && program != "ip");
        assert_eq!(vec![("ip", "iproute2"), ("nft", "nftables")], found);
    }

    #[test]
    fn no_package_is_named_twice() {
        let mut packages = packages_of(&NEEDED);
        let named = packages.len();
        packages.sort_unstable();
        packages.dedup();
        assert_eq!(packages.len(), named);
    }
}
