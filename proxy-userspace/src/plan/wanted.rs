//! What policy asks of the tables: the service ports of a Service with their frontends, endpoints
//! and source ranges.

use std::net::IpAddr;
use std::sync::Arc;

use proxy_common::abi::FrontendFlags;
use proxy_common::net::Proto;

use super::op::Socket;
use crate::model::{Family, IpNet};

/// What tells one service port from the others of its Service.
///
/// The two families are service ports of their own: they share no address and can be in
/// different states.
///
/// `Proto(0)` is the whole address of a cluster IP, for packets to ports that no Service has. Its
/// frontend has port 0 and that protocol, and there are no endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PortKey {
    pub name: Arc<str>,
    pub proto: Proto,
    pub family: Family,
}

impl PortKey {
    /// Where an endpoint of this service port listens.
    pub(super) const fn socket(&self, addr: IpAddr, port: u16) -> Socket {
        Socket {
            addr,
            port,
            proto: self.proto,
        }
    }
}

/// What one service port should become, in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub key: PortKey,
    /// The most useful first: the cluster IP, by which a service port is known again after a
    /// restart, addresses of load balancers and external ones, node ports at the primary address,
    /// other node ports. Only the first of several at one socket counts.
    pub frontends: Vec<WantedFrontend>,
    /// In order of address and port.
    pub endpoints: Vec<WantedEndpoint>,
    /// Endpoints that are declared and cannot serve.
    pub idle: Vec<(IpAddr, u16)>,
    /// For so many seconds a client keeps its endpoint; 0: not at all.
    pub affinity_timeout: u32,
    /// Who may use the frontends that are [`FrontendFlags::FILTERED`]; of this family, the host
    /// part zero.
    pub sources: Vec<IpNet>,
}

/// An address and port at which a service port is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WantedFrontend {
    pub at: Socket,
    pub kind: FrontendKind,
    /// All its properties, whether its lists are local included.
    pub flags: FrontendFlags,
    /// Where packets from inside go, and the node's own.
    pub inside: List,
    /// Where packets from outside go.
    pub outside: List,
}

impl WantedFrontend {
    /// Whether any packet may go anywhere.
    pub(super) fn leads_somewhere(&self) -> bool {
        self.uses(List::Cluster) || self.uses(List::Local)
    }

    /// Whether any packet finds an endpoint where these lists have some.
    pub(super) fn finds_any(&self, has_cluster: bool, has_local: bool) -> bool {
        (has_cluster && self.uses(List::Cluster)) || (has_local && self.uses(List::Local))
    }

    /// Whether some of its packets may go to the endpoints of this list.
    pub(super) fn uses(&self, list: List) -> bool {
        self.inside == list || self.outside == list
    }
}

/// What a frontend is to its Service. Where several Services want an address and port, the kinds
/// have it in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrontendKind {
    /// Its cluster IP.
    ClusterIp,
    /// An external IP.
    ExternalIp,
    /// An address of its load balancer.
    LoadBalancer,
    /// A node port at an address of this node.
    NodePort,
}

impl FrontendKind {
    /// As one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClusterIp => "cluster",
            Self::ExternalIp => "external",
            Self::LoadBalancer => "load-balancer",
            Self::NodePort => "node-port",
        }
    }
}

/// Which endpoints of its service port a packet may go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum List {
    /// None, whatever there is.
    Nobody,
    /// Those for the policy `Cluster`.
    Cluster,
    /// Those for the policy `Local`.
    Local,
}

/// An endpoint that can serve. One that is in no list keeps the flows it has: kube-proxy forgets a
/// UDP flow only when its endpoint stops serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WantedEndpoint {
    pub addr: IpAddr,
    pub port: u16,
    /// Runs on this node.
    pub is_local: bool,
    /// Takes new flows by [`List::Cluster`].
    pub in_cluster: bool,
    /// Takes new flows by [`List::Local`].
    pub in_local: bool,
}

impl WantedEndpoint {
    /// Whether it takes new flows at all.
    pub(super) const fn is_listed(&self) -> bool {
        self.in_cluster || self.in_local
    }
}
