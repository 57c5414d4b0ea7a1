//! What is configured of the meaning of Services, as in `KubeProxyConfiguration`
//! (`kubeproxy.config.k8s.io/v1alpha1`).

mod file;
mod flags;
mod read;

use std::net::IpAddr;

use ipnet::IpNet;

pub use read::{ConfigError, Configuration};

use crate::cluster::Selectors;

/// The settings that decide where packets go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whose behaviour counts where kube-proxy's modes differ (`mode`).
    pub mode: Mode,
    /// What tells local pods from others (`detectLocalMode`).
    pub detect: Detect,
    /// Where node ports are reached (`nodePortAddresses`).
    pub node_port_addresses: NodePortAddresses,
    /// Whether node ports are reached at 127.0.0.0/8 (`iptables.localhostNodePorts`); in the mode
    /// of iptables only.
    pub localhost_node_ports: bool,
    /// Whether all packets to cluster IPs are masqueraded (`iptables.masqueradeAll` or
    /// `nftables.masqueradeAll`).
    pub masquerade_all: bool,
    /// Number of the bit in a packet's mark that asks for masquerading, 0 to 31
    /// (`iptables.masqueradeBit` or `nftables.masqueradeBit`).
    pub masquerade_bit: u8,
    /// Number of the bit in a packet's mark that asks for rejection, 0 to 31.
    pub reject_bit: u8,
    /// Whether Services labelled `service.kubernetes.io/headless` are not served even if they have
    /// cluster IPs, as up to Kubernetes 1.34.
    pub hide_headless_labelled_services: bool,
    /// Which external IPs of Services are served.
    pub external_ips: ExternalIps,
}

/// Whose behaviour counts where kube-proxy's modes differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// That of `iptables`.
    #[default]
    Iptables,
    /// That of `nftables`.
    Nftables,
}

/// What tells packets of local pods from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detect {
    /// Their source is in the first of these ranges of its family.
    ClusterCidr(Vec<IpNet>),
    /// Their source is in the first range of its family among the Node's `podCIDRs`.
    NodeCidr,
    /// They come in by this bridge.
    BridgeInterface(String),
    /// They come in by a device whose name begins so.
    InterfaceNamePrefix(String),
}

/// Where node ports are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// As the mode has it: everywhere with iptables, at the primary addresses with nftables.
    #[default]
    Default,
    /// At these addresses; a family without one is reached everywhere.
    In {
        /// At the primary addresses of the Node.
        primary: bool,
        /// At addresses in these ranges.
        ranges: Vec<IpNet>,
    },
}

/// Which external IPs of Services are served. Loopback, link-local and multicast addresses never
/// are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ExternalIps {
    /// All.
    #[default]
    Allow,
    /// None.
    Deny,
    /// Those in these ranges.
    In(Vec<IpNet>),
}

impl ExternalIps {
    /// Whether an external IP is served.
    pub fn include(&self, addr: IpAddr) -> bool {
        match self {
            Self::Allow => true,
            Self::Deny => false,
            Self::In(ranges) => ranges.iter().any(|range| range.contains(&addr)),
        }
    }
}

impl Config {
    /// The bit that asks for masquerading unless another is given.
    const MASQUERADE_BIT: u8 = 14;
    /// The bit that asks for rejection unless another is given.
    const REJECT_BIT: u8 = 15;

    /// The same with another bit for masquerading; if that for rejection is the same by default, it
    /// makes room.
    const fn with_masquerade_bit(mut self, bit: u8) -> Self {
        self.masquerade_bit = bit;
        self.reject_bit = if bit == Self::REJECT_BIT {
            Self::MASQUERADE_BIT
        } else {
            Self::REJECT_BIT
        };
        self
    }

    /// The mask of the bit that asks for masquerading.
    pub const fn masquerade_mark(&self) -> u32 {
        1 << self.masquerade_bit
    }

    /// The mask of the bit that asks for rejection.
    pub const fn reject_mark(&self) -> u32 {
        1 << self.reject_bit
    }

    /// Whose label selectors count.
    pub const fn selectors(&self) -> Selectors {
        if self.hide_headless_labelled_services {
            Selectors::Until134
        } else {
            Selectors::Current
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            detect: Detect::ClusterCidr(Vec::new()),
            node_port_addresses: NodePortAddresses::default(),
            localhost_node_ports: true,
            masquerade_all: false,
            masquerade_bit: Self::MASQUERADE_BIT,
            reject_bit: Self::REJECT_BIT,
            hide_headless_labelled_services: false,
            external_ips: ExternalIps::default(),
        }
    }
}
