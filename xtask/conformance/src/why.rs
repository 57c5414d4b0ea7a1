//! Why a packet fares as it does, as far as the tables tell.

use std::net::SocketAddr;

use kube_lottery::plan::Socket;
use proxy_common::abi::{EndpointFlags, EndpointSet, Frontend, FrontendFlags, Origin};
use proxy_common::net::Proto;

use crate::case::Packet;
use crate::world::World;

/// The frontend that a packet is for, its flags and its sets, and what was not taken from the
/// objects.
pub(crate) fn lines(world: &World, packet: &Packet, left_out: &[String]) -> Vec<String> {
    let proto = Proto::from(packet.proto);
    let at = |port, proto| Socket {
        addr: packet.to,
        port,
        proto,
    };
    let [exact, whole] = [at(packet.port, proto), at(0, Proto(0))].map(|at| frontend(world, at));
    let mut lines = vec![format!(
        "{:?} {:?} from {} to {}",
        packet.entry,
        packet.proto,
        packet.from,
        SocketAddr::new(packet.to, packet.port)
    )];
    match exact.or(whole) {
        None => lines.push("no frontend".to_owned()),
        Some(frontend) => lines.extend(of_frontend(world, packet, &frontend)),
    }
    lines.extend(left_out.iter().cloned());
    lines
}

fn frontend(world: &World, at: Socket) -> Option<Frontend> {
    let mut all = world.snapshot().frontends.iter();
    all.find(|(own, _)| *own == at).map(|(_, value)| *value)
}

fn of_frontend(world: &World, packet: &Packet, frontend: &Frontend) -> Vec<String> {
    let Frontend { service, flags, .. } = *frontend;
    let mut lines = vec![format!("service port {service}, flags {:#x}", flags.0)];
    for origin in [Origin::Inside, Origin::Outside, Origin::Host] {
        lines.push(format!(
            "{origin:?}: masqueraded {}, local {}, if empty {:?}, to {}",
            flags.has(FrontendFlags::masquerade(origin)),
            flags.has(FrontendFlags::local(origin)),
            flags.empty(origin),
            set(world, packet, frontend.set(origin)),
        ));
    }
    if flags.has(FrontendFlags::FILTERED) {
        let ranges = world.snapshot().sources.iter();
        let own: Vec<_> = ranges
            .filter(|(of, _)| *of == service)
            .map(|(_, range)| range.to_string())
            .collect();
        lines.push(format!("only for {}", own.join(" ")));
    }
    lines
}

fn set(world: &World, packet: &Packet, set: EndpointSet) -> String {
    let (base, count) = (set.base() as usize, set.count() as usize);
    let slots = world.snapshot().sets.get(base..base + count);
    let names: Vec<_> = slots
        .unwrap_or_default()
        .iter()
        .map(|slot| {
            let is_it = |at: u32, addr: std::net::IpAddr| {
                at == slot.endpoint && addr.is_ipv4() == packet.to.is_ipv4()
            };
            let mut records = world.snapshot().records.iter();
            let found = records.find(|(at, record)| is_it(*at, record.addr));
            found.map_or_else(
                || format!("slot {}?", slot.endpoint),
                |(_, record)| {
                    let at = SocketAddr::new(record.addr, record.port);
                    let is_local = record.flags.has(EndpointFlags::LOCAL);
                    format!("{at}{}", if is_local { " (local)" } else { "" })
                },
            )
        })
        .collect();
    if names.is_empty() {
        "nobody".to_owned()
    } else {
        names.join(" ")
    }
}
