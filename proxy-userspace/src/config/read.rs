//! From the text of a configuration file to the settings.

use serde_json::Value;

use super::file::{DetectLocal, File};
use super::{Config, Detect, ExternalIps, IpNet, Mode, NodePortAddresses};
use crate::cluster::{Invalid, parse_net};
use crate::model::Family;

const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
const KIND: &str = "KubeProxyConfiguration";
/// The longest name of a device.
const NAME_LEN: usize = 15;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot be read")]
    Unreadable(#[from] std::io::Error),
    /// It is neither YAML nor JSON.
    #[error("cannot be parsed: {0}")]
    Syntax(String),
    /// A field is unknown, or has something of another type.
    #[error("{field}: {message}")]
    Field {
        /// Path of the field.
        field: String,
        /// What is wrong.
        message: String,
    },
    /// A field has a value that it cannot have.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// What a configuration file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The settings that decide where packets go.
    pub config: Config,
    /// The name of this node (`hostnameOverride`).
    pub node_name: Option<String>,
    /// A line for each field that is given and not read.
    pub unread: Vec<String>,
}

impl Configuration {
    /// Reads a `KubeProxyConfiguration` in YAML or JSON. As by kube-proxy, unknown fields are
    /// passed over.
    pub fn read(text: &str) -> Result<Self, ConfigError> {
        let value: Value =
            serde_saphyr::from_str(text).map_err(|error| ConfigError::Syntax(error.to_string()))?;
        let file: File = serde_path_to_error::deserialize(&value).map_err(|error| {
            let path = error.path().to_string();
            let message = error.into_inner().to_string();
            let at_top = path == ".";
            ConfigError::Field {
                field: if at_top { KIND.to_owned() } else { path },
                message,
            }
        })?;
        expect("apiVersion", file.api_version.as_deref(), API_VERSION)?;
        expect("kind", file.kind.as_deref(), KIND)?;
        let name = file.hostname_override.as_deref().map(str::trim);
        Ok(Self {
            config: settings(&file)?,
            node_name: name.filter(|name| !name.is_empty()).map(str::to_lowercase),
            unread: file.unread(),
        })
    }
}

fn expect(field: &str, given: Option<&str>, legal: &'static str) -> Result<(), Invalid> {
    match given {
        Some(given) if given == legal => Ok(()),
        other => Err(Invalid::new(
            field,
            other.unwrap_or_default(),
            if field == "kind" {
                "legal is KubeProxyConfiguration"
            } else {
                "legal is kubeproxy.config.k8s.io/v1alpha1"
            },
        )),
    }
}

fn settings(file: &File) -> Result<Config, Invalid> {
    let default = Config::default();
    let mode = mode(file.mode.as_deref())?;
    let (iptables, nftables) = (file.iptables.as_ref(), file.nftables.as_ref());
    let (bit, all) = match mode {
        Mode::Iptables => (
            bit("iptables", iptables.and_then(|own| own.masquerade_bit))?,
            iptables.and_then(|own| own.masquerade_all),
        ),
        Mode::Nftables => (
            bit("nftables", nftables.and_then(|own| own.masquerade_bit))?,
            nftables.and_then(|own| own.masquerade_all),
        ),
    };
    let localhost = iptables.and_then(|own| own.localhost_node_ports);
    let config = Config {
        mode,
        detect: detect(file)?,
        node_port_addresses: node_port_addresses(file.node_port_addresses.as_deref())?,
        localhost_node_ports: localhost.unwrap_or(default.localhost_node_ports),
        masquerade_all: all.unwrap_or(default.masquerade_all),
        external_ips: match file.feature_gates.as_ref().and_then(|own| own.external_ips) {
            Some(false) => ExternalIps::Deny,
            Some(true) | None => default.external_ips,
        },
        ..default
    };
    Ok(match bit {
        Some(bit) => config.with_masquerade_bit(bit),
        None => config,
    })
}

/// The mode whose behaviour counts. That of `ipvs` is nearest to that of `iptables`.
fn mode(given: Option<&str>) -> Result<Mode, Invalid> {
    match given.unwrap_or_default() {
        "" | "iptables" | "ipvs" => Ok(Mode::Iptables),
        "nftables" => Ok(Mode::Nftables),
        other => Err(Invalid::new(
            "mode",
            other,
            "legal are iptables, nftables and ipvs",
        )),
    }
}

fn bit(section: &str, given: Option<i32>) -> Result<Option<u8>, Invalid> {
    let Some(given) = given else {
        return Ok(None);
    };
    match u8::try_from(given) {
        Ok(bit) if bit < 32 => Ok(Some(bit)),
        _ => Err(Invalid::new(
            format!("{section}.masqueradeBit"),
            given,
            "legal are 0 to 31",
        )),
    }
}

