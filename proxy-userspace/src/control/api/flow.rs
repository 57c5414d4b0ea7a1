//! Flows, as they are told of.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::Kind;

/// Flows, or the first of them in the order that was asked for.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowList {
    /// `FlowList`.
    #[serde(flatten)]
    pub kind: Kind,
    /// How many there are that were asked for.
    pub matched: u64,
    /// As many of them as the limit allows.
    pub items: Vec<Flow>,
}

/// A flow, or a note of traffic that is no Service's.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is told by itself")]
pub struct Flow {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Family.
    pub family: String,
    /// Address and port that the client sends from.
    pub client: String,
    /// Address and port that it sends to.
    pub frontend: String,
    /// Address and port where its packets go.
    pub endpoint: String,
    /// Namespace of the Service; `-` where names are not known, none for traffic that is no
    /// Service's.
    pub namespace: Option<String>,
    /// Name of the Service; `#` and its number in the tables where that is all that is known.
    pub service: Option<String>,
    /// Name of the Service's port.
    pub port: Option<String>,
    /// Number of the service port in the tables; 0 for traffic that is no Service's.
    pub number: u32,
    /// Slot of the endpoint in the tables.
    pub slot: u32,
    /// The node that the endpoint runs on.
    pub node: Option<String>,
    /// How it is.
    pub state: FlowState,
    /// Whether the endpoint has answered.
    pub replied: bool,
    /// Whether its client's address becomes the node's.
    pub masquerade: bool,
    /// Whether its endpoint is its client.
    pub hairpin: bool,
    /// The port that the endpoint sees, if it is not the client's own.
    pub source_port: Option<u16>,
    /// Whether the table has lost the client's half of it, which its next packet brings back.
    pub halved: bool,
    /// `direct` or `own` for a note of traffic straight to an endpoint, or of the node's own.
    pub note: Option<String>,
    /// Seconds since its last packet, as it was noted: up to 4 too many for TCP and SCTP, 2 for UDP.
    pub idle_seconds: u32,
    /// Seconds until the table forgets it, if no packet comes.
    pub expires_seconds: u32,
}

/// How a flow is.
#[derive(
    Clone, Copy, Debug, Deserialize, Hash, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum FlowState {
    /// Its client has not yet shown that it hears the answers.
    HalfOpen,
    /// It has.
    Established,
    /// One side has said that it ends.
    Closing,
    /// Both have; its ports stay taken for a while.
    Closed,
    /// One side has reset it.
    Reset,
    /// Its time is over, and it is about to be removed.
    Expired,
}

impl FlowState {
    /// As one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HalfOpen => "half-open",
            Self::Established => "established",
            Self::Closing => "closing",
            Self::Closed => "closed",
            Self::Reset => "reset",
            Self::Expired => "expired",
        }
    }
}

impl fmt::Display for FlowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
