//! The rings, innermost first: a bug gets its test in the first one that can show it.

use std::fmt;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ring {
    /// Format and lints.
    Lint,
    /// Pure tests, as the user.
    Host,
    /// The kernel runs single programs.
    Kernel,
    /// Other kernels do, emulated.
    Kernels,
    /// Network namespaces and real sockets.
    Network,
    /// What the programs cost, against their budgets.
    Bench,
    /// A machine with only rustup, git and gcc.
    Fresh,
}

impl Ring {
    const ALL: [Self; 7] = [
        Self::Lint,
        Self::Host,
        Self::Kernel,
        Self::Kernels,
        Self::Network,
        Self::Bench,
        Self::Fresh,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Lint => "lint",
            Self::Host => "host",
            Self::Kernel => "kernel",
            Self::Kernels => "kernels",
            Self::Network => "network",
            Self::Bench => "bench",
            Self::Fresh => "fresh",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ring| ring.name() == name)
    }

    /// What runs when no ring is named.
    pub(super) fn usual(long: bool, filtered: bool) -> Vec<Self> {
        let wanted = |ring: &Self| match ring {
            // Of a single test, the kernel at hand says enough, and nothing of what things cost.
            Self::Lint | Self::Kernels | Self::Bench => !filtered,
            Self::Fresh => long && !filtered,
            Self::Host | Self::Kernel | Self::Network => true,
        };
        Self::ALL.into_iter().filter(wanted).collect()
    }

    /// Whether it runs test executables.
    pub(super) const fn is_built(self) -> bool {
        matches!(
            self,
            Self::Host | Self::Kernel | Self::Kernels | Self::Network | Self::Bench
        )
    }

    /// Whether its tests touch the kernel.
    pub(super) const fn needs_root(self) -> bool {
        matches!(self, Self::Kernel | Self::Network | Self::Bench)
    }

    /// The ring of an integration test, by the first word of its file's name.
    pub(super) fn of_test(target: &str) -> Self {
        match target.split('_').next() {
            Some("kernel") => Self::Kernel,
            Some("network") => Self::Network,
            _ => Self::Host,
        }
    }
}

impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_file_is_in_the_ring_that_its_name_starts_with() {
        assert_eq!(Ring::Kernel, Ring::of_test("kernel"));
        assert_eq!(Ring::Network, Ring::of_test("network_policy"));
        assert_eq!(Ring::Host, Ring::of_test("plan"));
        assert_eq!(Ring::Host, Ring::of_test("kernels"));
    }

    #[test]
    fn every_ring_is_found_by_its_name() {
        assert!(
            Ring::ALL
                .into_iter()
                .all(|ring| Ring::named(ring.name()) == Some(ring))
        );
        assert_eq!(None, Ring::named("checksum"));
    }
}
