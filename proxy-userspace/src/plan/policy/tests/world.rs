//! A node with one Service, in few words.

use std::net::IpAddr;
use std::sync::Arc;

use proxy_common::net::Proto;

use super::judge::{Packet, Verdict, judge};
use crate::config::{Config, Detect, Mode};
use crate::model::{
    Endpoint, EndpointSlice, Family, Node, ObjectName, Protocol, Service, ServicePort, SlicePort,
    TrafficPolicy,
};
use crate::plan::op::Socket;
use crate::plan::policy::Policy;
use crate::plan::wanted::Wanted;

pub(super) const CLUSTER_IP: &str = "10.96.0.1";
/// The address of the load balancer.
pub(super) const BALANCER: &str = "198.51.100.1";
pub(super) const EXTERNAL: &str = "198.51.100.2";
/// The first address of the node, and one more.
pub(super) const PRIMARY: &str = "192.0.2.1";
pub(super) const SECONDARY: &str = "192.0.2.2";

/// Every way to the Service from outside, with the port there.
pub(super) const EXTERNAL_WAYS: [(&str, u16); 3] =
    [(BALANCER, 80), (EXTERNAL, 80), (PRIMARY, 30080)];

/// The node `one` in zone `a`, with one Service.
pub(super) struct World {
    pub(super) policy: Policy,
    pub(super) service: Service,
    pub(super) slices: Vec<Arc<EndpointSlice>>,
}

pub(super) fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// The configuration of this mode whose detector knows all pods of the cluster.
pub(super) fn config(mode: Mode) -> Config {
    let ranges = ["10.1.0.0/16", "fd00:1::/32"].map(|text| text.parse().unwrap());
    Config {
        mode,
        detect: Detect::ClusterCidr(ranges.into()),
        ..Config::default()
    }
}

pub(super) fn node() -> Node {
    Node {
        name: "one".into(),
        addresses: addresses(&[PRIMARY, "2001:db8::1"]),
        zone: Some("a".into()),
        pod_cidrs: Vec::new(),
    }
}

/// `ADDRESS[@NODE][/ready|/ending|/serving|/down][ zone=NAME][ node=NAME]`
pub(super) fn endpoint(text: &str) -> Endpoint {
    let mut words = text.split(' ');
    let place = words.next().unwrap();
    let (place, state) = place.split_once('/').unwrap_or((place, "ready"));
    let (addr, node) = place.split_once('@').unwrap_or((place, ""));
    let (ready, serving, terminating) = match state {
        "ready" => (true, true, false),
        "ready-ending" => (true, true, true),
        "ending" => (false, true, true),
        "serving" => (false, true, false),
        "down" => (false, false, true),
        other => panic!("{other}"),
    };
    let mut endpoint = Endpoint {
        address: addr.parse().unwrap(),
        node: Some(node).filter(|node| !node.is_empty()).map(Into::into),
        ready,
        serving,
        terminating,
        for_zones: Vec::new(),
        for_nodes: Vec::new(),
    };
    for hint in words {
        match hint.split_once('=').unwrap() {
            ("zone", zone) => endpoint.for_zones.push(zone.into()),
            ("node", node) => endpoint.for_nodes.push(node.into()),
            _ => panic!("{hint}"),
        }
    }
    endpoint
}

impl World {
    /// A Service that can be reached in every way.
    pub(super) fn new(config: Config) -> Self {
        let port = ServicePort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: 30080,
        };
        let name = ObjectName::new("default", "web");
        let mut policy = Policy::new("one", config);
        policy.follow_node(Some(&node()));
        let own = [PRIMARY, SECONDARY, "2001:db8::1", "2001:db8::2", "fe80::1"];
        policy.follow_addresses(Arc::new(addresses(&own).into_iter().collect()));
        Self {
            policy,
            service: Service {
                external_ips: addresses(&[EXTERNAL]),
                load_balancer_ips: addresses(&[BALANCER]),
                ..Service::new(name, addresses(&[CLUSTER_IP]), vec![port])
            },
            slices: Vec::new(),
        }
    }

    /// The same of one that has endpoints.
    pub(super) fn with_endpoints(mut self, texts: &[&str]) -> Self {
        let endpoints: Vec<_> = texts.iter().map(|text| endpoint(text)).collect();
        for family in Family::ALL {
            let own = endpoints.iter();
            let own = own.filter(|endpoint| Family::of(endpoint.address) == family);
            let name = format!("web-{}-{family}", self.slices.len());
            self.slices.push(Arc::new(EndpointSlice {
                name: ObjectName::new("default", &name),
                service: self.service.name.clone(),
                family,
                ports: vec![SlicePort {
                    name: "http".into(),
                    protocol: Protocol::Tcp,
                    port: 8080,
                }],
                endpoints: own.cloned().collect(),
            }));
        }
        self
    }

    pub(super) fn with_policies(
        mut self,
        internal: TrafficPolicy,
        external: TrafficPolicy,
    ) -> Self {
        self.service.internal_policy = internal;
        self.service.external_policy = external;
        self
    }

    pub(super) fn wanted(&self) -> Vec<Wanted> {
        self.policy.wanted(&self.service, &self.slices)
    }

    /// What becomes of a TCP packet: `drop`, `reject`, `pass`, or the endpoints that it may go to,
    /// with a star where it is masqueraded. It comes from `host`, a `pod` of this node, a
    /// `client`, or from any other address by a device.
    pub(super) fn send(&self, from: &str, to: &str, port: u16) -> String {
        self.send_as(Proto::TCP, from, to, port)
    }

    pub(super) fn send_as(&self, proto: Proto, from: &str, to: &str, port: u16) -> String {
        let to: IpAddr = to.parse().unwrap();
        let from = match (from, to) {
            ("host", IpAddr::V4(_)) => PRIMARY,
            ("host", IpAddr::V6(_)) => "2001:db8::1",
            ("pod", IpAddr::V4(_)) => "10.1.0.9",
            ("pod", IpAddr::V6(_)) => "fd00:1::9",
            ("client", IpAddr::V4(_)) => "203.0.113.9",
            ("client", IpAddr::V6(_)) => "2001:db8:ffff::9",
            _ => from,
        };
        let packet = Packet {
            is_host: [PRIMARY, "2001:db8::1"].contains(&from),
            from: from.parse().unwrap(),
            to: Socket {
                addr: to,
                port,
                proto,
            },
        };
        match judge(&self.policy, &self.wanted(), packet) {
            Verdict::Pass => "pass".to_owned(),
            Verdict::Drop => "drop".to_owned(),
            Verdict::Reject => "reject".to_owned(),
            Verdict::Forward(endpoints) => {
                let texts = endpoints.iter().map(|(addr, is_masqueraded)| {
                    format!("{addr}{}", if *is_masqueraded { "*" } else { "" })
                });
                texts.collect::<Vec<_>>().join(" ")
            }
        }
    }
}
