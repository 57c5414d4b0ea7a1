//! What `explain` and `why` say. `docs/explain.md` describes it for readers.

use serde::{Deserialize, Serialize};

use super::{Counter, Kind};
use crate::explain::{Entry, Verdict};

/// Where the first packet of a flow goes, and why.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `Explanation`.
    #[serde(flatten)]
    pub kind: Kind,
    /// The node that the packet comes to.
    pub node: String,
    /// Whose behaviour counts: `iptables` or `nftables`.
    pub mode: String,
    /// What was asked: the running `controller`, or `manifests` only.
    pub source: String,
    /// What decided on the packet: the programs in the `kernel`, or the same code on the `host`.
    pub data_path: String,
    /// Why the kernel did not decide.
    pub data_path_note: Option<String>,
    /// The packet.
    pub packet: ExplainedPacket,
    /// Where it comes from, as far as that decides.
    pub origin: ExplainedOrigin,
    /// The frontend that it is for.
    pub frontend: Option<ExplainedFrontend>,
    /// Who may use the frontend, if that is restricted.
    pub source_ranges: Option<ExplainedRanges>,
    /// Which endpoints are meant for it.
    pub policy: Option<ExplainedPolicy>,
    /// All endpoints of the service port, in order of address and port.
    pub endpoints: Vec<ExplainedEndpoint>,
    /// Session affinity, where the Service has it.
    pub affinity: Option<ExplainedAffinity>,
    /// The lottery, where there is an endpoint.
    pub lottery: Option<ExplainedLottery>,
    /// The flow that the packet belongs to, if one is known.
    pub flow: Option<ExplainedFlow>,
    /// What becomes of it.
    pub outcome: ExplainedOutcome,
    /// What conntrack sees.
    pub conntrack: String,
    /// All of it for people, in order.
    pub steps: Vec<ExplainedStep>,
}

/// A packet.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedPacket {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Address and port that it comes from.
    pub source: String,
    /// Whether that port was asked for; else it is one that no flow has.
    pub source_port_given: bool,
    /// Address and port that it is sent to.
    pub destination: String,
    /// Where it comes in: `pod`, `host` or `external`.
    #[serde(rename = "in")]
    pub entry: Entry,
    /// Why that is taken for granted, where it was not asked for.
    pub in_because: Option<String>,
}

/// Where a packet comes from, as far as that decides.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedOrigin {
    /// `inside`, `outside` or `host`.
    pub name: String,
    /// Why.
    pub because: String,
}

/// Where a Service is reached.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedFrontend {
    /// Address and port, or the address alone.
    pub address: String,
    /// `cluster`, `external`, `load-balancer` or `node-port`.
    pub kind: String,
    /// Whether it is the frontend of a whole address: of ports that no Service has.
    pub whole_address: bool,
    /// Namespace of the Service that has it.
    pub namespace: String,
    /// Name of that Service.
    pub service: String,
    /// Name of its port.
    pub port: String,
    /// Number of the service port in the tables.
    pub number: Option<u32>,
    /// Service ports that want it as well and come later, in order.
    pub others: Vec<ExplainedClaim>,
}

/// A service port that wants a frontend that another has.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedClaim {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// Name of the port.
    pub port: String,
    /// What the frontend would be to it.
    pub kind: String,
    /// Why it comes later.
    pub because: String,
}

/// Who may use a frontend.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedRanges {
    /// Ranges of sources.
    pub ranges: Vec<String>,
    /// Whether the packet's source is in one of them.
    pub allowed: bool,
}

/// Which endpoints are meant for a packet.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedPolicy {
    /// `internalTrafficPolicy` or `externalTrafficPolicy`.
    pub field: String,
    /// `Cluster` or `Local`.
    pub value: String,
    /// The endpoints that count for this packet: `cluster`, `local` or `nobody`.
    pub list: String,
    /// Whose hints are followed: `node` or `zone`, if any are.
    pub topology: Option<String>,
    /// Whether terminating endpoints are used because none is ready.
    pub terminating_fallback: bool,
    /// Why.
    pub because: Vec<String>,
}

