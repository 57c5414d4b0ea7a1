//! The fields of `KubeProxyConfiguration`, as they are written.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The fields of `kubeproxy.config.k8s.io/v1alpha1` that say where packets go.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct File {
    pub(super) api_version: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) mode: Option<String>,
    #[serde(rename = "clusterCIDR")]
    pub(super) cluster_cidr: Option<String>,
    pub(super) detect_local_mode: Option<String>,
    pub(super) detect_local: Option<DetectLocal>,
    pub(super) node_port_addresses: Option<Vec<String>>,
    pub(super) iptables: Option<Iptables>,
    pub(super) nftables: Option<Nftables>,
    pub(super) feature_gates: Option<FeatureGates>,
    pub(super) hostname_override: Option<String>,
    /// All others, known or not.
    #[serde(flatten)]
    pub(super) others: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DetectLocal {
    pub(super) bridge_interface: Option<String>,
    pub(super) interface_name_prefix: Option<String>,
    #[serde(flatten)]
    pub(super) others: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Iptables {
    pub(super) masquerade_bit: Option<i32>,
    pub(super) masquerade_all: Option<bool>,
    pub(super) localhost_node_ports: Option<bool>,
    #[serde(flatten)]
    pub(super) others: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Nftables {
    pub(super) masquerade_bit: Option<i32>,
    pub(super) masquerade_all: Option<bool>,
    #[serde(flatten)]
    pub(super) others: Map<String, Value>,
}

/// Gates that are read; the others are of other features.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FeatureGates {
    #[serde(rename = "AllowServiceExternalIPs")]
    pub(super) external_ips: Option<bool>,
    #[serde(flatten)]
    pub(super) others: Map<String, Value>,
}

/// Fields that say nothing of where packets go, at the top and within sections.
const KNOWN: [&str; 20] = [
    "bindAddress",
    "bindAddressHardFail",
    "clientConnection",
    "configSyncPeriod",
    "conntrack",
    "enableProfiling",
    "healthzBindAddress",
    "ipvs",
    "logging",
    "metricsBindAddress",
    "oomScoreAdj",
    "portRange",
    "showHiddenMetricsForVersion",
    "udpIdleTimeout",
    "windowsRunAsService",
    "winkernel",
    "iptables.syncPeriod",
    "iptables.minSyncPeriod",
    "nftables.syncPeriod",
    "nftables.minSyncPeriod",
];

impl File {
    /// What is said of fields that are given and not read.
    pub(super) fn unread(&self) -> Vec<String> {
        let mut all = Vec::new();
        let sections = [
            ("", Some(&self.others)),
            (
                "detectLocal.",
                self.detect_local.as_ref().map(|own| &own.others),
            ),
            ("iptables.", self.iptables.as_ref().map(|own| &own.others)),
            ("nftables.", self.nftables.as_ref().map(|own| &own.others)),
        ];
        for (section, fields) in sections {
            for (name, value) in fields.into_iter().flatten() {
                let field = format!("{section}{name}");
                if !KNOWN.contains(&field.as_str()) {
                    all.push(format!("{field}: no such field"));
                } else if !says_nothing(value) {
                    all.push(format!("{field}: not read by this version"));
                }
            }
        }
        let gates = self.feature_gates.as_ref().map(|own| &own.others);
        let others = gates.into_iter().flatten();
        all.extend(
            others.map(|(name, _)| format!("featureGates.{name}: not read by this version")),
        );
        all
    }
}

/// Whether a value is what a field has that is not given.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => matches!(text.as_str(), "" | "0s" | "0.0.0.0" | "::"),
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.values().all(says_nothing),
    }
}