fn detect(file: &File) -> Result<Detect, Invalid> {
    let none = DetectLocal::default();
    let local = file.detect_local.as_ref().unwrap_or(&none);
    match file.detect_local_mode.as_deref().unwrap_or_default() {
        "" | "ClusterCIDR" => cluster_cidrs(file.cluster_cidr.as_deref()).map(Detect::ClusterCidr),
        "NodeCIDR" => Ok(Detect::NodeCidr),
        "BridgeInterface" => device("bridgeInterface", local.bridge_interface.as_deref())
            .map(Detect::BridgeInterface),
        "InterfaceNamePrefix" => device(
            "interfaceNamePrefix",
            local.interface_name_prefix.as_deref(),
        )
        .map(Detect::InterfaceNamePrefix),
        other => Err(Invalid::new(
            "detectLocalMode",
            other,
            "legal are ClusterCIDR, NodeCIDR, BridgeInterface and InterfaceNamePrefix",
        )),
    }
}

fn device(field: &str, given: Option<&str>) -> Result<String, Invalid> {
    let name = given.unwrap_or_default();
    let is_legal = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    if name.is_empty() || name.len() > NAME_LEN || !name.bytes().all(is_legal) {
        return Err(Invalid::new(
            format!("detectLocal.{field}"),
            name,
            "give the name of a device, or how it begins: 1 to 15 characters",
        ));
    }
    Ok(name.to_owned())
}

fn cluster_cidrs(given: Option<&str>) -> Result<Vec<IpNet>, Invalid> {
    const LEGAL: &str = "give a range such as 10.244.0.0/16, or one of each family with a comma \
                         between them";
    let text = given.unwrap_or_default();
    let mut ranges: Vec<IpNet> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let family = |net: &IpNet| Family::of(net.addr());
        let range = parse_net(part);
        let range = range.filter(|new| ranges.iter().all(|old| family(old) != family(new)));
        ranges.push(range.ok_or_else(|| Invalid::new("clusterCIDR", text, LEGAL))?);
    }
    Ok(ranges)
}

