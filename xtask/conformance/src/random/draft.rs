//! What chance decides of a case.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::{Index, select};
use proptest::strategy::Union;

use crate::case::{DetectLocalMode, Protocol};

/// A case before its objects are written out.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) node: NodeDraft,
    pub(super) services: Vec<ServiceDraft>,
    pub(super) packets: Vec<PacketDraft>,
}

#[derive(Clone, Debug)]
pub(super) struct NodeDraft {
    /// Whether it has a second address, of IPv4 and IPv6.
    pub(super) second: [bool; 2],
    pub(super) zone: Option<usize>,
    pub(super) node_port_addresses: &'static [&'static str],
    pub(super) localhost_node_ports: bool,
    pub(super) detect: DetectLocalMode,
    pub(super) cluster_cidr: &'static str,
    pub(super) pod_cidrs: &'static [&'static str],
    pub(super) masquerade_all: bool,
    pub(super) service_cidrs: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    ClusterIp,
    NodePort,
    LoadBalancer,
    Headless,
    ExternalName,
}

#[derive(Clone, Debug)]
pub(super) struct ServiceDraft {
    pub(super) kind: Kind,
    /// Families in order: whether each is IPv6.
    pub(super) families: &'static [bool],
    pub(super) ports: Vec<(Protocol, u16)>,
    pub(super) internal_local: bool,
    pub(super) external_local: bool,
    pub(super) external_ips: Vec<Place>,
    pub(super) ingress: Vec<(Place, Option<&'static str>)>,
    pub(super) ranges: Vec<&'static str>,
    /// A load balancer without node ports.
    pub(super) no_node_ports: bool,
    pub(super) label: Option<&'static str>,
    pub(super) slices: Vec<SliceDraft>,
}

impl ServiceDraft {
    /// Whether one of its families is IPv6.
    pub(super) fn is_v6(&self, which: Index) -> bool {
        *which.get(self.families)
    }
}

/// Where an address of a Service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nobody else's.
    Own,
    /// The node's second address.
    Node,
    /// Another node's.
    OtherNode,
}

#[derive(Clone, Debug)]
pub(super) struct SliceDraft {
    /// Which of the Service's families.
    pub(super) family: Index,
    /// What is added to the port numbers, as where the targets have names.
    pub(super) shift: u16,
    /// Left out of the ports.
    pub(super) without: Option<Index>,
    pub(super) is_headless: bool,
    pub(super) endpoints: Vec<EndpointDraft>,
}

#[derive(Clone, Debug)]
pub(super) struct EndpointDraft {
    pub(super) at: Spot,
    pub(super) conditions: Conditions,
    /// Zones of its hints; none for no hints.
    pub(super) zones: Vec<usize>,
    /// Its hints name its own node.
    pub(super) for_node: bool,
}

/// Where an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Spot {
    /// A pod of the node.
    Here(u8),
    /// A pod of another node.
    There(u8),
    /// A pod of nobody knows which node.
    Somewhere(u8),
    /// In the network of the node.
    Host,
    /// In the network of another node.
    OtherHost,
}

/// Ready, serving, terminating.
pub(super) type Conditions = [Option<bool>; 3];

#[derive(Clone, Debug)]
pub(super) struct PacketDraft {
    pub(super) service: Index,
    pub(super) port: Index,
    /// Which of the Service's families; seldom the other one.
    pub(super) family: Index,
    pub(super) is_foreign: bool,
    pub(super) door: Door,
    pub(super) near: Near,
    pub(super) sender: Sender,
    pub(super) which: Index,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    ClusterIp,
    /// A node port at an address of the node, or at loopback.
    NodePort,
    LocalhostNodePort,
    ExternalIp,
    LoadBalancer,
    /// The port of the Service at the node.
    ServicePortAtNode,
    /// An address that no Service has.
    Unallocated,
    Endpoint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Near {
    There,
    OtherPort,
    OtherProtocol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Pod,
    /// An endpoint of the Service, wherever it is.
    Endpoint,
    StrayPod,
    PodOfOtherNode,
    Node,
    NodeBySecond,
    OtherNode,
    Client(u8),
}

/// Mostly no; yes so many times of a hundred.
fn seldom(percent: u32) -> impl Strategy<Value = bool> + Clone {
    (0..100_u32).prop_map(move |of| of < percent)
}

fn weighted<T: Clone + std::fmt::Debug + 'static>(
    of: impl IntoIterator<Item = (u32, T)>,
) -> impl Strategy<Value = T> {
    Union::new_weighted(
        of.into_iter()
            .map(|(weight, it)| (weight, Just(it)))
            .collect(),
    )
}

