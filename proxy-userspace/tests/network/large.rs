//! Packets that are larger than usual: of jumbo frames, and such as devices cut and merge.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::network::Network;
use xtask::lab::{Family, Host};

use super::scene::{NODE_PORT, Scene};

/// Bytes; enough for windows to open and for packets of 64 KiB, which devices cut.
const TRANSFER: usize = 20_000_000;

/// Lengths of datagrams, in bytes: of one packet each where frames are that large, and of many.
const WHOLE: [usize; 2] = [4000, 8900];
const ALL: [usize; 4] = [4000, 8900, 20_000, 60_000];

fn transfer(client: &Host, target: SocketAddr, lengths: &[usize]) -> Result<()> {
    let mut open = Connection::open(client, target)?;
    open.upload(TRANSFER, 1).context("upload")?;
    open.download(TRANSFER, 2).context("download")?;
    open.close()?;
    for length in lengths {
        let flow = Datagrams::open(client, target)?;
        flow.ask_with(&vec![0x5a; *length])
            .with_context(|| format!("{length} bytes"))?;
    }
    Ok(())
}

/// To an endpoint of a node through the node port of the first, and from a pod.
fn pass(network: Network, endpoint_on: usize, merges: bool, lengths: &[usize]) {
    let scene = Scene::on(network, "", |service| {
        let mut service = service.at_node_port(NODE_PORT);
        service.endpoints = vec![service.endpoints.swap_remove(endpoint_on - 1)];
        service
    });
    let Some(scene) = scene else {
        return;
    };
    for namespace in scene.world.lab.namespaces().filter(|_| merges) {
        scene.world.lab.with_merging(namespace).unwrap();
    }
    for family in Family::ALL {
        for (client, target) in [
            (&scene.outside(), scene.door(1, family)),
            (&scene.client, scene.service.target(family)),
        ] {
            let done = transfer(client, target, lengths);
            let what = format!("{}, {family}, {network:?}", client.name);
            done.with_context(|| what).unwrap();
        }
    }
    scene.assert_unnoticed(&[]);
}

/// Merged or not, they come to the programs as they are, and are cut behind them.
#[test]
fn large_transfers_pass_a_node_port() {
    for (endpoint_on, merges) in [(1, false), (2, true)] {
        pass(Network::default(), endpoint_on, merges, &ALL);
    }
}

#[test]
fn jumbo_frames_pass_a_node_port() {
    let network = Network {
        underlay_mtu: Some(9000),
        ..Network::default()
    };
    for (endpoint_on, merges) in [(1, true), (2, false)] {
        pass(network, endpoint_on, merges, &ALL);
    }
}

#[test]
fn jumbo_frames_pass_bridges() {
    // With netfilter, the kernel loses IPv4 fragments of more than 1500 bytes between any two ports
    // of a bridge.
    for (netfilter, lengths) in [(false, &ALL[..]), (true, &WHOLE)] {
        let network = Network {
            underlay_mtu: Some(9000),
            ..Network::bridged(netfilter)
        };
        pass(network, 1, false, lengths);
    }
}
