//! The ways by which a Service can be entered.

use std::net::SocketAddr;

use xtask::lab::Family;
use xtask::lab::manifest::{Endpoint, Service};

use super::world::World;

/// A way into a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// Its Cluster IPs.
    Cluster,
    /// Its node port on the first node.
    NodePort,
    /// An address of a load balancer, of the range that is routed to the first node.
    Balancer,
}

/// A Service that has all of these, with one endpoint, and this policy for traffic from outside.
pub(super) fn service(endpoint: Endpoint, policy: &str) -> Service {
    Service::new("web", 10)
        .at_node_port(30_080)
        .balanced(20)
        .specified(&format!("externalTrafficPolicy: {policy}"))
        .with([endpoint])
}

impl Door {
    /// What clients of such a Service connect to.
    pub(super) fn target(self, world: &World, service: &Service, family: Family) -> SocketAddr {
        let node = world.lab.node(1).addresses;
        let (addresses, port) = match self {
            Self::Cluster => (service.addresses, service.port),
            Self::NodePort => (node, service.node_port.unwrap()),
            Self::Balancer => (service.balancer.unwrap(), service.port),
        };
        (addresses.of(family), port).into()
    }
}
