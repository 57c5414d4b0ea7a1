//! From what chance decided to a cluster as an API server would have it.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON objects are added to by their indices, and zones are counted by their list"
)]

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::addresses::{self, NODE, OTHERS, ZONES};
use super::draft::{Draft, EndpointDraft, Kind, NodeDraft, Place, ServiceDraft, SliceDraft, Spot};
use crate::case::{Config, Node, Protocol};

const NAMESPACES: [&str; 2] = ["default", "shop"];
const FIRST_NODE_PORT: u16 = 30_000;
const FIRST_HEALTH_PORT: u16 = 31_500;
/// The first target port.
const TARGETS: u16 = 1000;

pub(super) fn node(draft: &NodeDraft) -> Node {
    let parsed = |texts: &[&str]| texts.iter().filter_map(|text| text.parse().ok()).collect();
    Node {
        name: NODE.to_owned(),
        ips: ips(draft),
        zone: draft
            .zone
            .map_or("", |zone| ZONES[zone % ZONES.len()])
            .to_owned(),
        pod_cidrs: parsed(draft.pod_cidrs),
        config: Config {
            node_port_addresses: draft
                .node_port_addresses
                .iter()
                .map(ToString::to_string)
                .collect(),
            iptables_localhost_node_ports: draft.localhost_node_ports,
            detect_local_mode: draft.detect,
            cluster_cidr: draft.cluster_cidr.to_owned(),
            masquerade_all: draft.masquerade_all,
            service_cidrs: parsed(draft.service_cidrs),
        },
    }
}

/// The node's addresses.
pub(super) fn ips(draft: &NodeDraft) -> Vec<IpAddr> {
    let first = [false, true].map(|is_v6| addresses::node(is_v6, 0));
    let second = [false, true].into_iter().zip(draft.second);
    let second = second
        .filter(|(_, has)| *has)
        .map(|(is_v6, _)| addresses::node(is_v6, 1));
    first.into_iter().chain(second).collect()
}

/// What stands where, once all that would be ambiguous is left out.
pub(super) struct Resolved<'a> {
    pub(super) index: u8,
    pub(super) draft: &'a ServiceDraft,
    /// Each with its number among the Service's.
    pub(super) ports: Vec<(Protocol, u16)>,
}

/// The Services, with each port once.
pub(super) fn services(draft: &Draft) -> Vec<Resolved<'_>> {
    (0..)
        .zip(&draft.services)
        .map(|(index, draft)| resolved(index, draft))
        .collect()
}

fn resolved(index: u8, draft: &ServiceDraft) -> Resolved<'_> {
    let mut ports = draft.ports.clone();
    let mut known = Vec::new();
    ports.retain(|port| {
        let is_new = !known.contains(port);
        known.push(*port);
        is_new
    });
    Resolved {
        index,
        draft,
        ports,
    }
}

impl Resolved<'_> {
    pub(super) fn name(&self) -> String {
        format!("svc{}", self.index)
    }

    fn namespace(&self) -> &'static str {
        NAMESPACES[usize::from(self.index) % NAMESPACES.len()]
    }

    pub(super) const fn has_cluster_ips(&self) -> bool {
        !matches!(self.draft.kind, Kind::Headless | Kind::ExternalName)
    }

    pub(super) fn cluster_ip(&self, is_v6: bool) -> IpAddr {
        addresses::cluster_ip(is_v6, 10 + self.index)
    }

    /// The node port of the `n`th port, if it has one.
    pub(super) fn node_port(&self, n: usize) -> Option<u16> {
        let has = match self.draft.kind {
            Kind::NodePort => true,
            Kind::LoadBalancer => !self.draft.no_node_ports,
            _ => false,
        };
        let n = u16::try_from(n).ok()?;
        has.then_some(FIRST_NODE_PORT + 10 * u16::from(self.index) + n)
    }

    /// External IPs of a family. Two Services at one address would take turns by chance, so an
    /// address that is not the Service's own goes to the first one only.
    pub(super) fn external_ips(&self, is_v6: bool) -> Vec<IpAddr> {
        let places = self.draft.external_ips.iter().copied();
        self.at(places, is_v6, 100)
    }

    /// Addresses of its load balancer, of both families, with the mode.
    pub(super) fn ingress(&self) -> Vec<(IpAddr, Option<&'static str>)> {
        if self.draft.kind != Kind::LoadBalancer {
            return Vec::new();
        }
        let mut all = Vec::new();
        for is_v6 in [false, true] {
            let places = self.draft.ingress.iter().map(|(place, _)| *place);
            let addrs = self.at(places, is_v6, 200);
            let modes = self.draft.ingress.iter().map(|(_, mode)| *mode);
            all.extend(addrs.into_iter().zip(modes));
        }
        all
    }

    fn at(&self, places: impl Iterator<Item = Place>, is_v6: bool, base: u8) -> Vec<IpAddr> {
        let mut addrs = Vec::new();
        for (n, place) in (0..).zip(places) {
            let own = addresses::vip(is_v6, base + 4 * self.index + n);
            let addr = match place {
                Place::Node if self.index == 0 && base == 100 => addresses::node(is_v6, 1),
                Place::OtherNode if self.index == 1 && base == 100 => addresses::other_node(is_v6),
                Place::Own | Place::Node | Place::OtherNode => own,
            };
            if !addrs.contains(&addr) {
                addrs.push(addr);
            }
        }
        addrs
    }

    fn has_external_door(&self) -> bool {
        self.draft.kind != Kind::ClusterIp || !self.draft.external_ips.is_empty()
    }
}

