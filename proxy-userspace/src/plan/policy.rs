//! The policy: from Services, their slices, what is known of this node and what is configured to
//! what every service port should become. Pure.

mod detector;
mod endpoints;
mod facts;
mod frontends;
mod node_ports;
mod standing;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use proxy_common::abi::Detector;

use endpoints::Endpoints;
pub(super) use endpoints::{Judged, merged};
use facts::Facts;
use frontends::Given;
use node_ports::NodePorts;
pub use standing::Standing;

use super::family::PerFamily;
use super::wanted::{List, PortKey, Wanted};
use crate::config::{Config, Mode};
use crate::model::{EndpointSlice, Family, Node, Service, ServicePort};

/// What is configured, and what is known of this node.
#[derive(Debug)]
pub(super) struct Policy {
    config: Config,
    facts: Facts,
    /// What follows from both for all Services.
    detector: Detector,
    node_ports: PerFamily<NodePorts>,
}

impl Policy {
    /// The policy on the node of this name.
    pub(super) fn new(node: &str, config: Config) -> Self {
        let facts = Facts::new(node);
        Self {
            detector: detector::detector(&config.detect, &facts),
            node_ports: node_ports(&config, &facts),
            config,
            facts,
        }
    }

    /// The same of another configuration.
    pub(super) fn with_config(self, config: Config) -> Self {
        Self {
            detector: detector::detector(&config.detect, &self.facts),
            node_ports: node_ports(&config, &self.facts),
            config,
            facts: self.facts,
        }
    }

    /// Name of this node.
    pub(super) const fn node(&self) -> &Arc<str> {
        &self.facts.node
    }

    /// Who is inside.
    pub(super) const fn detector(&self) -> Detector {
        self.detector
    }

    /// Takes in this node's Node object; whether Services may want something else now.
    pub(super) fn follow_node(&mut self, node: Option<&Node>) -> bool {
        let is_new = self.facts.follow(node);
        if is_new {
            self.detector = detector::detector(&self.config.detect, &self.facts);
            self.node_ports = node_ports(&self.config, &self.facts);
        }
        is_new
    }

    /// Takes in the addresses of this node's interfaces; which Services want something else now.
    pub(super) fn follow_addresses(&mut self, own: Arc<BTreeSet<IpAddr>>) -> Moved {
        let before = std::mem::replace(&mut self.facts.own, own);
        let changed = before.symmetric_difference(&self.facts.own);
        let addresses = changed.copied().collect();
        let node_ports = node_ports(&self.config, &self.facts);
        let moved = Family::ALL.map(|family| {
            let (old, new) = (self.node_ports.of(family), node_ports.of(family));
            (old != new).then_some(family)
        });
        self.node_ports = node_ports;
        Moved {
            node_ports: moved.into_iter().flatten().collect(),
            addresses,
        }
    }

    /// What the service ports of a Service should become.
    pub(super) fn wanted(&self, service: &Service, slices: &[Arc<EndpointSlice>]) -> Vec<Wanted> {
        let mut all = Vec::with_capacity(service.ports.len() * service.cluster_ips.len());
        for port in &service.ports {
            for &cluster_ip in &service.cluster_ips {
                all.push(self.port(service, port, cluster_ip, slices));
            }
        }
        // kube-proxy knows a cluster IP by its ports.
        if self.config.mode == Mode::Nftables && !service.ports.is_empty() {
            let foreign = service.cluster_ips.iter().copied();
            let foreign = foreign.filter(|addr| !self.facts.is_own(*addr));
            all.extend(foreign.map(frontends::whole_address));
        }
        all
    }

    /// The external IPs of a Service that are configured not to be served.
    pub(super) fn refused_external_ips(&self, service: &Service) -> impl Iterator<Item = IpAddr> {
        let given = service.external_ips.iter().copied();
        given.filter(|addr| !self.config.external_ips.include(*addr))
    }

    /// The endpoints of a service port, with the lists that they are in and why.
    pub(super) fn judged<'a>(
        &self,
        port: &ServicePort,
        family: Family,
        slices: &'a [Arc<EndpointSlice>],
    ) -> Vec<Judged<'a>> {
        endpoints::judged(port, family, slices, &self.facts)
    }

    /// What is configured.
    pub(super) const fn config(&self) -> &Config {
        &self.config
    }

    /// What is known of this node.
    pub(super) const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Where node ports of a family are served.
    pub(super) fn node_port_addresses(&self, family: Family) -> &[IpAddr] {
        &self.node_ports.of(family).served
    }

    fn port(
        &self,
        service: &Service,
        port: &ServicePort,
        cluster_ip: IpAddr,
        slices: &[Arc<EndpointSlice>],
    ) -> Wanted {
        let family = Family::of(cluster_ip);
        let mut endpoints = Endpoints::of(port, family, slices, &self.facts);
        let (frontends, sources) = Given {
            policy: self,
            service,
            port,
            cluster_ip,
            has_any: endpoints.has_any,
            has_local: endpoints.has_local,
        }
        .frontends();
        let is_used = |list| frontends.iter().any(|frontend| frontend.uses(list));
        let (uses_cluster, uses_local) = (is_used(List::Cluster), is_used(List::Local));
        for endpoint in &mut endpoints.able {
            endpoint.in_cluster &= uses_cluster;
            endpoint.in_local &= uses_local;
        }
        Wanted {
            key: PortKey {
                name: Arc::clone(&port.name),
                proto: port.protocol.into(),
                family,
            },
            frontends,
            endpoints: endpoints.able,
            idle: endpoints.idle,
            affinity_timeout: service.affinity_timeout.unwrap_or_default(),
            sources,
        }
    }
}

fn node_ports(config: &Config, facts: &Facts) -> PerFamily<NodePorts> {
    PerFamily {
        v4: NodePorts::of(config, facts, Family::V4),
        v6: NodePorts::of(config, facts, Family::V6),
    }
}

/// What a change of this node's addresses comes to.
#[derive(Debug)]
pub(super) struct Moved {
    /// Families whose node ports are reached elsewhere.
    node_ports: Vec<Family>,
    /// Addresses that are new, or gone.
    addresses: BTreeSet<IpAddr>,
}

impl Moved {
    /// Whether a Service may want something else.
    pub(super) fn concerns(&self, service: &Service) -> bool {
        let has_node_port = || service.ports.iter().any(|port| port.node_port != 0);
        if !self.node_ports.is_empty() && has_node_port() {
            let mut families = service.cluster_ips.iter().map(|addr| Family::of(*addr));
            if families.any(|family| self.node_ports.contains(&family)) {
                return true;
            }
        }
        let mut addresses = (service.cluster_ips.iter())
            .chain(&service.external_ips)
            .chain(&service.load_balancer_ips);
        addresses.any(|addr| self.addresses.contains(addr))
    }
}
