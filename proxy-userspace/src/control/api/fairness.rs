//! How draws fell.

use serde::{Deserialize, Serialize};

use super::Kind;

/// How draws fell, and what follows: see `docs/fairness.md`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fairness {
    /// `Fairness`.
    #[serde(flatten)]
    pub kind: Kind,
    /// Of the Services that are named, this part at most is expected to be fair.
    pub false_discovery_rate: f64,
    /// Services that were drawn from often enough, whether they are asked for or not: verdicts
    /// depend on all of them.
    pub tested: usize,
    /// Services of those whose split is off.
    pub off: usize,
    /// The Services that are asked for, in order of their names.
    pub items: Vec<ServiceSplit>,
}

/// How the draws of a Service fell.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSplit {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `fair`, `off` or `too-few`.
    pub verdict: String,
    /// Draws from all its sets, former ones of this run of the controller among them.
    pub draws: u64,
    /// Pearson's statistic, summed over the sets that count.
    pub statistic: f64,
    /// Its degrees of freedom.
    pub degrees_of_freedom: u64,
    /// Probability that equal odds lead to a split as uneven as this or more; none where no set
    /// counts.
    pub p_value: Option<f64>,
    /// Where no set counts: about how many draws more it takes until one does.
    pub missing: Option<u64>,
    /// Its ports, once for each family.
    pub ports: Vec<PortSplit>,
}

/// How the draws of a port of a Service fell, in one family.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PortSplit {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: String,
    /// Its family.
    pub family: String,
    /// Endpoints in its sets, each counted once.
    pub endpoints: usize,
    /// As with the Service.
    pub draws: u64,
    /// As with the Service.
    pub statistic: f64,
    /// As with the Service.
    pub degrees_of_freedom: u64,
    /// As with the Service, of this port alone.
    pub p_value: Option<f64>,
    /// The sets that it has.
    pub sets: Vec<SetSplit>,
    /// Those that it had.
    pub former: FormerSets,
}

/// How the draws from a set of endpoints fell.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetSplit {
    /// The lists that it is: `cluster`, `local`, or both.
    pub lists: Vec<String>,
    /// Its endpoints' number.
    pub size: usize,
    /// Draws from it.
    pub draws: u64,
    /// Draws that each of its endpoints is expected to get.
    pub expected: f64,
    /// Whether it counts: two endpoints at least, and enough draws.
    pub counts: bool,
    /// Its statistic, if it counts.
    pub statistic: f64,
    /// Its endpoints in order, for a Service that is asked for by name or whose split is off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<EndpointSplit>,
}

/// What one endpoint of a set got.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSplit {
    /// Its address.
    pub address: String,
    /// The port that it listens on.
    pub target_port: u16,
    /// How often it was drawn.
    pub draws: u64,
    /// How many standard errors that is above what is expected.
    pub sigmas: f64,
}

/// Sets that are gone, with what they came to.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FormerSets {
    /// How many of them count.
    pub sets: u64,
    /// Draws from all of them.
    pub draws: u64,
    /// Their statistic.
    pub statistic: f64,
    /// Its degrees of freedom.
    pub degrees_of_freedom: u64,
}
