//! Events, as they are told of: one JSON object a line.

use serde::{Deserialize, Serialize};

/// A line of what `/v1/monitor` says.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(tag = "kind")]
pub enum Line {
    /// Something happened.
    Event(Box<Event>),
    /// Not all that happened could be told.
    Lost(Lost),
}

/// What happened to a flow or a packet.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Always [`super::API_VERSION`].
    pub api_version: String,
    /// When, by RFC 3339 in UTC.
    pub time: String,
    /// `new`, `closed`, `dropped` or `evicted`.
    pub event: String,
    /// Why, as one word: see `docs/monitor.md`.
    pub reason: String,
    /// `tc ingress` or `tc egress`, where a packet was seen; `sweep` if it was none.
    pub hook: String,
    /// Index of the device.
    pub device_index: Option<u32>,
    /// Name of the device.
    pub device: Option<String>,
    /// `TCP`, `UDP`, `SCTP`, or another protocol's name or number.
    pub protocol: String,
    /// Family.
    pub family: String,
    /// Address and port that the client sends from; port 0 if there is none to see.
    pub client: String,
    /// Address and port that it sends to; none for a dropped packet that goes to the client.
    pub frontend: Option<String>,
    /// Address and port where its packets go; none for a dropped packet that comes from the client.
    pub endpoint: Option<String>,
    /// Namespace of the Service.
    pub namespace: Option<String>,
    /// Name of the Service; `#` and its number in the tables where that is all that is known.
    pub service: Option<String>,
    /// Name of the Service's port.
    pub port: Option<String>,
    /// Number of the service port in the tables; 0 if there is none.
    pub number: u32,
    /// Slot of the endpoint in the tables, if one was chosen.
    pub slot: Option<u32>,
    /// The node that the endpoint runs on.
    pub node: Option<String>,
    /// Whether the client's address becomes the node's.
    pub masquerade: bool,
    /// Whether the endpoint is the client.
    pub hairpin: bool,
    /// The port that the endpoint sees, if it is not the client's own.
    pub source_port: Option<u16>,
}

/// How many events were not told since the last such line.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lost {
    /// Always [`super::API_VERSION`].
    pub api_version: String,
    /// When, by RFC 3339 in UTC.
    pub time: String,
    /// Since when, in seconds.
    pub seconds: u64,
    /// Events of any flow that were too many in their second.
    pub suppressed: u64,
    /// Events of any flow for which the ring buffer had no room.
    pub ring_full: u64,
    /// Events that were asked for and not read in time.
    pub unread: u64,
}
