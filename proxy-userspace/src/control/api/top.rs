//! Who is busiest.

use serde::{Deserialize, Serialize};

use super::{Kind, Map};

/// Services, endpoints or clients with the most new flows, or the most flows.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Top {
    /// `Top`.
    #[serde(flatten)]
    pub kind: Kind,
    /// `services`, `endpoints` or `clients`.
    pub by: String,
    /// Time between the two readings that rates are made of.
    pub seconds: f64,
    /// New flows of all rows a second, of those left out as well.
    pub new_flows_per_second: f64,
    /// Live flows of all rows, of those left out as well.
    pub flows: u64,
    /// How many rows there are, those left out among them.
    pub total: usize,
    /// How full the flow tables are, in halves of flows: two each, four of a client that reaches
    /// itself.
    pub tables: Vec<Map>,
    /// The busiest first: Services and endpoints by new flows, clients by live flows.
    pub items: Vec<TopRow>,
}

/// A Service, an endpoint of a service port, or a client.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopRow {
    /// Namespace of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Name of the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Protocol of the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Address of the endpoint or the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The port that the endpoint listens on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_port: Option<u16>,
    /// New flows between the two readings. Of clients only those that the second reading finds.
    pub new_flows: u64,
    /// The same a second.
    pub new_flows_per_second: f64,
    /// Live flows.
    pub flows: u64,
    /// Their part of all live flows of the node, from 0 to 1; none without any.
    pub share: Option<f64>,
}
