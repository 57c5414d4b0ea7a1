//! The endpoints of one service port: which there are, and which may get new flows.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::facts::Facts;
use super::standing::Standing;
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
        let judged = judged(port, family, slices, facts);
        let mut found = Self {
            able: Vec::with_capacity(judged.len()),
            idle: Vec::new(),
            has_any: false,
            has_local: false,
        };
        for judged in judged {
            let Judged { addr, port, .. } = judged;
            if judged.cluster == Standing::NotServing {
                found.idle.push((addr, port));
                continue;
            }
            let (in_cluster, in_local) = (judged.cluster.is_in(), judged.local.is_in());
            found.has_any |= in_cluster;
            found.has_local |= in_local;
            found.able.push(WantedEndpoint {
                addr,
                port,
                is_local: judged.is_local,
                in_cluster,
                in_local,
            });
        }
        found
    }
}

/// An endpoint of a service port, with its place in both lists.
#[derive(Clone, Copy, Debug)]
pub(in crate::plan) struct Judged<'a> {
    pub(in crate::plan) addr: IpAddr,
    pub(in crate::plan) port: u16,
    /// Whether it runs on this node.
    pub(in crate::plan) is_local: bool,
    /// In the list for the policy `Cluster`, or why not.
    pub(in crate::plan) cluster: Standing,
    /// In the list for the policy `Local`, or why not.
    pub(in crate::plan) local: Standing,
    pub(in crate::plan) endpoint: &'a Endpoint,
}

/// All endpoints of a service port in order of address and port, with the lists that they are in
/// and why: what is planned and what is told of it come from here.
pub(in crate::plan) fn judged<'a>(
    port: &ServicePort,
    family: Family,
    slices: &'a [Arc<EndpointSlice>],
    facts: &Facts,
) -> Vec<Judged<'a>> {
    let merged = merged(port, family, slices);
    let is_here = |endpoint: &Endpoint| endpoint.node.as_ref() == Some(&facts.node);
    let all = || merged.values().map(|(_, endpoint)| *endpoint);
    let any_ready = all().any(|endpoint| endpoint.ready);
    let local_ready = all().any(|endpoint| endpoint.ready && is_here(endpoint));
    let nearness = Nearness::of(all().filter(|endpoint| endpoint.ready), facts);
    let judge = |(&(addr, port), &(_, endpoint))| {
        let is_local = is_here(endpoint);
        Judged {
            addr,
            port,
            is_local,
            // The two lists fall back to endpoints that end independently of one another.
            cluster: standing(endpoint, any_ready, || nearness.standing(endpoint, facts)),
            local: if is_local {
                standing(endpoint, local_ready, || Standing::Ready)
            } else {
                Standing::Elsewhere
            },
            endpoint,
        }
    };
    let mut judged: Vec<_> = merged.iter().map(judge).collect();
    judged.sort_unstable_by_key(|own| (own.addr, own.port));
    judged
}

/// The place of an endpoint in a list where another is ready, or none; what its hints say counts
/// only if it is ready itself.
fn standing(endpoint: &Endpoint, any_ready: bool, if_ready: impl FnOnce() -> Standing) -> Standing {
    if endpoint.ready {
        if_ready()
    } else if !endpoint.serving {
        Standing::NotServing
    } else if any_ready {
        Standing::OthersReady
    } else if endpoint.terminating {
        Standing::Fallback
    } else {
        Standing::NotReady
    }
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

    /// The place of an endpoint that is ready.
    fn standing(self, endpoint: &Endpoint, facts: &Facts) -> Standing {
        let is_own_zone =
            || (facts.zone.as_ref()).is_some_and(|own| endpoint.for_zones.contains(own));
        match self {
            Self::Node if endpoint.for_nodes.contains(&facts.node) => Standing::HintsNode,
            Self::Node => Standing::OtherNodes,
            Self::Zone if is_own_zone() => Standing::HintsZone,
            Self::Zone => Standing::OtherZones,
            Self::Cluster => Standing::Ready,
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
