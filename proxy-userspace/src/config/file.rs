//! The fields of `KubeProxyConfiguration`, as they are written.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Every field of `kubeproxy.config.k8s.io/v1alpha1`. Those that say nothing of where packets go
/// are known and not read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
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
    #[serde(rename = "featureGates")]
    _feature_gates: Option<IgnoredAny>,
    #[serde(rename = "clientConnection")]
    _client_connection: Option<IgnoredAny>,
    #[serde(rename = "logging")]
    _logging: Option<IgnoredAny>,
    #[serde(rename = "hostnameOverride")]
    _hostname_override: Option<IgnoredAny>,
    #[serde(rename = "bindAddress")]
    _bind_address: Option<IgnoredAny>,
    #[serde(rename = "healthzBindAddress")]
    _healthz_bind_address: Option<IgnoredAny>,
    #[serde(rename = "metricsBindAddress")]
    _metrics_bind_address: Option<IgnoredAny>,
    #[serde(rename = "bindAddressHardFail")]
    _bind_address_hard_fail: Option<IgnoredAny>,
    #[serde(rename = "enableProfiling")]
    _enable_profiling: Option<IgnoredAny>,
    #[serde(rename = "showHiddenMetricsForVersion")]
    _show_hidden_metrics_for_version: Option<IgnoredAny>,
    #[serde(rename = "ipvs")]
    _ipvs: Option<IgnoredAny>,
    #[serde(rename = "winkernel")]
    _winkernel: Option<IgnoredAny>,
    #[serde(rename = "oomScoreAdj")]
    _oom_score_adj: Option<IgnoredAny>,
    #[serde(rename = "conntrack")]
    _conntrack: Option<IgnoredAny>,
    #[serde(rename = "configSyncPeriod")]
    _config_sync_period: Option<IgnoredAny>,
    #[serde(rename = "portRange")]
    _port_range: Option<IgnoredAny>,
    #[serde(rename = "windowsRunAsService")]
    _windows_run_as_service: Option<IgnoredAny>,
    #[serde(rename = "udpIdleTimeout")]
    _udp_idle_timeout: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct DetectLocal {
    pub(super) bridge_interface: Option<String>,
    pub(super) interface_name_prefix: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Iptables {
    pub(super) masquerade_bit: Option<i32>,
    pub(super) masquerade_all: Option<bool>,
    pub(super) localhost_node_ports: Option<bool>,
    #[serde(rename = "syncPeriod")]
    _sync_period: Option<IgnoredAny>,
    #[serde(rename = "minSyncPeriod")]
    _min_sync_period: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Nftables {
    pub(super) masquerade_bit: Option<i32>,
    pub(super) masquerade_all: Option<bool>,
    #[serde(rename = "syncPeriod")]
    _sync_period: Option<IgnoredAny>,
    #[serde(rename = "minSyncPeriod")]
    _min_sync_period: Option<IgnoredAny>,
}
