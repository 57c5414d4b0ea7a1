//! What tunnels between nodes do to packets.

use xtask::lab::client::Connection;
use xtask::lab::manifest::{Endpoint, Service};
use xtask::lab::network::{Between, Network};
use xtask::lab::{Addresses, Family, Host, observe};

use super::exchange::exchange;
use super::world::{World, serve};

/// Where the translation happens at a device without Ethernet headers, in both directions.
#[test]
fn a_client_that_comes_in_by_a_tunnel_without_ethernet_reaches_an_endpoint() {
    let network = Network {
        between: Between::Tunnel,
        ..Network::default()
    };
    let Some(mut world) = World::on(2, network) else {
        return;
    };
    let [endpoint, client] = [1, 2].map(|node| world.lab.pod(node).unwrap());
    let [node, other] = [1, 2].map(|number| world.lab.node(number));
    let server = serve(&endpoint);
    let service = Service::new("web", 10).with([Endpoint::new(&endpoint, &node)]);
    world.manifests.write_service(&service).unwrap();
    // The other node knows no Services, but who does.
    world.lab.tunnel_services(&other, &node).unwrap();
    world.start_on_first();
    // To that node's CNI a Service is a place outside.
    let end = Addresses::pod(2, 0);
    exchange(&client, &service, &endpoint, end).unwrap();
    assert_ne!(0, server.accepted());
    let complaints = observe::complaints(&world.lab, &[]).unwrap();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    for entry in observe::conntrack(&node.namespace).unwrap() {
        for family in Family::ALL {
            let vip = service.addresses.of(family).to_string();
            assert!(!entry.contains(&format!("={vip} ")), "{entry}");
        }
    }
}

/// An endpoint whose segments do not fit into the tunnel is told so, of the flow that it knows.
/// Field report B191.
#[test]
fn an_endpoint_learns_that_merged_packets_do_not_fit_into_the_tunnel() {
    for netfilter in [false, true] {
        let network = Network {
            pod_mtu: Some(1500),
            ..Network::vxlan(netfilter)
        };
        let Some(mut world) = World::on(2, network) else {
            return;
        };
        let [client, endpoint] = [1, 2].map(|node| world.lab.pod(node).unwrap());
        let _server = serve(&endpoint);
        for namespace in world.lab.namespaces() {
            world.lab.with_merging(namespace).unwrap();
        }
        let service = Service::new("web", 10).with([Endpoint::new(&endpoint, &world.lab.node(2))]);
        world.start_with(&service);
        for family in Family::ALL {
            assert_eq!(None, path_mtu(&endpoint, &client, family));
            let mut open = Connection::open(&client, service.target(family)).unwrap();
            open.download(1_000_000, 1).unwrap();
            open.close().unwrap();
            assert_eq!(Some(1450), path_mtu(&endpoint, &client, family));
        }
        world.assert_unnoticed(&[&service]);
    }
}

fn path_mtu(from: &Host, to: &Host, family: Family) -> Option<u16> {
    observe::path_mtu(&from.namespace, to.addresses.of(family)).unwrap()
}
