//! What a case declares, in the terms of the planner: objects by the controller's own reading.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node as ApiNode, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube_lottery::cluster::{Convert, Converted, Invalid};
use kube_lottery::config::{Config, Configuration, Mode};
use kube_lottery::model::{Change, Object, ServiceCidr};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::case::{Case, DetectLocalMode, Node};

/// What a case declares.
#[derive(Debug)]
pub struct Declared {
    /// Everything, as changes of an empty cluster.
    pub changes: Vec<Change>,
    /// What the controller does not take, with its reasons.
    pub left_out: Vec<String>,
}

/// The configuration of a case's proxy in one mode.
pub fn config(node: &Node, mode: Mode) -> Result<Config> {
    // As from a file, so that its words and ranges are read as they are there.
    let given = &node.config;
    let file = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode_name(mode),
        "detectLocalMode": match given.detect_local_mode {
            DetectLocalMode::NodeCIDR => "NodeCIDR",
            DetectLocalMode::ClusterCIDR => "ClusterCIDR",
        },
        "clusterCIDR": given.cluster_cidr,
        "nodePortAddresses": given.node_port_addresses,
        "iptables": {
            "localhostNodePorts": given.iptables_localhost_node_ports,
            "masqueradeAll": given.masquerade_all,
        },
        "nftables": {"masqueradeAll": given.masquerade_all},
    });
    Ok(Configuration::read(&file.to_string())?.config)
}

const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Iptables => "iptables",
        Mode::Nftables => "nftables",
    }
}

/// What a case declares, the addresses of its node's interfaces included.
pub fn declared(case: &Case) -> Result<Declared> {
    let mut all = Reading::default();
    all.take::<ApiNode>(&node(&case.node), "the node")?;
    for (index, object) in case.objects.iter().enumerate() {
        let place = format!("objects[{index}]");
        match object.get("kind").and_then(Value::as_str) {
            Some("Service") => all.take::<Service>(object, &place)?,
            Some("EndpointSlice") => all.take::<EndpointSlice>(object, &place)?,
            kind => bail!("{place}: kind {kind:?} is none that a case has"),
        }
    }
    let Reading {
        mut changes,
        left_out,
    } = all;
    for (index, cidr) in case.node.config.service_cidrs.iter().enumerate() {
        changes.push(service_cidr(index, *cidr));
    }
    changes.push(Change::Addresses(Arc::new(addresses(&case.node))));
    Ok(Declared { changes, left_out })
}

/// All addresses of the node's interfaces.
pub fn addresses(node: &Node) -> BTreeSet<IpAddr> {
    let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    node.ips.iter().copied().chain(loopback).collect()
}

#[derive(Default)]
struct Reading {
    changes: Vec<Change>,
    left_out: Vec<String>,
}

impl Reading {
    fn take<T: Convert + DeserializeOwned>(&mut self, value: &Value, place: &str) -> Result<()> {
        let object: T = serde_json::from_value(value.clone()).with_context(|| place.to_owned())?;
        let say = |reason: &Invalid| format!("{place}: {reason}");
        match object.convert() {
            Ok(Converted {
                object, left_out, ..
            }) => {
                self.changes.extend(object.map(Change::Set));
                self.left_out.extend(left_out.iter().map(say));
            }
            // It may be what the case is about.
            Err(invalid) => self.left_out.push(say(&invalid)),
        }
        Ok(())
    }
}

/// The Node as the API server has it.
pub fn node(node: &Node) -> Value {
    let mut labels = BTreeMap::from([("kubernetes.io/hostname", &node.name)]);
    if !node.zone.is_empty() {
        labels.insert("topology.kubernetes.io/zone", &node.zone);
    }
    let primary = [true, false].map(|is_v4| node.ips.iter().find(|ip| ip.is_ipv4() == is_v4));
    let addresses: Vec<_> = primary
        .into_iter()
        .flatten()
        .map(|ip| json!({ "type": "InternalIP", "address": ip }))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": node.name, "labels": labels },
        "spec": { "podCIDR": node.pod_cidrs.first(), "podCIDRs": node.pod_cidrs },
        "status": { "addresses": addresses },
    })
}

fn service_cidr(index: usize, cidr: IpNet) -> Change {
    Change::Set(Object::ServiceCidr(Arc::new(ServiceCidr {
        name: format!("cidr-{index}").into(),
        cidrs: vec![cidr],
    })))
}
