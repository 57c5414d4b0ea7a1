//! Services, endpoints and nodes as the planner wants them: defaults filled in, addresses parsed.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

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

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// A Service that has at least one cluster IP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub name: ObjectName,
    /// Its cluster IPs, at most one of each family.
    pub cluster_ips: Vec<IpAddr>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
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
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
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
}

impl Object {
    /// What tells this object from all others.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Service(service) => ObjectKey::Service(service.name.clone()),
            Self::Slice(slice) => ObjectKey::Slice(slice.name.clone()),
            Self::Node(node) => ObjectKey::Node(Arc::clone(&node.name)),
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
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(name) => write!(f, "Service {name}"),
            Self::Slice(name) => write!(f, "EndpointSlice {name}"),
            Self::Node(name) => write!(f, "Node {name}"),
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
}
