//! From one Service and its slices to the frontends and endpoints it should have.

use std::net::IpAddr;
use std::sync::Arc;

use proxy_common::net::Proto;

use super::op::Socket;
pub(super) use super::policy::merged;
use super::wanted;
use crate::model::{Family, Protocol, Service};

/// What tells one service port from the others of its Service.
///
/// The two families are service ports of their own: they share no address and can be in
/// different states.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PortKey {
    pub(super) name: Arc<str>,
    pub(super) protocol: Protocol,
    pub(super) family: Family,
}

/// What one service port should become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) key: PortKey,
    pub(super) frontends: Vec<Socket>,
    /// In order of address and port.
    pub(super) endpoints: Vec<WantedEndpoint>,
    /// Endpoints that are declared and cannot serve.
    pub(super) idle: Vec<(IpAddr, u16)>,
}

/// An endpoint that can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WantedEndpoint {
    pub(super) addr: IpAddr,
    pub(super) port: u16,
    /// Runs on this node.
    pub(super) is_local: bool,
    /// Takes new flows. One that does not, but serves, keeps the flows it has: kube-proxy forgets
    /// a UDP flow only when its endpoint stops serving.
    pub(super) is_listed: bool,
}

/// What the tables can hold so far of what the policy wants: cluster IPs.
pub(super) fn narrow(service: &Service, all: Vec<wanted::Wanted>) -> Vec<Wanted> {
    let narrowed = all.into_iter().filter_map(|wanted| {
        let own = service.ports.iter();
        let mut own = own.filter(|port| Proto::from(port.protocol) == wanted.key.proto);
        let port = own.find(|port| port.name == wanted.key.name)?;
        let frontends = wanted.frontends.iter().map(|frontend| frontend.at);
        let endpoints = wanted.endpoints.iter().map(|endpoint| WantedEndpoint {
            addr: endpoint.addr,
            port: endpoint.port,
            is_local: endpoint.is_local,
            is_listed: endpoint.is_listed(),
        });
        Some(Wanted {
            key: PortKey {
                name: wanted.key.name,
                protocol: port.protocol,
                family: wanted.key.family,
            },
            frontends: frontends
                .filter(|at| service.cluster_ips.contains(&at.addr))
                .collect(),
            endpoints: endpoints.collect(),
            idle: wanted.idle,
        })
    });
    narrowed.collect()
}

/// The same of one Service as it is by default.
#[cfg(test)]
pub(super) fn wanted(
    service: &Service,
    slices: &[Arc<crate::model::EndpointSlice>],
    node: &str,
) -> Vec<Wanted> {
    let policy = super::policy::Policy::new(node, crate::config::Config::default());
    narrow(service, policy.wanted(service, slices))
}
