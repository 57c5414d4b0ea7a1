//! Two routers with a narrow link between them, in the way of some packets.

use anyhow::Result;

use super::{add_namespaces, family_of, forward, harden, uplink, uplink_mac};
use crate::lab::address::{Addresses, Family};
use crate::lab::{Host, Lab, command, host};

/// One side of the link: a host of the underlay, and what is reached by way of it.
#[derive(Clone, Copy, Debug)]
pub struct Side<'s> {
    /// The host.
    pub host: &'s Host,
    /// Prefixes.
    pub prefixes: &'s [String],
}

/// Has packets between the two sides travel over two routers, the first one's first, and a link of
/// `mtu` bytes between them.
pub(in crate::lab) fn detour(lab: &Lab, sides: [Side<'_>; 2], mtu: u16) -> Result<[Host; 2]> {
    let routers = [1, 2].map(|number| {
        let name = format!("router{number}");
        host(&lab.id, name, Addresses::router(number))
    });
    let [one, other] = &routers;
    add_namespaces(lab, &[&one.namespace, &other.namespace])?;
    let bridge = lab.bridge.name();
    let mut port = lab.nodes.len() as u8 + 1;
    let mut plugs = Vec::new();
    for router in &routers {
        harden(&router.namespace)?;
        forward(&router.namespace)?;
        // Otherwise it is a matter of time which of its errors are sent.
        let limits = ["ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit"];
        let limits = limits.map(|name| (name.to_owned(), "0"));
        router.namespace.set(&limits)?;
        port += 1;
        let (name, mac) = (router.namespace.name(), uplink_mac(port));
        command::ip(
            None,
            &[format!(
                "link add eth0 netns {name} address {mac} type veth peer name port{port} netns {bridge}"
            )],
        )?;
        plugs.push(format!("link set port{port} master br0 up"));
        command::ip(Some(name), &uplink(router.addresses, "eth0", &mac))?;
    }
    command::ip(Some(bridge), &plugs)?;
    let (name, peer) = (one.namespace.name(), other.namespace.name());
    let link = format!(
        "link add {LINK} netns {name} mtu {mtu} type veth peer name {LINK} netns {peer} mtu {mtu}"
    );
    command::ip(None, &[link])?;
    for (router, end) in routers.iter().zip(ENDS) {
        let lines = [
            format!("link set {LINK} up"),
            format!("address add {}/24 dev {LINK}", end.v4),
            format!("address add {}/64 dev {LINK} nodad", end.v6),
        ];
        command::ip(Some(router.namespace.name()), &lines)?;
    }
    let [near, far] = sides;
    for (own, opposite, router, end) in [(near, far, one, ENDS[1]), (far, near, other, ENDS[0])] {
        let mut lines = lead(opposite.prefixes, end);
        // Its own addresses are on the link already.
        let beyond = own
            .prefixes
            .iter()
            .filter(|prefix| !is_own(own.host, prefix));
        let beyond: Vec<_> = beyond.cloned().collect();
        lines.extend(lead(&beyond, own.host.addresses));
        command::ip(Some(router.namespace.name()), &lines)?;
        let lines = lead(opposite.prefixes, router.addresses);
        command::ip(Some(own.host.namespace.name()), &lines)?;
    }
    Ok(routers)
}

fn lead(prefixes: &[String], gateway: Addresses) -> Vec<String> {
    let lines = prefixes.iter().map(|prefix| {
        let gateway = gateway.of(family_of(prefix));
        format!("route replace {prefix} via {gateway}")
    });
    lines.collect()
}

fn is_own(host: &Host, prefix: &str) -> bool {
    Family::ALL.iter().any(|family| {
        let address = host.addresses.of(*family).to_string();
        prefix.split('/').next() == Some(&address)
    })
}

const LINK: &str = "narrow0";
const ENDS: [Addresses; 2] = [Addresses::link(1), Addresses::link(2)];
