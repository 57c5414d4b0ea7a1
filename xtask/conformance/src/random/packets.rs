//! Packets for the doors of Services, and near them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::addresses;
use super::draft::{Door, Draft, Near, PacketDraft, Sender, Spot};
use super::state::{Resolved, ips, services, spot};
use crate::case::{Entry, Packet, Protocol};

pub(super) fn packets(draft: &Draft) -> Vec<Packet> {
    let services = services(draft);
    let own = ips(&draft.node);
    let mut names = BTreeSet::new();
    let mut all = Vec::new();
    for (n, packet) in draft.packets.iter().enumerate() {
        let Some(mut made) = made(packet, &services, &own) else {
            continue;
        };
        if !names.insert(made.name.clone()) {
            made.name = format!("{} ({n})", made.name);
        }
        all.push(made);
    }
    all
}

/// The packet, if the Service has such a door and the sender an address.
fn made(draft: &PacketDraft, services: &[Resolved<'_>], own: &[IpAddr]) -> Option<Packet> {
    let service = draft.service.get(services);
    let n = draft.port.index(service.ports.len());
    let (protocol, port) = *service.ports.get(n)?;
    let is_v6 = service.draft.is_v6(draft.family) != draft.is_foreign;
    let pick = |of: &[IpAddr]| (!of.is_empty()).then(|| *draft.which.get(of));
    let own: Vec<_> = own
        .iter()
        .copied()
        .filter(|addr| addr.is_ipv6() == is_v6)
        .collect();
    let (name, to, port) = match draft.door {
        Door::ClusterIp => ("cluster IP", service.cluster_ip(is_v6), port),
        Door::NodePort => ("node port", pick(&own)?, service.node_port(n)?),
        Door::LocalhostNodePort => (
            "node port at loopback",
            loopback(is_v6),
            service.node_port(n)?,
        ),
        Door::ExternalIp => ("external IP", pick(&service.external_ips(is_v6))?, port),
        Door::LoadBalancer => {
            let addrs = service.ingress().into_iter().map(|(addr, _)| addr);
            let addrs: Vec<_> = addrs.filter(|addr| addr.is_ipv6() == is_v6).collect();
            ("load balancer", pick(&addrs)?, port)
        }
        Door::ServicePortAtNode => ("service port at the node", pick(&own)?, port),
        Door::Unallocated => (
            "unallocated address",
            addresses::cluster_ip(is_v6, 250),
            port,
        ),
        Door::Endpoint => {
            let endpoints: Vec<_> = endpoints(service, is_v6).map(|(_, addr)| addr).collect();
            ("endpoint", pick(&endpoints)?, 1000)
        }
    };
    let (protocol, port, beside) = match draft.near {
        Near::There => (protocol, port, ""),
        Near::OtherPort => (protocol, port + 7, "port beside "),
        Near::OtherProtocol => (other(protocol), port, "other protocol at "),
    };
    let (who, from, entry) = sender(draft, service, &own, to)?;
    Some(Packet {
        name: format!("{who} to {beside}{name} of {}", service.name()),
        proto: protocol,
        from,
        entry,
        to,
        port,
        expect: None,
        expect_iptables: None,
        note: String::new(),
    })
}

fn sender(
    draft: &PacketDraft,
    service: &Resolved<'_>,
    own: &[IpAddr],
    to: IpAddr,
) -> Option<(&'static str, IpAddr, Entry)> {
    let is_v6 = to.is_ipv6();
    // Nobody else reaches it.
    if to.is_loopback() {
        return Some(("node", loopback(is_v6), Entry::Host));
    }
    Some(match draft.sender {
        Sender::Pod => ("pod", addresses::pod(is_v6, 0, 200), Entry::Pod),
        Sender::Endpoint => {
            let all: Vec<_> = endpoints(service, is_v6).collect();
            if all.is_empty() {
                return None;
            }
            let (at, addr) = *draft.which.get(&all);
            match at {
                Spot::Here(_) => ("endpoint", addr, Entry::Pod),
                Spot::Host => ("endpoint on the node", addr, Entry::Host),
                Spot::There(_) | Spot::Somewhere(_) | Spot::OtherHost => {
                    ("endpoint elsewhere", addr, Entry::External)
                }
            }
        }
        Sender::StrayPod => ("stray pod", addresses::stray_pod(is_v6), Entry::Pod),
        Sender::PodOfOtherNode => (
            "pod of another node",
            addresses::pod(is_v6, 1, 200),
            Entry::External,
        ),
        Sender::Node => ("node", *own.first()?, Entry::Host),
        Sender::NodeBySecond => ("node by its last address", *own.last()?, Entry::Host),
        Sender::OtherNode => ("other node", addresses::other_node(is_v6), Entry::External),
        Sender::Client(n) => {
            let name = if n == 0 { "client" } else { "other client" };
            (name, addresses::client(is_v6, n), Entry::External)
        }
    })
}

fn endpoints<'a>(
    service: &'a Resolved<'_>,
    is_v6: bool,
) -> impl Iterator<Item = (Spot, IpAddr)> + use<'a> {
    let slices = service.draft.slices.iter();
    let own = slices.filter(move |slice| service.draft.is_v6(slice.family) == is_v6);
    own.flat_map(|slice| &slice.endpoints)
        .map(move |endpoint| (endpoint.at, spot(endpoint.at, is_v6).0))
}

const fn other(protocol: Protocol) -> Protocol {
    match protocol {
        Protocol::Tcp => Protocol::Udp,
        Protocol::Udp | Protocol::Sctp => Protocol::Tcp,
    }
}

const fn loopback(is_v6: bool) -> IpAddr {
    if is_v6 {
        IpAddr::V6(Ipv6Addr::LOCALHOST)
    } else {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    }
}
