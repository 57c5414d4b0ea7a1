//! What is said on the control socket, and printed by `-o json` and `-o yaml`.

mod device;
mod event;
pub mod explain;
mod fairness;
mod flow;
mod top;

pub use device::{Device, DeviceNotice, DeviceState, Devices};
pub use event::{Event, Line, Lost};
pub use fairness::{EndpointSplit, Fairness, FormerSets, PortSplit, ServiceSplit, SetSplit};
pub use flow::{Flow, FlowList, FlowState};
pub use top::{Top, TopRow};

use proxy_common::abi;
use serde::{Deserialize, Serialize};

use crate::netfilter;

/// Version of everything here.
pub const API_VERSION: &str = "kube-lottery.io/v1";

/// What kind of object something is.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kind {
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// The kind.
    pub kind: String,
}

impl Kind {
    /// An object of this kind.
    pub fn new(kind: &str) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: kind.to_owned(),
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Failure {
    /// `Failure`.
    #[serde(flatten)]
    pub kind: Kind,
    /// Why.
    pub message: String,
}

/// How the controller is.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// `Status`.
    #[serde(flatten)]
    pub kind: Kind,
    /// Whether everything that is declared is served.
    pub healthy: bool,
    /// Version of the program.
    pub version: String,
    /// The node it serves.
    pub node: String,
    /// Its process.
    pub pid: u32,
    /// How long it runs.
    pub uptime_seconds: u64,
    /// The manifests.
    pub manifests: Manifests,
    /// The tables.
    pub tables: Tables,
    /// The devices.
    pub devices: Devices,
    /// The nftables tables.
    pub netfilter: Netfilter,
    /// How full the maps are.
    pub maps: Vec<Map>,
    /// What happened to packets.
    pub counters: Vec<Counter>,
}

/// How the manifests are.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifests {
    /// File or directory.
    pub path: String,
    /// Files that were read.
    pub files: usize,
    /// Objects that are declared.
    pub objects: usize,
    /// What cannot be used.
    pub problems: Vec<String>,
}

/// How the tables are.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tables {
    /// Services that are served.
    pub services: usize,
    /// Frontends.
    pub frontends: usize,
    /// Endpoints, counted once for each service port.
    pub endpoints: usize,
    /// Entries that the kernel refused and that are tried again.
    pub refused: usize,
    /// The last change, if there was one.
    pub last_change: Option<Change>,
    /// What is declared and not served, or not served in full.
    pub notices: Vec<Notice>,
}

/// A change of the tables.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// How long ago it was.
    pub seconds_ago: u64,
    /// How long it took from the objects to the tables.
    pub micros: u64,
    /// Objects that changed.
    pub objects: usize,
    /// Writes to the tables.
    pub operations: usize,
}

/// What of a Service is not served.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What.
    pub message: String,
    /// Whether it is configured to be so, and no fault.
    pub is_by_choice: bool,
}

/// How the nftables tables are.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Netfilter {
    /// `ClusterIP`s for which packets that nobody translates are dropped.
    pub cluster_ips: usize,
    /// Families (`IPv4`, `IPv6`) whose `filter FORWARD` accepts what kube-proxy's iptables mode
    /// accepts there.
    #[serde(default)]
    pub forward_accepts: Vec<String>,
    /// Why not all rules are in force.
    pub trouble: Option<String>,
}

/// How full a map is.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Map {
    /// What it holds.
    pub name: String,
    /// IPv4 or IPv6.
    pub family: String,
    /// Entries in use; unknown unless it was asked for.
    pub entries: Option<u64>,
    /// Entries there can be.
    pub max_entries: u64,
}

/// Something that was counted.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counter {
    /// Its name.
    pub name: String,
    /// The hook where it is counted.
    pub hook: String,
    /// Which way packets go there.
    pub direction: String,
    /// What it means.
    pub meaning: String,
    /// What to look at next, if it counts packets that did not get through.
    #[serde(default)]
    pub next: Option<String>,
    /// How often it happened.
    pub value: u64,
}

impl From<(abi::Counter, u64)> for Counter {
    fn from((counter, value): (abi::Counter, u64)) -> Self {
        Self {
            name: counter.name().to_owned(),
            hook: counter.place().hook().to_owned(),
            direction: counter.place().direction().to_owned(),
            meaning: counter.meaning().to_owned(),
            next: counter.next().map(str::to_owned),
            value,
        }
    }
}

impl From<(netfilter::Counter, netfilter::Count)> for Counter {
    fn from((counter, count): (netfilter::Counter, netfilter::Count)) -> Self {
        Self {
            name: counter.name().to_owned(),
            hook: counter.hook().to_owned(),
            direction: counter.direction().to_owned(),
            meaning: counter.meaning().to_owned(),
            next: counter.next().map(str::to_owned),
            value: count.packets,
        }
    }
}

/// Several of a kind.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct List<T> {
    /// `ServiceList`, `EndpointList`, `DeviceList` or `CounterList`.
    #[serde(flatten)]
    pub kind: Kind,
    /// They, in order.
    pub items: Vec<T>,
}

/// A Service.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What of it is not served.
    pub notices: Vec<String>,
    /// Its ports, once for each family.
    pub ports: Vec<Port>,
}

/// A port of a Service in one family.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: String,
    /// Its family.
    pub family: String,
    /// Its number in the tables; none if it is not there.
    pub number: Option<u32>,
    /// Where clients reach it.
    pub frontends: Vec<Frontend>,
    /// Endpoints that get new flows.
    pub ready: usize,
    /// All endpoints that are known.
    pub total: usize,
    /// Endpoints on this node.
    pub local: usize,
    /// New flows that its endpoints got.
    pub picks: u64,
    /// Live flows.
    pub flows: u64,
}

/// Where clients reach a port of a Service.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Frontend {
    /// Address and port.
    pub address: String,
    /// `cluster`, `external`, `load-balancer` or `node-port`; none if that is not known.
    pub kind: Option<String>,
}

/// An endpoint of a port of a Service.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// Name of the port.
    pub port: String,
    /// Protocol of the port.
    pub protocol: String,
    /// Family.
    pub family: String,
    /// Its address.
    pub address: String,
    /// The port that it listens on.
    pub target_port: u16,
    /// `ready`, `terminating`, `serving`, `not-ready` or `withdrawn`.
    pub state: String,
    /// Whether it gets new flows.
    pub listed: bool,
    /// By which lists: `cluster`, `local`.
    pub lists: Vec<String>,
    /// Whether it runs on this node.
    pub local: bool,
    /// The node it runs on.
    pub node: Option<String>,
    /// The slice that names it.
    pub slice: Option<String>,
    /// Its slot in the tables.
    pub slot: Option<u32>,
    /// New flows that it got.
    pub picks: u64,
    /// Its part of the new flows of all endpoints of its port, from 0 to 1; none without any.
    pub share: Option<f64>,
    /// Live flows.
    pub flows: u64,
}