/// An endpoint of the service port.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedEndpoint {
    /// Address and port.
    pub address: String,
    /// The node it runs on.
    pub node: Option<String>,
    /// Whether that is this node.
    pub local: bool,
    /// `ready`, `terminating`, `serving` or `not-ready`.
    pub state: String,
    /// Zones that its hints name.
    pub for_zones: Vec<String>,
    /// Nodes that its hints name.
    pub for_nodes: Vec<String>,
    /// Whether the lottery may draw it for this packet.
    #[serde(rename = "in")]
    pub is_in: bool,
    /// Why, as one word.
    pub reason: String,
    /// Why.
    pub because: String,
    /// How likely it is to be drawn, from 0 to 1: `1/n`, or 0.
    pub probability: f64,
    /// Whether a flow to it gets another source.
    pub masquerade: bool,
    /// Whether it is the client itself.
    pub hairpin: bool,
}

/// Session affinity of a client.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedAffinity {
    /// For so many seconds a client keeps its endpoint.
    pub timeout_seconds: u32,
    /// The endpoint that is remembered for this client.
    pub endpoint: Option<String>,
    /// For how many seconds more; 0 if it does not count any more.
    pub left_seconds: u32,
    /// Whether it counts: it is not too old, and the endpoint may still be used.
    pub valid: bool,
}

/// The lottery of a service port.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedLottery {
    /// Endpoints that take part.
    pub endpoints: usize,
    /// `cascade`, rule by rule; or `single-draw`, which has the same distribution.
    pub method: String,
    /// The rules of the cascade, in order.
    pub rules: Vec<ExplainedRule>,
}

/// A rule of the cascade.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedRule {
    /// Its place, from 0 on.
    pub rule: usize,
    /// The endpoint that it leads to.
    pub endpoint: String,
    /// If it is reached, it fires once in so many times.
    pub one_in: usize,
    /// How likely it is reached and fires: `1/n`.
    pub probability: f64,
}

/// A flow that is known.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedFlow {
    /// `established` or `half-open`.
    pub tier: String,
    /// The endpoint that its packets go to.
    pub endpoint: String,
    /// Whether both sides have closed it, or its time is over: then an opening packet draws anew.
    pub over: bool,
    /// Seconds since its last packet, some seconds coarse.
    pub idle_seconds: u32,
}

/// What becomes of a packet.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedOutcome {
    /// `forward`, `drop`, `reject` or `pass`.
    pub verdict: Verdict,
    /// Where it is forwarded to. If the lottery decided, this is one draw of many.
    pub endpoint: Option<String>,
    /// What decided on the endpoint: `flow`, `affinity`, `lottery`, or `only` if there is one.
    pub decided_by: Option<String>,
    /// Source of the packet once it is translated, before any masquerade.
    pub source: String,
    /// Whether it gets another source.
    pub masquerade: bool,
    /// Whether it goes back to where it came from.
    pub hairpin: bool,
    /// Mark that the data path sets, in hexadecimal; `0x0` for none.
    pub mark: String,
    /// Why.
    pub because: String,
    /// The counter that counts it, if it is dropped or rejected.
    pub counter: Option<ExplainedCounter>,
    /// The rule of nftables that has a hand in it.
    pub rule: Option<String>,
}

/// A counter, without its value.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedCounter {
    /// Its name.
    pub name: String,
    /// The hook where it is counted.
    pub hook: String,
    /// What it means.
    pub meaning: String,
}

impl From<Counter> for ExplainedCounter {
    fn from(counter: Counter) -> Self {
        Self {
            name: counter.name,
            hook: counter.hook,
            meaning: counter.meaning,
        }
    }
}

/// A step of a packet, for people.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedStep {
    /// What it is about.
    pub name: String,
    /// What happens.
    pub text: String,
    /// More of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
}

/// Which Service an address and port belong to, or why to none.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// `Why`.
    #[serde(flatten)]
    pub kind: Kind,
    /// The node that is looked from.
    pub node: String,
    /// Address and port.
    pub address: String,
    /// Protocol.
    pub protocol: String,
    /// The reason as one word; `served` if nothing is wrong.
    pub reason: String,
    /// Whether new flows find an endpoint there.
    pub served: bool,
    /// The Service that has it, or that it would belong to.
    pub service: Option<WhyService>,
    /// One line.
    pub message: String,
    /// More lines.
    pub details: Vec<String>,
    /// What to do.
    pub advice: Option<String>,
}

/// A port of a Service, by name.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhyService {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Name of the port.
    pub port: String,
    /// What the address is to it, if it is one of its.
    pub door: Option<String>,
}