pub(super) fn objects(draft: &Draft) -> Vec<Value> {
    let all = services(draft);
    let mut objects: Vec<_> = all.iter().map(service).collect();
    for own in &all {
        if own.draft.kind == Kind::ExternalName {
            continue;
        }
        let mut known = BTreeMap::new();
        for (n, slice) in own.draft.slices.iter().enumerate() {
            objects.push(slice_of(own, slice, n, &mut known));
        }
    }
    objects
}

fn service(own: &Resolved<'_>) -> Value {
    let draft = own.draft;
    let mut metadata = json!({ "name": own.name(), "namespace": own.namespace() });
    if let Some(label) = draft.label {
        metadata["labels"] = json!({ label: "" });
    }
    let spec = if draft.kind == Kind::ExternalName {
        json!({ "type": "ExternalName", "externalName": "www.example.com" })
    } else {
        Value::Object(spec(own))
    };
    let mut object =
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec });
    let ingress: Vec<_> = own
        .ingress()
        .into_iter()
        .map(|(addr, mode)| match mode {
            Some(mode) => json!({ "ip": addr, "ipMode": mode }),
            None => json!({ "ip": addr }),
        })
        .collect();
    if !ingress.is_empty() {
        object["status"] = json!({ "loadBalancer": { "ingress": ingress } });
    }
    object
}

fn spec(own: &Resolved<'_>) -> Map<String, Value> {
    let draft = own.draft;
    let mut spec = Map::new();
    let mut set = |key: &str, value: Value| spec.insert(key.to_owned(), value);
    let local = |is_local| json!(if is_local { "Local" } else { "Cluster" });
    let cluster_ips: Vec<_> = if own.has_cluster_ips() {
        let addr = |is_v6: &bool| own.cluster_ip(*is_v6).to_string();
        draft.families.iter().map(addr).collect()
    } else {
        vec!["None".to_owned()]
    };
    let kind = match draft.kind {
        Kind::NodePort => "NodePort",
        Kind::LoadBalancer => "LoadBalancer",
        Kind::ClusterIp | Kind::Headless | Kind::ExternalName => "ClusterIP",
    };
    set("type", json!(kind));
    set("clusterIP", json!(cluster_ips[0]));
    set("clusterIPs", json!(cluster_ips));
    let families: Vec<_> = draft.families.iter().map(|is_v6| family(*is_v6)).collect();
    set("ipFamilies", json!(families));
    let policy = if families.len() > 1 {
        "RequireDualStack"
    } else {
        "SingleStack"
    };
    set("ipFamilyPolicy", json!(policy));
    set("ports", ports(own));
    set("selector", json!({ "app": own.name() }));
    set("sessionAffinity", json!("None"));
    set("internalTrafficPolicy", local(draft.internal_local));
    if own.has_cluster_ips() && own.has_external_door() {
        set("externalTrafficPolicy", local(draft.external_local));
        let external: Vec<_> = [false, true]
            .into_iter()
            .flat_map(|is_v6| own.external_ips(is_v6))
            .collect();
        set("externalIPs", json!(external));
    }
    if draft.kind == Kind::LoadBalancer {
        set("allocateLoadBalancerNodePorts", json!(!draft.no_node_ports));
        if !draft.ranges.is_empty() {
            set("loadBalancerSourceRanges", json!(draft.ranges));
        }
        if draft.external_local {
            set(
                "healthCheckNodePort",
                json!(FIRST_HEALTH_PORT + u16::from(own.index)),
            );
        }
    }
    spec
}

