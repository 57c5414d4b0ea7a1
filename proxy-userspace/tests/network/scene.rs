//! Two nodes, an endpoint on each, a Service of both, and what its clients get to see.

use std::net::{IpAddr, SocketAddr};

use xtask::lab::client::{Answer, Connection};
use xtask::lab::draw::draw_here;
use xtask::lab::manifest::{Endpoint, Service};
use xtask::lab::network::Network;
use xtask::lab::observe;
use xtask::lab::server::Server;
use xtask::lab::{Family, Host, Protocol};

use super::world::{World, serve};

pub(super) const NODE_PORT: u16 = 30_080;
/// Detects pods by their addresses, as most clusters are set up.
pub(super) const CLUSTER_CIDR: &str = "clusterCIDR: 10.244.0.0/16,fd00:10:244::/48";
/// 40 draws miss one of two once in 10^12 times.
const DRAWS: usize = 40;

pub(super) struct Scene {
    pub(super) world: World,
    pub(super) service: Service,
    /// One of each node, and both are endpoints.
    pub(super) pods: [Host; 2],
    /// One more pod on the first node.
    pub(super) client: Host,
    servers: Vec<Server>,
}

impl Scene {
    /// The Service as `shape` makes it of one at a cluster IP, under proxies with these lines of
    /// configuration.
    pub(super) fn new(config: &str, shape: impl FnOnce(Service) -> Service) -> Option<Self> {
        Self::on(Network::default(), config, shape)
    }

    /// The same with another CNI.
    pub(super) fn on(
        network: Network,
        config: &str,
        shape: impl FnOnce(Service) -> Service,
    ) -> Option<Self> {
        let mut world = World::on(2, network)?;
        world.configure(config);
        let pods = [1, 2].map(|node| world.lab.pod(node).unwrap());
        let servers = pods.iter().map(serve).collect();
        // Before the proxy: else its first packet may meet a device that nothing is attached to.
        let client = world.lab.pod(1).unwrap();
        let places = [1, 2].map(|node| world.lab.node(node));
        let endpoints = pods.iter().zip(&places);
        let service =
            Service::new("web", 10).with(endpoints.map(|(pod, node)| Endpoint::new(pod, node)));
        let service = shape(service);
        world.start_with(&service);
        Some(Self {
            world,
            service,
            pods,
            client,
            servers,
        })
    }

    /// The same with one endpoint only, that of a node.
    pub(super) fn with_endpoint_on(
        node: usize,
        config: &str,
        shape: impl FnOnce(Service) -> Service,
    ) -> Option<Self> {
        Self::new(config, |service| {
            let mut service = shape(service);
            service.endpoints = vec![service.endpoints.swap_remove(node - 1)];
            service
        })
    }

    pub(super) fn outside(&self) -> Host {
        self.world.lab.outside().clone()
    }

    /// The node port of a node.
    pub(super) fn door(&self, node: u8, family: Family) -> SocketAddr {
        (self.world.lab.node(node).addresses.of(family), NODE_PORT).into()
    }

    /// Names of all endpoints.
    pub(super) fn all(&self) -> Vec<&str> {
        self.pods.iter().map(|pod| pod.name.as_str()).collect()
    }

    /// Fails if anything has come to any endpoint.
    pub(super) fn assert_unused(&self) {
        for server in &self.servers {
            assert_eq!((0, 0), (server.accepted(), server.datagrams()));
        }
    }

    /// How many datagrams have come to all endpoints.
    pub(super) fn datagrams(&self) -> u64 {
        self.servers.iter().map(Server::datagrams).sum()
    }

    /// Fails if endpoints saw anybody but this node.
    pub(super) fn assert_masqueraded(&self, answers: &[Answer], node: u8) {
        assert_seen_as(&self.world.lab.node(node), answers);
    }

    /// Fails if the host stack of any node saw the Service, at one of these addresses as well, or
    /// its node port.
    pub(super) fn assert_unnoticed(&self, vips: &[IpAddr]) {
        self.world.assert_unnoticed(&[&self.service]);
        let mut complaints = observe::complaints(&self.world.lab, vips).unwrap();
        // What is sent to it; answers may come to that port of a masqueraded client.
        let node_port = format!("dport={NODE_PORT}");
        let is_to_it = |entry: &String| {
            let first = entry.split(' ').find(|word| word.starts_with("dport="));
            first == Some(&node_port)
        };
        for node in self.world.lab.nodes() {
            let entries = observe::conntrack(&node.namespace).unwrap();
            complaints.extend(entries.into_iter().filter(is_to_it));
        }
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }
}

/// Fails if endpoints saw anybody but this host.
pub(super) fn assert_seen_as(host: &Host, answers: &[Answer]) {
    let own = Family::ALL.map(|family| host.addresses.of(family));
    let stranger = answers
        .iter()
        .find(|answer| !own.contains(&answer.peer.ip()));
    assert!(stranger.is_none(), "not {}: {stranger:?}", host.name);
}

/// Who answers to new connections and to new flows, and whom they see.
pub(super) fn answers(client: &Host, target: SocketAddr) -> [Vec<Answer>; 2] {
    let connections = (0..DRAWS).map(|_| {
        let mut open = Connection::open(client, target).unwrap();
        open.echo("hello").unwrap();
        let answer = open.answer().clone();
        open.close().unwrap();
        answer
    });
    let connections = connections.collect();
    let flows = (0..DRAWS).map(|_| new_flow(client, target));
    [connections, flows.collect()]
}

/// Who answers to a flow that is certainly a new one.
pub(super) fn new_flow(client: &Host, target: SocketAddr) -> Answer {
    let ask = || draw_here(client, Protocol::Udp, target);
    client.namespace.enter(ask).unwrap()
}

pub(super) fn names(answers: &[Answer]) -> Vec<&str> {
    let mut all: Vec<_> = answers.iter().map(|answer| answer.name.as_str()).collect();
    all.sort_unstable();
    all.dedup();
    all
}
