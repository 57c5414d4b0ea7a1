//! The endpoints of one service port: which there are, and which may get new flows.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::facts::Facts;
use crate::model::{Endpoint, EndpointSlice, Family, ServicePort};
use crate::plan::wanted::WantedEndpoint;

/// What the slices say of one service port, in one family.
#[derive(Debug)]
pub(super) struct Endpoints {
    /// Those that can serve, in order of address and port, with the lists that they are in.
    pub(super) able: Vec<WantedEndpoint>,
    /// Those that cannot.
    pub(super) idle: Vec<(IpAddr, u16)>,
    /// Whether new flows can go anywhere in the cluster.
    pub(super) has_any: bool,
    /// Whether new flows can stay on this node.
    pub(super) has_local: bool,
}

impl Endpoints {
    pub(super) fn of(
        port: &ServicePort,
        family: Family,
        slices: &[Arc<EndpointSlice>],
        facts: &Facts,
    ) -> Self {
        let merged = merged(port, family, slices);
        let is_here = |endpoint: &Endpoint| endpoint.node.as_ref() == Some(&facts.node);
        let all = || merged.values().map(|(_, endpoint)| *endpoint);
        let any_ready = all().any(|endpoint| endpoint.ready);
        let local_ready = all().any(|endpoint| endpoint.ready && is_here(endpoint));
        let nearness = Nearness::of(all().filter(|endpoint| endpoint.ready), facts);

        let mut found = Self {
            able: Vec::with_capacity(merged.len()),
            idle: Vec::new(),
            has_any: false,
            has_local: false,
        };
        for (&(addr, port), &(_, endpoint)) in &merged {
            if !endpoint.ready && !endpoint.serving {
                found.idle.push((addr, port));
                continue;
            }
            let is_local = is_here(endpoint);
            // The two lists fall back to endpoints that end independently of one another.
            let in_cluster = if any_ready {
                endpoint.ready && nearness.includes(endpoint, facts)
            } else {
                is_ending(endpoint)
            };
            let stays = is_local
                && if local_ready {
                    endpoint.ready
                } else {
                    is_ending(endpoint)
                };
            found.has_any |= in_cluster;
            found.has_local |= stays;
            found.able.push(WantedEndpoint {
                addr,
                port,
                is_local,
                in_cluster,
                in_local: stays,
            });
        }
        let by_place = |endpoint: &WantedEndpoint| (endpoint.addr, endpoint.port);
        found.able.sort_unstable_by_key(by_place);
        found.idle.sort_unstable();
        found
    }
}

/// Whether an endpoint ends and serves until then: it is used where none is ready.
const fn is_ending(endpoint: &Endpoint) -> bool {
    !endpoint.ready && endpoint.serving && endpoint.terminating
}

/// How near the endpoints of the list of the whole cluster have to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nearness {
    Node,
    Zone,
    Cluster,
}

impl Nearness {
    /// Hints count if every endpoint that is ready has some, and one of them means this node.
    fn of<'a, I: Iterator<Item = &'a Endpoint>>(ready: I, facts: &Facts) -> Self {
        let ready: Vec<_> = ready.collect();
        let counts = |hints: fn(&Endpoint) -> &[Arc<str>], own: &Arc<str>| {
            let mut all = ready.iter().map(|endpoint| hints(endpoint));
            all.clone().all(|hints| !hints.is_empty()) && all.any(|hints| hints.contains(own))
        };
        if counts(|endpoint| &endpoint.for_nodes, &facts.node) {
            return Self::Node;
        }
        match &facts.zone {
            Some(zone) if counts(|endpoint| &endpoint.for_zones, zone) => Self::Zone,
            _ => Self::Cluster,
        }
    }

    fn includes(self, endpoint: &Endpoint, facts: &Facts) -> bool {
        match self {
            Self::Node => endpoint.for_nodes.contains(&facts.node),
            Self::Zone => (facts.zone.as_ref()).is_some_and(|own| endpoint.for_zones.contains(own)),
            Self::Cluster => true,
        }
    }
}

/// Each endpoint that the slices name for a service port, with the slice that counts: joined by
/// port name and protocol, each address and port once.
pub(in crate::plan) fn merged<'a>(
    port: &ServicePort,
    family: Family,
    slices: &'a [Arc<EndpointSlice>],
) -> HashMap<(IpAddr, u16), (&'a EndpointSlice, &'a Endpoint)> {
    let mut merged: HashMap<(IpAddr, u16), (&EndpointSlice, &Endpoint)> = HashMap::new();
    for slice in slices.iter().filter(|slice| slice.family == family) {
        let joined = slice
            .ports
            .iter()
            .filter(|own| own.name == port.name && own.protocol == port.protocol);
        for own in joined {
            for endpoint in &slice.endpoints {
                merged
                    .entry((endpoint.address, own.port))
                    .and_modify(|known| {
                        // While an endpoint moves between slices it stands in both.
                        if rank(endpoint) > rank(known.1) {
                            *known = (slice, endpoint);
                        }
                    })
                    .or_insert((slice, endpoint));
            }
        }
    }
    merged
}

/// Which of two copies of an endpoint counts: one that stays, then one that is ready.
const fn rank(endpoint: &Endpoint) -> [bool; 3] {
    [!endpoint.terminating, endpoint.ready, endpoint.serving]
}