pub(super) fn draft() -> impl Strategy<Value = Draft> {
    (node(), vec(service(), 1..5), vec(packet(), 8..14)).prop_map(|(node, services, packets)| {
        Draft {
            node,
            services,
            packets,
        }
    })
}

const NODE_PORT_ADDRESSES: [&[&str]; 12] = [
    &[],
    &[],
    &[],
    &["primary"],
    &["0.0.0.0/0"],
    &["0.0.0.0/0", "::/0"],
    &["192.168.0.0/16", "2001:db8::/32"],
    &["192.168.0.0/24"],
    &["192.168.1.0/24", "2001:db8:1::/64"],
    &["127.0.0.0/8"],
    &["127.0.0.0/8", "192.168.0.0/16", "::1/128"],
    &["10.0.0.0/8"],
];

const CLUSTER_CIDRS: [&str; 5] = [
    "",
    "10.180.0.0/16",
    "10.180.0.0/16,fd00:10:180::/48",
    "fd00:10:180::/48,10.180.0.0/16",
    "fd00:10:180::/48",
];

const POD_CIDRS: [&[&str]; 3] = [
    &["10.180.0.0/24", "fd00:10:180::/64"],
    &["fd00:10:180::/64", "10.180.0.0/24"],
    &["10.180.0.0/24"],
];

const SERVICE_CIDRS: [&[&str]; 3] = [
    &["172.30.0.0/16", "fd00:172:30::/112"],
    &["172.30.0.0/24", "172.30.1.0/24", "fd00:172:30::/112"],
    &["172.30.0.0/16"],
];

fn node() -> impl Strategy<Value = NodeDraft> {
    let detect = weighted([
        (3, DetectLocalMode::ClusterCIDR),
        (1, DetectLocalMode::NodeCIDR),
    ]);
    (
        any::<[bool; 2]>(),
        option::weighted(0.8, 0..3_usize),
        select(&NODE_PORT_ADDRESSES[..]),
        any::<bool>(),
        detect,
        select(&CLUSTER_CIDRS[..]),
        select(&POD_CIDRS[..]),
        seldom(15),
        select(&SERVICE_CIDRS[..]),
    )
        .prop_map(
            |(
                second,
                zone,
                node_port_addresses,
                localhost_node_ports,
                detect,
                cluster_cidr,
                pod_cidrs,
                masquerade_all,
                service_cidrs,
            )| NodeDraft {
                second,
                zone,
                node_port_addresses,
                localhost_node_ports,
                detect,
                cluster_cidr,
                pod_cidrs,
                masquerade_all,
                service_cidrs,
            },
        )
}

const FAMILIES: [&[bool]; 4] = [&[false], &[true], &[false, true], &[true, false]];
const PORTS: [u16; 6] = [53, 80, 81, 443, 8080, 9000];
const RANGES: [&str; 8] = [
    "203.0.113.0/24",
    "10.180.0.0/16",
    "192.168.0.0/24",
    "0.0.0.0/0",
    "2600:5300::/32",
    "fd00:10:180::/48",
    "2001:db8::/64",
    "::/0",
];

