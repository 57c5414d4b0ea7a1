//! From one Service and its slices to the frontends and endpoints it should have.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use proxy_common::abi::FrontendFlags;

use super::op::Socket;
use super::wanted::{List, PortKey, Wanted, WantedEndpoint, WantedFrontend};
use crate::model::{Endpoint, EndpointSlice, Family, Protocol, Service, ServicePort};

/// The service ports of a Service, SCTP left out.
pub(super) fn wanted(service: &Service, slices: &[Arc<EndpointSlice>], node: &str) -> Vec<Wanted> {
    let mut all = Vec::new();
    for port in &service.ports {
        if port.protocol == Protocol::Sctp {
            continue;
        }
        for &addr in &service.cluster_ips {
            let family = Family::of(addr);
            let (endpoints, idle) = endpoints(port, family, slices, node);
            all.push(Wanted {
                key: PortKey {
                    name: Arc::clone(&port.name),
                    proto: port.protocol.into(),
                    family,
                },
                frontends: vec![WantedFrontend {
                    at: Socket {
                        addr,
                        port: port.port,
                        proto: port.protocol.into(),
                    },
                    flags: FrontendFlags::NONE,
                    inside: List::Cluster,
                    outside: List::Cluster,
                }],
                endpoints,
                idle,
                affinity_timeout: 0,
                sources: Vec::new(),
            });
        }
    }
    all
}

/// The endpoints of one service port: joined by port name and protocol, each address and port
/// once. Those that are ready are listed; if there are none, those that end but still serve. Those
/// that cannot serve come beside them.
fn endpoints(
    port: &ServicePort,
    family: Family,
    slices: &[Arc<EndpointSlice>],
    node: &str,
) -> (Vec<WantedEndpoint>, Vec<(IpAddr, u16)>) {
    let merged = merged(port, family, slices);
    let any_ready = merged.values().any(|(_, endpoint)| endpoint.ready);
    let (able, idle): (Vec<_>, Vec<_>) = merged
        .into_iter()
        .partition(|(_, (_, endpoint))| endpoint.ready || endpoint.serving);
    let mut all: Vec<_> = able
        .into_iter()
        .map(|((addr, port), (_, endpoint))| WantedEndpoint {
            addr,
            port,
            is_local: endpoint.node.as_deref() == Some(node),
            in_cluster: if any_ready {
                endpoint.ready
            } else {
                endpoint.terminating
            },
            in_local: false,
        })
        .collect();
    all.sort_unstable_by_key(|endpoint| (endpoint.addr, endpoint.port));
    (all, idle.into_iter().map(|(at, _)| at).collect())
}

/// Each endpoint that the slices name for a service port, with the slice that counts.
pub(super) fn merged<'a>(
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

#[cfg(test)]
mod tests {
    use super::super::testing::{endpoint, service, slice};
    use super::*;

    fn listed(service: &Service, slices: &[Arc<EndpointSlice>]) -> Vec<String> {
        let all = wanted(service, slices, "one");
        all[0]
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.is_listed())
            .map(|endpoint| format!("{}:{}", endpoint.addr, endpoint.port))
            .collect()
    }

    #[test]
    fn ports_are_joined_by_name_and_protocol_not_by_number() {
        let web = service("web", "10.96.0.1", &[("http", Protocol::Tcp, 80)]);
        let slices = [
            slice(
                "web",
                "a",
                &[("http", Protocol::Tcp, 8080)],
                &[endpoint("10.1.0.1")],
            ),
            slice(
                "web",
                "b",
                &[("http", Protocol::Tcp, 9090)],
                &[endpoint("10.1.0.2")],
            ),
            slice(
                "web",
                "c",
                &[("http", Protocol::Udp, 80)],
                &[endpoint("10.1.0.3")],
            ),
            slice(
                "web",
                "d",
                &[("", Protocol::Tcp, 80)],
                &[endpoint("10.1.0.4")],
            ),
        ];
        assert_eq!(["10.1.0.1:8080", "10.1.0.2:9090"], *listed(&web, &slices));
    }

    #[test]
    fn an_endpoint_in_two_slices_counts_once_and_ready_beats_terminating() {
        let web = service("web", "10.96.0.1", &[("", Protocol::Tcp, 80)]);
        let ports = &[("", Protocol::Tcp, 8080)];
        let ready = endpoint("10.1.0.1");
        let ending = Endpoint {
            ready: false,
            terminating: true,
            ..ready.clone()
        };
        for pair in [[&ready, &ending], [&ending, &ready]] {
            let slices = [
                slice("web", "a", ports, &[pair[0].clone()]),
                slice("web", "b", ports, &[pair[1].clone(), endpoint("10.1.0.2")]),
            ];
            assert_eq!(["10.1.0.1:8080", "10.1.0.2:8080"], *listed(&web, &slices));
        }
    }

    #[test]
    fn endpoints_that_end_serve_only_when_none_is_ready() {
        let web = service("web", "10.96.0.1", &[("", Protocol::Tcp, 80)]);
        let ports = &[("", Protocol::Tcp, 80)];
        let with = |addr: &str, ready, serving, terminating| Endpoint {
            ready,
            serving,
            terminating,
            ..endpoint(addr)
        };
        let ending = with("10.1.0.1", false, true, true);
        let ended = with("10.1.0.2", false, false, true);
        let unready = with("10.1.0.3", false, true, false);
        let down = with("10.1.0.4", false, false, false);
        let all = [ending, ended, unready, down];
        let slices = [slice("web", "a", ports, &all)];
        assert_eq!(["10.1.0.1:80"], *listed(&web, &slices));

        let ready = with("10.1.0.5", true, true, true);
        let all: Vec<_> = all.into_iter().chain([ready]).collect();
        let slices = [slice("web", "a", ports, &all)];
        assert_eq!(["10.1.0.5:80"], *listed(&web, &slices));
        // The others that serve are known, so that their flows are kept.
        assert_eq!(3, wanted(&web, &slices, "one")[0].endpoints.len());
    }

    #[test]
    fn each_family_is_a_service_port_of_its_own() {
        let mut web = service("web", "10.96.0.1", &[("", Protocol::Tcp, 80)]);
        web.cluster_ips.push("fd00::1".parse().unwrap());
        let ports = &[("", Protocol::Tcp, 80)];
        let slices = [slice("web", "a", ports, &[endpoint("fd00:1::1")])];
        let all = wanted(&web, &slices, "one");
        let counts: Vec<_> = all.iter().map(|port| port.endpoints.len()).collect();
        assert_eq!([0, 1], *counts);
    }

    #[test]
    fn an_endpoint_is_local_by_its_nodes_name() {
        let web = service("web", "10.96.0.1", &[("", Protocol::Tcp, 80)]);
        let on = |addr: &str, node: Option<&str>| Endpoint {
            node: node.map(Arc::from),
            ..endpoint(addr)
        };
        let endpoints = [
            on("10.1.0.1", Some("one")),
            on("10.1.0.2", Some("two")),
            on("10.1.0.3", None),
        ];
        let slices = [slice("web", "a", &[("", Protocol::Tcp, 80)], &endpoints)];
        let all = wanted(&web, &slices, "one");
        let local: Vec<_> = all[0]
            .endpoints
            .iter()
            .map(|endpoint| endpoint.is_local)
            .collect();
        assert_eq!([true, false, false], *local);
    }

    #[test]
    fn sctp_is_left_out() {
        let web = service("web", "10.96.0.1", &[("", Protocol::Sctp, 80)]);
        assert!(wanted(&web, &[], "one").is_empty());
    }
}
