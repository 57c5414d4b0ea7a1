//! What the tables count.

use std::collections::BTreeMap;

pub use super::attribute::Count;

/// A counter of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counter {
    /// Packets to a Service that nobody has translated.
    Untranslated,
    /// Packets to an address that no Service has.
    Unallocated,
    /// Forwarded packets that conntrack knows nothing of.
    Invalid,
    /// Packets that were rejected.
    Rejected,
}

/// What counters have counted, both families together. One that is not there has counted nothing.
pub type Counts = BTreeMap<Counter, Count>;

/// What several have counted together.
pub(super) fn sum(all: impl IntoIterator<Item = Counts>) -> Counts {
    let mut sum = Counts::new();
    for (counter, count) in all.into_iter().flatten() {
        let own = sum.entry(counter).or_default();
        own.packets += count.packets;
        own.bytes += count.bytes;
    }
    sum
}

impl Counter {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Untranslated,
        Self::Unallocated,
        Self::Invalid,
        Self::Rejected,
    ];

    /// What it is called in the tables.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Untranslated => "untranslated",
            Self::Unallocated => "unallocated",
            Self::Invalid => "invalid",
            Self::Rejected => "rejected",
        }
    }

    /// What it is called beside the counters of the programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Untranslated => "drop-untranslated",
            Self::Unallocated => "drop-unallocated",
            Self::Invalid => "drop-ct-invalid",
            Self::Rejected => "rejected",
        }
    }

    /// Where it counts: nftables chains by their hooks.
    pub const fn hook(self) -> &'static str {
        match self {
            Self::Untranslated => "nftables prerouting, output",
            Self::Unallocated | Self::Rejected => "nftables forward, input, output",
            Self::Invalid => "nftables forward",
        }
    }

    /// Which way the packets go.
    pub const fn direction(self) -> &'static str {
        match self {
            Self::Untranslated | Self::Unallocated | Self::Rejected => "to a Service",
            Self::Invalid => "both ways",
        }
    }

    /// One line that says what it counts.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Untranslated => {
                "dropped: to a ClusterIP and translated by nobody: no program serves its device yet"
            }
            Self::Unallocated => {
                "dropped: to an address in a ServiceCIDR that is no Service's ClusterIP"
            }
            Self::Invalid => {
                "dropped: forwarded, and of no connection that conntrack knows (ct state invalid)"
            }
            Self::Rejected => "rejected with port unreachable: no endpoint, or no such port",
        }
    }
    /// One line that says what to look at next.
    pub const fn next(self) -> Option<&'static str> {
        Some(match self {
            Self::Untranslated => {
                "kube-lottery devices: the device they came in by is pending, refused or left alone"
            }
            Self::Unallocated => {
                "kube-lottery services: the address is no Service's, or of one that was deleted"
            }
            Self::Invalid => {
                "sysctl net.netfilter.nf_conntrack_log_invalid=255 logs them; a second path for the \
                 answers, or connections older than conntrack's table"
            }
            Self::Rejected => {
                "kube-lottery services: a Service with READY 0, or a port that is not listed"
            }
        })
    }
}