fn service() -> impl Strategy<Value = ServiceDraft> {
    let kind = weighted([
        (6, Kind::ClusterIp),
        (8, Kind::NodePort),
        (12, Kind::LoadBalancer),
        (1, Kind::Headless),
        (1, Kind::ExternalName),
    ]);
    let protocol = || weighted([(4, Protocol::Tcp), (3, Protocol::Udp), (1, Protocol::Sctp)]);
    let place = || weighted([(4, Place::Own), (1, Place::Node), (1, Place::OtherNode)]);
    let ip_mode = weighted([(3, None), (2, Some("VIP")), (1, Some("Proxy"))]);
    let label = weighted([
        (30, None),
        (1, Some("service.kubernetes.io/service-proxy-name")),
        (1, Some("service.kubernetes.io/headless")),
    ]);
    (
        kind,
        select(&FAMILIES[..]),
        vec((protocol(), select(&PORTS[..])), 1..4),
        (seldom(25), seldom(45), seldom(20)),
        vec(place(), 0..3),
        vec((place(), ip_mode), 0..3),
        vec(select(&RANGES[..]), 0..4),
        label,
        vec(slice(), 1..5),
    )
        .prop_map(
            |(
                kind,
                families,
                ports,
                (internal_local, external_local, no_node_ports),
                external_ips,
                ingress,
                ranges,
                label,
                slices,
            )| ServiceDraft {
                kind,
                families,
                ports,
                internal_local,
                external_local,
                external_ips,
                ingress,
                ranges,
                no_node_ports,
                label,
                slices,
            },
        )
}

fn slice() -> impl Strategy<Value = SliceDraft> {
    (
        any::<Index>(),
        weighted([(3, 0), (1, 8000)]),
        option::weighted(0.1, any::<Index>()),
        seldom(4),
        vec(endpoint(), 0..6),
    )
        .prop_map(
            |(family, shift, without, is_headless, endpoints)| SliceDraft {
                family,
                shift,
                without,
                is_headless,
                endpoints,
            },
        )
}

fn endpoint() -> impl Strategy<Value = EndpointDraft> {
    let spot = (0..10_u8, 1..7_u8).prop_map(|(what, n)| match what {
        0..4 => Spot::Here(n),
        4..7 => Spot::There(n),
        7 => Spot::Somewhere(n),
        8 => Spot::Host,
        _ => Spot::OtherHost,
    });
    let some = |ready, serving, terminating| [Some(ready), Some(serving), Some(terminating)];
    let conditions = weighted([
        (5, [None; 3]),
        (5, [Some(true), None, None]),
        (5, some(true, true, false)),
        (3, some(false, true, true)),
        (1, some(true, true, true)),
        (1, some(false, true, false)),
        (2, some(false, false, false)),
        (1, some(false, false, true)),
    ]);
    let zones = weighted([
        (3, vec![]),
        (1, vec![0]),
        (1, vec![1]),
        (1, vec![2]),
        (1, vec![0, 1]),
    ]);
    (spot, conditions, zones, seldom(15)).prop_map(|(at, conditions, zones, for_node)| {
        EndpointDraft {
            at,
            conditions,
            zones,
            for_node,
        }
    })
}

fn packet() -> impl Strategy<Value = PacketDraft> {
    let door = weighted([
        (4, Door::ClusterIp),
        (4, Door::NodePort),
        (1, Door::LocalhostNodePort),
        (3, Door::ExternalIp),
        (4, Door::LoadBalancer),
        (1, Door::ServicePortAtNode),
        (1, Door::Unallocated),
        (1, Door::Endpoint),
    ]);
    let near = weighted([
        (18, Near::There),
        (1, Near::OtherPort),
        (1, Near::OtherProtocol),
    ]);
    let sender = weighted([
        (3, Sender::Pod),
        (3, Sender::Endpoint),
        (1, Sender::StrayPod),
        (1, Sender::PodOfOtherNode),
        (3, Sender::Node),
        (1, Sender::NodeBySecond),
        (1, Sender::OtherNode),
        (2, Sender::Client(0)),
        (2, Sender::Client(1)),
    ]);
    (
        any::<Index>(),
        any::<Index>(),
        any::<Index>(),
        seldom(4),
        door,
        near,
        sender,
        any::<Index>(),
    )
        .prop_map(
            |(service, port, family, is_foreign, door, near, sender, which)| PacketDraft {
                service,
                port,
                family,
                is_foreign,
                door,
                near,
                sender,
                which,
            },
        )
}
