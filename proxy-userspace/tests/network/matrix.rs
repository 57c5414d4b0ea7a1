//! From every kind of client to every kind of endpoint, beside every kind of CNI.
//!
//! Each matrix is gone through twice: with devices that put checksums and segments off, and with
//! devices that do not (field reports B187 and B188: a checksum that is computed after a
//! translation, by a tunnel device or at its end).

use xtask::lab::manifest::{Endpoint, Service};
use xtask::lab::network::{Between, Network, Uplink};
use xtask::lab::server::Server;
use xtask::lab::{Addresses, Host, observe};

use super::exchange::exchange;
use super::world::{World, is_long, serve};

#[test]
fn every_endpoint_is_reached_from_routed_pods() {
    pass(Network::default());
}

#[test]
fn every_endpoint_is_reached_from_pods_on_a_bridge() {
    pass(Network::bridged(false));
}

#[test]
fn every_endpoint_is_reached_from_pods_on_a_bridge_that_netfilter_sees() {
    pass(Network::bridged(true));
}

#[test]
fn every_endpoint_is_reached_from_pods_on_a_bridge_beside_vxlan() {
    pass(Network::vxlan(false));
}

#[test]
fn every_endpoint_is_reached_from_pods_on_a_bridge_that_netfilter_sees_beside_vxlan() {
    pass(Network::vxlan(true));
}

#[test]
fn every_endpoint_is_reached_beside_a_tunnel_without_ethernet() {
    pass(Network {
        between: Between::Tunnel,
        ..Network::default()
    });
    if is_long() {
        pass(Network {
            between: Between::Tunnel,
            ..Network::bridged(false)
        });
    }
}

#[test]
fn every_endpoint_is_reached_where_the_uplink_is_a_bridge() {
    pass(Network {
        uplink: Uplink::Bridge,
        ..Network::default()
    });
    if is_long() {
        pass(Network {
            uplink: Uplink::Bridge,
            ..Network::bridged(false)
        });
    }
}

/// A client and the only endpoint of a Service of its own.
pub(super) struct Path {
    pub(super) client: Host,
    pub(super) endpoint: Host,
    pub(super) service: Service,
    /// Address by which the endpoint sees the client.
    pub(super) seen: Addresses,
}

/// Two nodes, clients on the first one, and endpoints everywhere. The hairpin is the last path.
pub(super) fn paths(world: &mut World) -> (Vec<Path>, Vec<Server>) {
    let client = world.lab.pod(1).unwrap();
    let [near, far] = [1, 2].map(|node| world.lab.pod(node).unwrap());
    let [here, there] = [1, 2].map(|node| world.lab.node(node));
    let outside = world.lab.outside().clone();
    let own = client.addresses;
    // The CNI hides pods behind their node from everybody who is no pod, and a pod that reached
    // itself by its own address would answer itself.
    let (node, vip) = (here.addresses, Addresses::service(15));
    let rows = [
        (&client, &near, 1, own),
        (&client, &far, 2, own),
        (&client, &here, 1, own),
        (&client, &there, 2, node),
        (&outside, &near, 1, outside.addresses),
        (&client, &client, 1, vip),
    ];
    let mut paths = Vec::new();
    for ((client, endpoint, node, seen), number) in rows.into_iter().zip(10..) {
        let at = Endpoint::new(endpoint, &world.lab.node(node));
        let service = Service::new(&format!("web-{number}"), number).with([at]);
        world.manifests.write_service(&service).unwrap();
        paths.push(Path {
            client: client.clone(),
            endpoint: endpoint.clone(),
            service,
            seen,
        });
    }
    let servers = [&client, &near, &far, &here, &there].map(serve);
    (paths, servers.into())
}

fn pass(network: Network) {
    let Some(mut world) = World::on(2, network) else {
        return;
    };
    let (paths, _servers) = paths(&mut world);
    world.start();
    let mut failures = Vec::new();
    for offload in [true, false] {
        if !offload {
            for namespace in world.lab.namespaces() {
                world.lab.without_offloads(namespace).unwrap();
            }
        }
        for path in &paths {
            let Path {
                client,
                endpoint,
                service,
                seen,
            } = path;
            if let Err(error) = exchange(client, service, endpoint, *seen) {
                failures.push(format!("{error:#}"));
            }
        }
        assert!(
            failures.is_empty(),
            "{network:?}, offload {offload}:\n{}",
            failures.join("\n")
        );
    }
    // Whoever waits for a second SYN waits a second.
    for namespace in world.lab.namespaces() {
        assert_eq!(0, observe::repeated_syns(namespace).unwrap());
    }
    let services: Vec<_> = paths.iter().map(|path| &path.service).collect();
    world.assert_unnoticed(&services);
}
