//! What the tables depend on.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::config::{Config, Mode};

/// Non-zero: segments that do not fit into their connection's window are no reason to call a packet
/// invalid. The file is that of the thread's network namespace.
const BE_LIBERAL: &str = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal";

/// What the tables depend on, but for the addresses of Services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whose behaviour counts where kube-proxy's modes differ.
    pub mode: Mode,
    /// Bits of a packet's mark of which any asks for masquerading.
    pub masquerade_mark: u32,
    /// Bits of a packet's mark of which any asks for rejection.
    pub reject_mark: u32,
    /// Whether forwarded packets are dropped that conntrack calls invalid; in the mode of iptables
    /// only. The [`Keeper`](super::Keeper) asks the kernel (`nf_conntrack_tcp_be_liberal`).
    pub drop_invalid: bool,
    /// The ranges that cluster IPs are taken from; in the mode of nftables only.
    pub service_cidrs: BTreeSet<IpNet>,
}

impl Options {
    /// As configured, with no range known yet.
    pub const fn new(config: &Config) -> Self {
        Self {
            mode: config.mode,
            masquerade_mark: config.masquerade_mark(),
            reject_mark: config.reject_mark(),
            drop_invalid: true,
            service_cidrs: BTreeSet::new(),
        }
    }
}

/// Whether conntrack is liberal, in the network namespace that the thread is in. It is not where
/// nobody has needed conntrack yet.
pub(super) fn is_liberal() -> bool {
    std::fs::read_to_string(BE_LIBERAL).is_ok_and(|text| text.trim() != "0")
}
