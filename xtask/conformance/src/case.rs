//! Files of cases: cluster states, packets, and what kube-proxy does to each. The header of
//! `xtask/cases/packet-flows.yaml` describes the format.

mod check;
mod file;
mod masquerade;

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use kube_lottery::config::Mode;
use kube_lottery::model;
use proxy_common::net::Proto;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use file::{header, read, text, write};
pub use kube_lottery::explain::{Entry, Verdict};
pub use masquerade::Masquerade;

/// One cluster state, seen from one node, with packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name, of its own in a file.
    #[serde(rename = "case")]
    pub name: String,
    /// Where it comes from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// A remark.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The node that the packets come to.
    pub node: Node,
    /// Services and `EndpointSlices`, as the API server has them.
    pub objects: Vec<Value>,
    /// The packets.
    pub packets: Vec<Packet>,
}

/// The node whose proxy is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The addresses of its interfaces but for loopback; the first of a family is the primary one.
    pub ips: Vec<IpAddr>,
    /// Its zone, empty for none.
    #[serde(default)]
    pub zone: String,
    /// The ranges of its pods.
    #[serde(default, rename = "podCIDRs")]
    pub pod_cidrs: Vec<IpNet>,
    /// How its proxy is configured.
    pub config: Config,
}

/// How the proxy is configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// Where node ports are reached; empty for the mode's default.
    #[serde(default)]
    pub node_port_addresses: Vec<String>,
    /// `iptables.localhostNodePorts`.
    pub iptables_localhost_node_ports: bool,
    /// What tells local pods from others.
    pub detect_local_mode: DetectLocalMode,
    /// Ranges for `ClusterCIDR`, separated by commas; empty for no detector.
    #[serde(default, rename = "clusterCIDR")]
    pub cluster_cidr: String,
    /// Whether all packets to cluster IPs are masqueraded.
    pub masquerade_all: bool,
    /// The ranges of the cluster's `ServiceCIDRs`.
    #[serde(default, rename = "serviceCIDRs")]
    pub service_cidrs: Vec<IpNet>,
}

/// What tells local pods from others, as far as it goes by addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "kube-proxy's own names")]
pub enum DetectLocalMode {
    ClusterCIDR,
    NodeCIDR,
}

/// The first packet of a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packet {
    /// What it stands for.
    pub name: String,
    /// Its protocol.
    pub proto: Protocol,
    /// Its source address.
    pub from: IpAddr,
    /// Where it comes in.
    #[serde(rename = "in")]
    pub entry: Entry,
    /// Its destination address.
    pub to: IpAddr,
    /// Its destination port.
    pub port: u16,
    /// What becomes of it in the mode of nftables, and in that of iptables if it is not said apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<Outcome>,
    /// What becomes of it in the mode of iptables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_iptables: Option<Outcome>,
    /// A remark.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Packet {
    /// What becomes of it in a mode, if the file says so.
    pub fn expected(&self, mode: Mode) -> Option<&Outcome> {
        match mode {
            Mode::Iptables => self.expect_iptables.as_ref().or(self.expect.as_ref()),
            Mode::Nftables => self.expect.as_ref(),
        }
    }
}

/// Transport protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "named as what they are")]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl From<Protocol> for Proto {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::TCP,
            Protocol::Udp => Self::UDP,
            Protocol::Sctp => Self::SCTP,
        }
    }
}

impl From<Protocol> for model::Protocol {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::Tcp,
            Protocol::Udp => Self::Udp,
            Protocol::Sctp => Self::Sctp,
        }
    }
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// What is done with it.
    pub verdict: Verdict,
    /// Where it may be forwarded to, as `ip:port`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<Backend>,
    /// Which of the forwarded flows are masqueraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<Masquerade>,
}

/// Address and port of an endpoint.
pub type Backend = std::net::SocketAddr;

impl Outcome {
    /// One that forwards nothing.
    pub const fn of(verdict: Verdict) -> Self {
        Self {
            verdict,
            backends: Vec::new(),
            masquerade: None,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.verdict.fmt(f)?;
        if self.verdict == Verdict::Forward {
            let backends: Vec<_> = self.backends.iter().map(ToString::to_string).collect();
            write!(f, " to {}", backends.join(" "))?;
        }
        match &self.masquerade {
            None | Some(Masquerade::All(false)) => Ok(()),
            Some(Masquerade::All(true)) => f.write_str(", masqueraded"),
            Some(Masquerade::To(some)) => {
                let some: Vec<_> = some.iter().map(ToString::to_string).collect();
                write!(f, ", masqueraded to {} only", some.join(" "))
            }
        }
    }
}
