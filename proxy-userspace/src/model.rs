//! Services, endpoints and nodes as the planner wants them: defaults filled in, addresses parsed.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

pub use ipnet::IpNet;
use proxy_common::net::Proto;

/// Namespace and name of an object.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    namespace: Arc<str>,
    name: Arc<str>,
}

impl ObjectName {
    /// The object `name` in `namespace`.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name inside the namespace.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both families.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    pub const fn of(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A transport protocol that Services know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl From<Protocol> for Proto {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::TCP,
            Protocol::Udp => Self::UDP,
            Protocol::Sctp => Self::SCTP,
        }
    }
}

impl TryFrom<Proto> for Protocol {
    type Error = Proto;

    fn try_from(proto: Proto) -> Result<Self, Proto> {
        match proto {
            Proto::TCP => Ok(Self::Tcp),
            Proto::UDP => Ok(Self::Udp),
            Proto::SCTP => Ok(Self::Sctp),
            other => Err(other),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// A Service that has at least one cluster IP. Addresses that a family has no cluster IP for are
/// left out: kube-proxy serves a Service only in the families of its cluster IPs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub name: ObjectName,
    /// When it was made, in seconds since 1970, if that is known.
    pub created: Option<i64>,
    /// Its cluster IPs, at most one of each family.
    pub cluster_ips: Vec<IpAddr>,
    /// Its external IPs, whatever the policy for them is.
    pub external_ips: Vec<IpAddr>,
    /// Addresses of its load balancer that nodes answer for (`ipMode: VIP`).
    pub load_balancer_ips: Vec<IpAddr>,
    /// Addresses of its load balancer that are left to it (`ipMode: Proxy`).
    pub proxied_ips: Vec<IpAddr>,
    /// Who may use those, of both families; a family without an entry is not restricted. The host
    /// part is as it was given.
    pub source_ranges: Vec<IpNet>,
    /// Which endpoints its cluster IPs lead to.
    pub internal_policy: TrafficPolicy,
    /// Which endpoints its other addresses lead to, in force for its type.
    pub external_policy: TrafficPolicy,
    /// For how many seconds a client keeps its endpoint, if it does.
    pub affinity_timeout: Option<u32>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
}

impl Service {
    /// A Service that is reached by its cluster IPs only, with all else as it is by default.
    pub const fn new(name: ObjectName, cluster_ips: Vec<IpAddr>, ports: Vec<ServicePort>) -> Self {
        Self {
            name,
            created: None,
            cluster_ips,
            external_ips: Vec::new(),
            load_balancer_ips: Vec::new(),
            proxied_ips: Vec::new(),
            source_ranges: Vec::new(),
            internal_policy: TrafficPolicy::Cluster,
            external_policy: TrafficPolicy::Cluster,
            affinity_timeout: None,
            ports,
        }
    }
}

/// A Service that is declared and that no service proxy serves, or not this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// Its name.
    pub name: ObjectName,
    /// Why it is left aside.
    pub reason: AsideReason,
    /// All addresses that it has, of whatever kind.
    pub addresses: Vec<IpAddr>,
    /// Its ports, as far as they can be read.
    pub ports: Vec<ServicePort>,
}

/// Why a Service is left aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsideReason {
    /// The label `service.kubernetes.io/service-proxy-name` gives it to the proxy of this name.
    OtherProxy(String),
    /// It has no cluster IP (`clusterIP: None`).
    Headless,
    /// It has the label `service.kubernetes.io/headless`, which is configured to count.
    HeadlessLabel,
    /// It stands for this name of the DNS (`type: ExternalName`).
    ExternalName(String),
}

/// Which endpoints traffic may go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TrafficPolicy {
    /// All of the cluster.
    #[default]
    Cluster,
    /// Those of the node that the packet came to.
    Local,
}

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Name, empty for the only port of a Service; joins the Service to its slices.
    pub name: Arc<str>,
    /// Protocol.
    pub protocol: Protocol,
    /// Number that clients use.
    pub port: u16,
    /// Number that clients use at addresses of nodes; 0 for none.
    pub node_port: u16,
}

/// A part of a Service's endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Its own name.
    pub name: ObjectName,
    /// The Service it belongs to.
    pub service: ObjectName,
    /// Family of all its addresses.
    pub family: Family,
    /// Ports that each endpoint serves.
    pub ports: Vec<SlicePort>,
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// One port of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// Name of the Service port that it serves.
    pub name: Arc<str>,
    /// Protocol.
    pub protocol: Protocol,
    /// Number that the endpoints listen on.
    pub port: u16,
}

/// One endpoint of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// The node it runs on, if that is known.
    pub node: Option<Arc<str>>,
    /// Takes new connections.
    pub ready: bool,
    /// Able to serve, whether or not it is going away.
    pub serving: bool,
    /// Going away.
    pub terminating: bool,
    /// Zones whose nodes should use it (`hints.forZones`).
    pub for_zones: Vec<Arc<str>>,
    /// Nodes that should use it (`hints.forNodes`).
    pub for_nodes: Vec<Arc<str>>,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Its addresses, internal ones first and else in the order of its status: the first of a
    /// family is the primary one.
    pub addresses: Vec<IpAddr>,
    /// Its zone (`topology.kubernetes.io/zone`).
    pub zone: Option<Arc<str>>,
    /// The ranges of its pods' addresses.
    pub pod_cidrs: Vec<IpNet>,
}

/// A range that cluster IPs are taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceCidr {
    /// Its name.
    pub name: Arc<str>,
    /// The range, one of each family at most.
    pub cidrs: Vec<IpNet>,
}

/// Any object of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A Service.
    Service(Arc<Service>),
    /// An `EndpointSlice`.
    Slice(Arc<EndpointSlice>),
    /// A Node.
    Node(Arc<Node>),
    /// A `ServiceCIDR`.
    ServiceCidr(Arc<ServiceCidr>),
}

impl Object {
    /// What tells this object from all others.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Service(service) => ObjectKey::Service(service.name.clone()),
            Self::Slice(slice) => ObjectKey::Slice(slice.name.clone()),
            Self::Node(node) => ObjectKey::Node(Arc::clone(&node.name)),
            Self::ServiceCidr(own) => ObjectKey::ServiceCidr(Arc::clone(&own.name)),
        }
    }
}

/// Kind and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKey {
    /// A Service.
    Service(ObjectName),
    /// An `EndpointSlice`.
    Slice(ObjectName),
    /// A Node.
    Node(Arc<str>),
    /// A `ServiceCIDR`.
    ServiceCidr(Arc<str>),
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(name) => write!(f, "Service {name}"),
            Self::Slice(name) => write!(f, "EndpointSlice {name}"),
            Self::Node(name) => write!(f, "Node {name}"),
            Self::ServiceCidr(name) => write!(f, "ServiceCIDR {name}"),
        }
    }
}

/// One change of what is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object is new or different.
    Set(Object),
    /// The object is no more.
    Gone(ObjectKey),
    /// The addresses of this node's interfaces are others.
    Addresses(Arc<BTreeSet<IpAddr>>),
}
