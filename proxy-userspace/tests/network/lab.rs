//! The lab itself: what the other tests rely on to notice a fault does notice it.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::network::{Between, Network, Uplink};
use xtask::lab::{Addresses, Family, Host, firewall, observe};

use super::world::{World, serve, wait_until};

#[test]
fn direct_connections_work_from_everywhere_to_everywhere_unnoticed() {
    let bridge = Uplink::Bridge;
    for network in [
        Network::default(),
        Network::bridged(false),
        Network::bridged(true),
        Network::vxlan(false),
        Network::vxlan(true),
        Network {
            between: Between::Tunnel,
            uplink: bridge,
            ..Network::default()
        },
    ] {
        reach_directly(network);
    }
}

fn reach_directly(network: Network) {
    let Some(mut world) = World::on(2, network) else {
        return;
    };
    let mut hosts = world.lab.pods(1, 2).unwrap();
    hosts.extend(world.lab.pods(2, 1).unwrap());
    hosts.extend_from_slice(world.lab.nodes());
    let _servers: Vec<_> = hosts.iter().map(serve).collect();
    let mut clients = hosts.clone();
    clients.push(world.lab.outside().clone());
    for client in &clients {
        for host in &hosts {
            for family in Family::ALL {
                let target = SocketAddr::new(host.addresses.of(family), 8080);
                let mut open = Connection::open(client, target)
                    .unwrap_or_else(|error| panic!("{network:?} {} {error:#}", client.name));
                open.upload(100_000, 1).unwrap();
                open.download(100_000, 2).unwrap();
                assert_eq!(host.name, open.answer().name);
                open.close().unwrap();
                let flow = Datagrams::open(client, target).unwrap();
                assert_eq!(host.name, flow.ask().unwrap().name);
            }
        }
    }
    world.assert_unnoticed(&[]);
}

#[test]
fn a_pod_that_comes_back_on_a_bridge_makes_its_new_hardware_address_known() {
    let Some(mut world) = World::on(1, Network::bridged(false)) else {
        return;
    };
    let other = world.lab.pod(1).unwrap();
    let node = world.lab.node(1);
    for _ in 0..2 {
        let pod = world.lab.pods_at(1, &[100]).unwrap().remove(0);
        let _server = serve(&pod);
        for family in Family::ALL {
            let target = SocketAddr::new(pod.addresses.of(family), 8080);
            for client in [&other, &node] {
                Connection::open(client, target).unwrap().close().unwrap();
            }
        }
        world.lab.remove(&pod).unwrap();
    }
}

#[test]
fn a_source_address_that_is_not_the_pods_own_is_noticed() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let pods = world.lab.pods(1, 2).unwrap();
    let node = &world.lab.node(1).namespace;
    let strange = Addresses::service(77);
    for family in Family::ALL {
        let address = strange.of(family);
        world.lab.add_address(&pods[0], address).unwrap();
        send(
            &pods[0],
            (address, 4000).into(),
            pods[1].addresses.of(family),
        );
    }
    wait_until("both packets are counted", || {
        observe::reverse_path_drops(node).unwrap() == 1
            && firewall::packets(node, firewall::WRONG_WAY).unwrap() == 1
    });
    assert_eq!(2, observe::complaints(&world.lab, &[]).unwrap().len());
}

#[test]
fn an_address_of_the_node_that_comes_in_is_noticed() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let pods = world.lab.pods(1, 2).unwrap();
    let node = world.lab.node(1);
    for (family, seen) in Family::ALL.into_iter().zip(1..) {
        let address = node.addresses.of(family);
        world.lab.add_address(&pods[0], address).unwrap();
        send(
            &pods[0],
            (address, 4000).into(),
            pods[1].addresses.of(family),
        );
        wait_until("it is counted", || {
            firewall::packets(&node.namespace, firewall::MARTIAN).unwrap() == seen
        });
    }
}

#[test]
fn a_wrong_checksum_is_noticed() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let node = world.lab.node(1);
    let kinds = [AddressFamily::INET, AddressFamily::INET6];
    for (family, kind) in Family::ALL.into_iter().zip(kinds) {
        let pod = world.lab.pod(1).unwrap();
        // From the node, whose conntrack would call what is only forwarded invalid.
        let raw = || Ok(socket(kind, SocketType::RAW, Some(ipproto::UDP))?);
        let socket = node.namespace.enter(raw).unwrap();
        // From port 4000 to 8080, 8 bytes, and a number as good as any other.
        let header = [0x0f, 0xa0, 0x1f, 0x90, 0, 8, 0x12, 0x34];
        let target = SocketAddr::new(pod.addresses.of(family), 0);
        sendto(&socket, &header, SendFlags::empty(), &target).unwrap();
        wait_until("it is counted", || {
            observe::checksum_errors(&pod.namespace).unwrap() == 1
        });
    }
    assert_eq!(2, observe::complaints(&world.lab, &[]).unwrap().len());
}

#[test]
fn a_service_address_in_the_host_stack_is_noticed() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let pod = world.lab.pod(1).unwrap();
    for family in Family::ALL {
        let vip = Addresses::service(10).of(family);
        send(&pod, (pod.addresses.of(family), 4000).into(), vip);
        wait_until("there is a complaint", || {
            let complaints = observe::complaints(&world.lab, &[vip]).unwrap();
            complaints.iter().any(|text| text.contains("conntrack"))
        });
    }
}

#[test]
fn a_packet_that_conntrack_does_not_know_is_noticed() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let pods = world.lab.pods(1, 2).unwrap();
    let node = &world.lab.node(1).namespace;
    let _server = serve(&pods[1]);
    for (family, seen) in Family::ALL.into_iter().zip(1..) {
        let target = SocketAddr::new(pods[1].addresses.of(family), 8080);
        let open = Connection::open(&pods[0], target).unwrap();
        observe::forget_connections(node).unwrap();
        open.reset().unwrap();
        wait_until("it is counted", || {
            firewall::packets(node, firewall::INVALID).unwrap() == seen
        });
    }
}

fn send(host: &Host, from: SocketAddr, to: IpAddr) {
    let socket = host.namespace.enter(|| Ok(UdpSocket::bind(from)?)).unwrap();
    socket.send_to(b"hello", (to, 8080)).unwrap();
}
