//! The ways by which a Service can be entered.

use std::net::SocketAddr;

use xtask::lab::manifest::Service;
use xtask::lab::{Addresses, Family};

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

const NODE_PORT: u16 = 30_080;
/// As in the Services that tests make first.
const CLUSTER: Addresses = Addresses::service(10);
const BALANCER: Addresses = Addresses::service(20);

impl Door {
    /// Starts the proxies with a Service, the tenth, that has all of these, and this policy for
    /// traffic from outside.
    pub(super) fn open(self, world: &mut World, service: &Service, policy: &str) {
        assert_eq!(CLUSTER, service.addresses);
        world.manifests.write_service(service).unwrap();
        let yaml = service.yaml();
        let yaml = yaml.replace(
            "  type: ClusterIP\n",
            &format!("  type: LoadBalancer\n  externalTrafficPolicy: {policy}\n"),
        );
        let port = format!("targetPort: 8080, nodePort: {NODE_PORT}}}");
        let yaml = yaml.replace("targetPort: 8080}", &port);
        assert_eq!(2, yaml.matches("nodePort").count());
        let status = format!(
            "status: {{loadBalancer: {{ingress: [{{ip: \"{}\"}}, {{ip: \"{}\"}}]}}}}\n",
            BALANCER.v4, BALANCER.v6
        );
        world
            .manifests
            .write("service-web", &(yaml + &status))
            .unwrap();
        world.start();
    }

    /// What clients connect to.
    pub(super) fn target(self, world: &World, family: Family) -> SocketAddr {
        match self {
            Self::Cluster => (CLUSTER.of(family), 80).into(),
            Self::NodePort => (world.lab.node(1).addresses.of(family), NODE_PORT).into(),
            Self::Balancer => (BALANCER.of(family), 80).into(),
        }
    }
}
