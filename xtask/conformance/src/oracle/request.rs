//! What the oracle is told of a case.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kube_lottery::config::Mode;
use proxy_common::net::Proto;
use serde::Serialize;
use serde_json::{Value, json};

use crate::case::{Case, Entry, Node, Packet, Protocol};
use crate::cluster;
use crate::draws::{address_of, items, most_backends, that_show_all};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    objects: Vec<Value>,
    config: Value,
    node: String,
    has_zone: bool,
    addresses: Vec<IpAddr>,
    pods: BTreeSet<IpAddr>,
    ports: BTreeSet<u16>,
    packets: Vec<First>,
}

#[derive(Debug, Serialize)]
struct First {
    proto: u8,
    from: IpAddr,
    #[serde(rename = "in")]
    entry: Entry,
    to: IpAddr,
    port: u16,
    flows: usize,
}

pub(super) fn request(case: &Case, mode: Mode) -> Request {
    let Case { node, packets, .. } = case;
    let mut objects = vec![cluster::node(node)];
    objects.extend(case.objects.iter().cloned());
    for (index, cidr) in node.config.service_cidrs.iter().enumerate() {
        objects.push(json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "ServiceCIDR",
            "metadata": { "name": format!("cidr-{index}") },
            "spec": { "cidrs": [cidr] },
        }));
    }
    let [v4, v6] = [true, false].map(|is_v4| that_show_all(most_backends(case, is_v4)));
    let first = |packet: &Packet| First {
        proto: Proto::from(packet.proto).0,
        from: packet.from,
        entry: packet.entry,
        to: packet.to,
        port: packet.port,
        flows: if packet.to.is_ipv4() { v4 } else { v6 },
    };
    Request {
        objects,
        config: config(node, mode),
        node: node.name.clone(),
        has_zone: !node.zone.is_empty(),
        addresses: node.ips.clone(),
        pods: pods(case),
        ports: ports(case),
        packets: packets.iter().map(first).collect(),
    }
}

/// The `KubeProxyConfiguration`, but for the way to the API server.
fn config(node: &Node, mode: Mode) -> Value {
    let given = &node.config;
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": match mode {
            Mode::Iptables => "iptables",
            Mode::Nftables => "nftables",
        },
        "nodePortAddresses": given.node_port_addresses,
        "detectLocalMode": given.detect_local_mode,
        "clusterCIDR": given.cluster_cidr,
        "iptables": {
            "masqueradeAll": given.masquerade_all,
            "localhostNodePorts": given.iptables_localhost_node_ports,
        },
        "nftables": { "masqueradeAll": given.masquerade_all },
        // The sizes and times of the machine's conntrack are not this node's to change.
        "conntrack": {
            "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
            "udpTimeout": "0s", "udpStreamTimeout": "0s",
        },
        "oomScoreAdj": 0,
    })
}

fn slices(case: &Case) -> impl Iterator<Item = &Value> {
    case.objects
        .iter()
        .filter(|object| object["kind"] == "EndpointSlice")
}

/// What the node reaches by its interface for pods: its own endpoints, and whoever sends from there.
fn pods(case: &Case) -> BTreeSet<IpAddr> {
    let endpoints = slices(case)
        .flat_map(|slice| items(&slice["endpoints"]))
        .filter(|endpoint| endpoint["nodeName"] == case.node.name.as_str())
        .filter_map(address_of);
    let senders = case
        .packets
        .iter()
        .filter(|packet| packet.entry == Entry::Pod)
        .map(|packet| packet.from);
    let own = cluster::addresses(&case.node);
    endpoints
        .chain(senders)
        .filter(|addr| !own.contains(addr))
        .collect()
}

/// Ports where datagrams may be delivered on the node.
fn ports(case: &Case) -> BTreeSet<u16> {
    let datagrams = case
        .packets
        .iter()
        .filter(|packet| packet.proto == Protocol::Udp);
    let targets = slices(case)
        .flat_map(|slice| items(&slice["ports"]))
        .filter_map(|port| u16::try_from(port["port"].as_u64()?).ok());
    datagrams
        .map(|packet| packet.port)
        .chain(targets)
        .filter(|port| *port > 0)
        .collect()
}
