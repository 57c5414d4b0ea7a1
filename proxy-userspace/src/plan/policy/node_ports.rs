//! The addresses of this node at which node ports are reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::facts::Facts;
use crate::config::{Config, Mode, NodePortAddresses};
use crate::model::Family;

/// Stands for all of 127.0.0.0/8.
const LOOPBACK4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LOOPBACK6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Addresses of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodePorts {
    /// Where node ports are served, the primary address first.
    pub(super) served: Vec<IpAddr>,
    /// Where packets to a node port without an endpoint are refused, or dropped, all the same:
    /// the other addresses of the node in the mode of iptables.
    pub(super) guarded: Vec<IpAddr>,
}

impl NodePorts {
    pub(super) fn of(config: &Config, facts: &Facts, family: Family) -> Self {
        let ranges = Ranges::of(config, facts, family);
        let is_iptables = config.mode == Mode::Iptables;
        let mut found = Self::default();
        let own = facts.own.iter().copied();
        for addr in own.filter(|addr| Family::of(*addr) == family && !addr.is_loopback()) {
            if ranges.include(addr) {
                found.served.push(addr);
            } else if is_iptables && !is_of_one_link(addr) {
                found.guarded.push(addr);
            }
        }
        if is_iptables {
            let (loopback, may_serve) = match family {
                Family::V4 => (LOOPBACK4, config.localhost_node_ports),
                Family::V6 => (LOOPBACK6, false),
            };
            if may_serve && ranges.include(loopback) {
                found.served.push(loopback);
            } else {
                found.guarded.push(loopback);
            }
        }
        let is_primary = |addr: &IpAddr| facts.primary.contains(addr);
        found.served.sort_by_key(|addr| !is_primary(addr));
        found
    }
}

/// Which addresses of a family are chosen.
enum Ranges {
    All,
    In(Vec<IpNet>),
}

impl Ranges {
    fn of(config: &Config, facts: &Facts, family: Family) -> Self {
        let (primary, mut mine) = match (&config.node_port_addresses, config.mode) {
            (NodePortAddresses::In { primary, ranges }, _) => (*primary, ranges.clone()),
            (NodePortAddresses::Default, Mode::Nftables) => (true, Vec::new()),
            (NodePortAddresses::Default, Mode::Iptables) => (false, Vec::new()),
        };
        if primary {
            mine.extend(facts.primary.iter().copied().map(IpNet::from));
        }
        mine.retain(|range| Family::of(range.addr()) == family);
        if mine.is_empty() || mine.iter().any(|range| range.prefix_len() == 0) {
            return Self::All;
        }
        Self::In(mine)
    }

    fn include(&self, addr: IpAddr) -> bool {
        match self {
            Self::All => !is_of_one_link(addr),
            Self::In(ranges) => ranges.iter().any(|range| range.contains(&addr)),
        }
    }
}

/// Whether an address is one that every interface has for its own link. They come and go with the
/// pods, by the hundred, and nobody knows them, so node ports are there only if asked for.
const fn is_of_one_link(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(_) => false,
        IpAddr::V6(addr) => addr.is_unicast_link_local(),
    }
}