fn ports(own: &Resolved<'_>) -> Value {
    let port = |(n, (protocol, port)): (usize, &(Protocol, u16))| {
        let mut value = json!({
            "name": format!("p{n}"), "protocol": protocol, "port": port, "targetPort": target(n, 0),
        });
        if let Some(number) = own.node_port(n) {
            value["nodePort"] = json!(number);
        }
        value
    };
    own.ports.iter().enumerate().map(port).collect()
}

fn target(n: usize, shift: u16) -> u16 {
    TARGETS + shift + u16::try_from(n).unwrap_or_default()
}

const fn family(is_v6: bool) -> &'static str {
    if is_v6 { "IPv6" } else { "IPv4" }
}

/// The address of an endpoint, and its node.
pub(super) fn spot(at: Spot, is_v6: bool) -> (IpAddr, Option<&'static str>) {
    match at {
        Spot::Here(n) => (addresses::pod(is_v6, 0, n), Some(NODE)),
        Spot::There(n) => (
            addresses::pod(is_v6, 1, n),
            Some(OTHERS[usize::from(n) % OTHERS.len()]),
        ),
        Spot::Somewhere(n) => (addresses::pod(is_v6, 2, n), None),
        Spot::Host => (addresses::node(is_v6, 0), Some(NODE)),
        Spot::OtherHost => (addresses::other_node(is_v6), Some(OTHERS[0])),
    }
}

/// A slice. An endpoint that another slice of the Service has as well is the same there, for which
/// of two different ones counts is up to chance.
fn slice_of<'a>(
    own: &Resolved<'a>,
    slice: &'a SliceDraft,
    n: usize,
    known: &mut BTreeMap<(bool, Spot), &'a EndpointDraft>,
) -> Value {
    let is_v6 = own.draft.is_v6(slice.family);
    let mut here = Vec::new();
    let mut endpoints = Vec::new();
    for draft in &slice.endpoints {
        if here.contains(&draft.at) {
            continue;
        }
        here.push(draft.at);
        let draft = *known.entry((is_v6, draft.at)).or_insert(draft);
        endpoints.push(endpoint(draft, is_v6));
    }
    let mut labels = json!({ "kubernetes.io/service-name": own.name() });
    if slice.is_headless {
        labels["service.kubernetes.io/headless"] = json!("");
    }
    let without = slice.without.map(|index| index.index(own.ports.len()));
    let ports: Vec<_> = own
        .ports
        .iter()
        .enumerate()
        .filter(|(n, _)| Some(*n) != without)
        .map(|(n, (protocol, _))| {
            json!({ "name": format!("p{n}"), "protocol": protocol, "port": target(n, slice.shift) })
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": { "name": format!("{}-{n}", own.name()), "namespace": own.namespace(), "labels": labels },
        "addressType": family(is_v6),
        "endpoints": endpoints,
        "ports": ports,
    })
}

fn endpoint(draft: &EndpointDraft, is_v6: bool) -> Value {
    let (addr, node) = spot(draft.at, is_v6);
    let mut value = json!({ "addresses": [addr] });
    let mut conditions = Map::new();
    for (name, is) in ["ready", "serving", "terminating"]
        .into_iter()
        .zip(draft.conditions)
    {
        if let Some(is) = is {
            conditions.insert(name.to_owned(), json!(is));
        }
    }
    value["conditions"] = Value::Object(conditions);
    if let Some(node) = node {
        value["nodeName"] = json!(node);
    }
    let mut hints = Map::new();
    if !draft.zones.is_empty() {
        let zones: Vec<_> = draft
            .zones
            .iter()
            .map(|zone| json!({ "name": ZONES[*zone] }))
            .collect();
        hints.insert("forZones".to_owned(), json!(zones));
    }
    if let Some(node) = node.filter(|_| draft.for_node) {
        hints.insert("forNodes".to_owned(), json!([{ "name": node }]));
    }
    if !hints.is_empty() {
        value["hints"] = Value::Object(hints);
    }
    value
}
