//! What is planned, for those who want to look at it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use proxy_common::abi::EndpointFlags;

use super::op::Socket;
use super::policy::merged;
use super::ports::Ports;
use super::wanted::{FrontendKind, PortKey};
use crate::model::{Endpoint, EndpointSlice, Family, ObjectName, Protocol, Service, ServicePort};

/// A Service as it is planned.
#[derive(Clone, Debug)]
pub struct ServiceView {
    /// Its name.
    pub name: ObjectName,
    /// Its ports, once for each family.
    pub ports: Vec<PortView>,
    /// What of it is not served.
    pub notices: Vec<String>,
}

/// A service port as it is planned.
#[derive(Clone, Debug)]
pub struct PortView {
    /// Its name.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its family.
    pub family: Family,
    /// Its number in the tables, if it stands there.
    pub number: Option<u32>,
    /// Where clients reach it, those left out where they are only refused.
    pub frontends: Vec<FrontendView>,
    /// Its endpoints in order of address and port.
    pub endpoints: Vec<EndpointView>,
}

/// A frontend as it is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontendView {
    /// Where it is.
    pub at: Socket,
    /// What it is to its Service, if that is known.
    pub kind: Option<FrontendKind>,
}

/// An endpoint as it is planned.
#[derive(Clone, Debug)]
pub struct EndpointView {
    /// Address.
    pub addr: IpAddr,
    /// Port.
    pub port: u16,
    /// Its slot in the tables, if it has one.
    pub slot: Option<u32>,
    /// Whether new flows may be given to it.
    pub is_listed: bool,
    /// Names of the lists that it is in: `cluster`, `local`.
    pub lists: Vec<&'static str>,
    /// Whether it runs on this node.
    pub is_local: bool,
    /// What its slice says of it.
    pub condition: Condition,
    /// The node it runs on.
    pub node: Option<Arc<str>>,
    /// The slice that names it.
    pub slice: Option<ObjectName>,
}

impl EndpointView {
    /// The names of the lists that an endpoint with such a record is in.
    pub fn lists(flags: EndpointFlags) -> Vec<&'static str> {
        let all = [
            (EndpointFlags::IN_CLUSTER_SET, "cluster"),
            (EndpointFlags::IN_LOCAL_SET, "local"),
        ];
        let own = all.into_iter().filter(|(list, _)| flags.has(*list));
        own.map(|(_, name)| name).collect()
    }
}

/// What is said of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It takes new connections.
    Ready,
    /// It ends, and serves until then.
    Terminating,
    /// It serves, but is not to be given anything new.
    Serving,
    /// It does not serve.
    NotReady,
    /// No slice names it any more.
    Withdrawn,
}

impl Condition {
    /// As one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Terminating => "terminating",
            Self::Serving => "serving",
            Self::NotReady => "not-ready",
            Self::Withdrawn => "withdrawn",
        }
    }

    pub(super) const fn of(endpoint: &Endpoint) -> Self {
        match (endpoint.ready, endpoint.serving, endpoint.terminating) {
            (true, ..) => Self::Ready,
            (false, true, true) => Self::Terminating,
            (false, true, false) => Self::Serving,
            (false, false, _) => Self::NotReady,
        }
    }
}

pub(super) fn ports(
    service: &Service,
    slices: &[Arc<EndpointSlice>],
    planned: &Ports,
    node: &str,
) -> Vec<PortView> {
    let mut all = Vec::new();
    for port in &service.ports {
        for addr in &service.cluster_ips {
            let family = Family::of(*addr);
            all.push(view(service, port, family, slices, planned, node));
        }
    }
    all
}

fn view(
    service: &Service,
    port: &ServicePort,
    family: Family,
    slices: &[Arc<EndpointSlice>],
    planned: &Ports,
    node: &str,
) -> PortView {
    let key = PortKey {
        name: Arc::clone(&port.name),
        proto: port.protocol.into(),
        family,
    };
    let named = merged(port, family, slices).into_iter();
    let mut endpoints: BTreeMap<_, _> = named
        .map(|((addr, port), (slice, endpoint))| {
            let view = EndpointView {
                addr,
                port,
                slot: None,
                is_listed: false,
                lists: Vec::new(),
                is_local: endpoint.node.as_deref() == Some(node),
                condition: Condition::of(endpoint),
                node: endpoint.node.clone(),
                slice: Some(slice.name.clone()),
            };
            ((addr, port), view)
        })
        .collect();
    let mut view = PortView {
        name: Arc::clone(&port.name),
        protocol: port.protocol,
        family,
        number: None,
        frontends: Vec::new(),
        endpoints: Vec::new(),
    };
    if let Some((number, frontends, held)) = planned.planned(&service.name, &key) {
        view.number = Some(number);
        let served = frontends.iter().filter(|own| own.leads_somewhere());
        let served = served.map(|own| FrontendView {
            at: own.at,
            kind: Some(own.kind),
        });
        view.frontends = served.collect();
        for held in held {
            let entry = endpoints.entry((held.addr, held.port));
            let endpoint = entry.or_insert_with(|| EndpointView {
                addr: held.addr,
                port: held.port,
                slot: None,
                is_listed: false,
                lists: Vec::new(),
                is_local: false,
                condition: Condition::Withdrawn,
                node: None,
                slice: None,
            });
            endpoint.slot = Some(held.slot);
            endpoint.is_listed = held.is_listed();
            endpoint.lists = EndpointView::lists(held.flags);
        }
    }
    view.endpoints = endpoints.into_values().collect();
    view
}