/// Ranges, and words that stand for some.
fn node_port_addresses(given: Option<&[String]>) -> Result<NodePortAddresses, Invalid> {
    const LEGAL: &str = "give a range such as 192.0.2.0/24, or once each primary, localhost or all";
    let given = given.unwrap_or_default();
    if given.is_empty() {
        return Ok(NodePortAddresses::Default);
    }
    let (mut primary, mut ranges) = (false, Vec::new());
    for (index, text) in given.iter().enumerate() {
        let invalid = || Invalid::new(format!("nodePortAddresses[{index}]"), text, LEGAL);
        let words = match text.as_str() {
            "primary" => &[][..],
            "localhost" => &["127.0.0.0/8", "::1/128"],
            "all" => &["0.0.0.0/0", "::/0"],
            _ => {
                ranges.push(parse_net(text).ok_or_else(invalid)?);
                continue;
            }
        };
        if given.iter().take(index).any(|other| other == text) {
            return Err(invalid());
        }
        primary |= text == "primary";
        ranges.extend(words.iter().filter_map(|word| parse_net(word)));
    }
    Ok(NodePortAddresses::In { primary, ranges })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &str) -> Result<Config, String> {
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}");
        let read = Configuration::read(&text).map_err(|error| error.to_string());
        read.map(|read| read.config)
    }

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn what_is_not_given_is_as_by_default() {
        assert_eq!(Ok(Config::default()), read(""));
        // As kubeadm writes it.
        let kubeadm = "
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: \"\"
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack: {maxPerCore: null, min: null, tcpBeLiberal: false}
detectLocal: {bridgeInterface: \"\", interfaceNamePrefix: \"\"}
detectLocalMode: \"\"
enableProfiling: false
healthzBindAddress: \"\"
hostnameOverride: \"\"
iptables: {localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
ipvs: {excludeCIDRs: null, scheduler: \"\", strictARP: false}
logging: {flushFrequency: 0, verbosity: 0}
metricsBindAddress: \"\"
mode: \"\"
nftables: {masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
nodePortAddresses: null
oomScoreAdj: null
portRange: \"\"
showHiddenMetricsForVersion: \"\"
winkernel: {enableDSR: false}
";
        let expected = Config {
            detect: Detect::ClusterCidr(nets(&["10.244.0.0/16"])),
            ..Config::default()
        };
        assert_eq!(Ok(expected), read(kubeadm));
    }

    #[test]
    fn what_is_not_read_is_told_and_keeps_nobody_from_starting() {
        let text = format!(
            "apiVersion: {API_VERSION}
kind: {KIND}
modus: iptables
iptables: {{masqueradeall: true, syncPeriod: 0s}}
bindAddress: 192.0.2.1
healthzBindAddress: ''
conntrack: {{tcpBeLiberal: true}}
hostnameOverride: ' Node-7 '
featureGates: {{AllowServiceExternalIPs: false, Other: true}}
clusterCIDR: 10.1.0.0/16,10.2.0.0/16
detectLocalMode: NodeCIDR
"
        );
        let read = Configuration::read(&text).unwrap();
        assert_eq!(Some("node-7"), read.node_name.as_deref());
        assert_eq!(ExternalIps::Deny, read.config.external_ips);
        assert!(!read.config.masquerade_all);
        // Of another mode than is configured.
        assert_eq!(Detect::NodeCidr, read.config.detect);
        let mut unread = read.unread;
        unread.sort_unstable();
        assert_eq!(
            [
                "bindAddress: not read by this version",
                "conntrack: not read by this version",
                "featureGates.Other: not read by this version",
                "iptables.masqueradeall: no such field",
                "modus: no such field",
            ],
            unread[..]
        );
    }

    #[test]
    fn each_field_counts_in_its_mode() {
        let sections = "
iptables: {masqueradeAll: true, masqueradeBit: 3, localhostNodePorts: false}
nftables: {masqueradeBit: 15}
";
        let iptables = Config {
            masquerade_all: true,
            masquerade_bit: 3,
            localhost_node_ports: false,
            ..Config::default()
        };
        for mode in ["iptables", "ipvs", "''"] {
            let text = format!("mode: {mode}{sections}");
            assert_eq!(Ok(iptables.clone()), read(&text), "{mode}");
        }
        let nftables = Config {
            mode: Mode::Nftables,
            masquerade_bit: 15,
            // The default would be the same bit.
            reject_bit: 14,
            localhost_node_ports: false,
            ..Config::default()
        };
        assert_eq!(Ok(nftables), read(&format!("mode: nftables{sections}")));
    }

    #[test]
    fn detectors_and_addresses_are_read() {
        let detect = |fields| read(fields).map(|config| config.detect);
        let both = nets(&["10.244.0.0/16", "fd00:10:244::/56"]);
        for (fields, expected) in [
            (
                "clusterCIDR: '10.244.0.0/16,fd00:10:244::/56'",
                Detect::ClusterCidr(both),
            ),
            ("detectLocalMode: NodeCIDR", Detect::NodeCidr),
            (
                "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0}",
                Detect::BridgeInterface("cni0".into()),
            ),
            (
                "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: cali}",
                Detect::InterfaceNamePrefix("cali".into()),
            ),
        ] {
            assert_eq!(Ok(expected), detect(fields), "{fields}");
        }
        let addresses = |fields| read(fields).map(|config| config.node_port_addresses);
        for (fields, expected) in [
            ("nodePortAddresses: []", NodePortAddresses::Default),
            (
                "nodePortAddresses: [primary]",
                NodePortAddresses::In {
                    primary: true,
                    ranges: vec![],
                },
            ),
            (
                "nodePortAddresses: [192.0.2.0/24, '::/0']",
                NodePortAddresses::In {
                    primary: false,
                    ranges: nets(&["192.0.2.0/24", "::/0"]),
                },
            ),
            (
                "nodePortAddresses: [localhost, primary, '::ffff:192.0.2.0/120']",
                NodePortAddresses::In {
                    primary: true,
                    ranges: nets(&["127.0.0.0/8", "::1/128", "192.0.2.0/24"]),
                },
            ),
            (
                "nodePortAddresses: [all]",
                NodePortAddresses::In {
                    primary: false,
                    ranges: nets(&["0.0.0.0/0", "::/0"]),
                },
            ),
        ] {
            assert_eq!(Ok(expected), addresses(fields), "{fields}");
        }
    }

    #[test]
    fn mistakes_name_the_field_and_what_is_legal() {
        for (fields, message) in [
            (
                "mode: kernelspace",
                "mode: kernelspace is not legal; legal are iptables, nftables and ipvs",
            ),
            (
                "iptables: {masqueradeBit: 32}",
                "iptables.masqueradeBit: 32 is not legal; legal are 0 to 31",
            ),
            (
                "clusterCIDR: 10.1.0.0/16,10.2.0.0/16",
                "clusterCIDR: 10.1.0.0/16,10.2.0.0/16 is not legal; give a range such as \
                 10.244.0.0/16, or one of each family with a comma between them",
            ),
            (
                "detectLocalMode: BridgeInterface",
                "detectLocal.bridgeInterface: nothing is not legal; give the name of a device, or \
                 how it begins: 1 to 15 characters",
            ),
            (
                "detectLocalMode: Bridge",
                "detectLocalMode: Bridge is not legal; legal are ClusterCIDR, NodeCIDR, \
                 BridgeInterface and InterfaceNamePrefix",
            ),
            (
                "nodePortAddresses: [primary, 192.0.2.0/24, primary]",
                "nodePortAddresses[2]: primary is not legal; give a range such as 192.0.2.0/24, or \
                 once each primary, localhost or all",
            ),
        ] {
            assert_eq!(Err(message.to_owned()), read(fields), "{fields}");
        }
        for (fields, start) in [
            (
                "iptables: {masqueradeAll: 1}",
                "iptables.masqueradeAll: invalid type: integer `1`, expected a boolean",
            ),
            ("mode: [a", "cannot be parsed: "),
        ] {
            let message = read(fields).unwrap_err();
            assert!(message.starts_with(start), "{fields}: {message}");
        }
        let other = Configuration::read("apiVersion: v1\nkind: KubeProxyConfiguration");
        let message = "apiVersion: v1 is not legal; legal is kubeproxy.config.k8s.io/v1alpha1";
        assert_eq!(message, other.unwrap_err().to_string());
    }
}
