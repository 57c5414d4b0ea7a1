//! Who has which address in a lab, and the small words for family and protocol.
//!
//! All of it is documentation and private space, and none of it leaves the namespaces.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Pods of all nodes, IPv4.
pub const POD_RANGE_V4: &str = "10.244.0.0/16";
/// Pods of all nodes, IPv6.
pub const POD_RANGE_V6: &str = "fd00:10:244::/48";
/// Cluster IPs, IPv4.
pub const SERVICE_RANGE_V4: &str = "10.96.0.0/16";
/// Cluster IPs, IPv6.
pub const SERVICE_RANGE_V6: &str = "fd00:10:96::/112";

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, in the order in which they are tried.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// Both, in the order in which they are tried.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Udp];
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// One address of each family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The IPv4 address.
    pub v4: Ipv4Addr,
    /// The IPv6 address.
    pub v6: Ipv6Addr,
}

impl Addresses {
    /// The address of that family.
    pub const fn of(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => IpAddr::V4(self.v4),
            Family::V6 => IpAddr::V6(self.v6),
        }
    }

    /// A node on the underlay, counted from 1.
    pub const fn node(number: u8) -> Self {
        Self::underlay(10 + number)
    }

    /// The client outside the cluster.
    pub const fn outside() -> Self {
        Self::underlay(100)
    }

    /// A router on the underlay, counted from 1.
    pub const fn router(number: u8) -> Self {
        Self::underlay(100 + number)
    }

    /// An end of the link between two routers, counted from 1.
    pub const fn link(number: u8) -> Self {
        Self {
            v4: Ipv4Addr::new(198, 51, 100, number),
            v6: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, number as u16),
        }
    }

    /// The two as prefixes of nobody else.
    pub fn prefixes(&self) -> [String; 2] {
        [format!("{}/32", self.v4), format!("{}/128", self.v6)]
    }

    /// A pod of a node, both counted from 1.
    pub const fn pod(node: u8, pod: u8) -> Self {
        Self {
            v4: Ipv4Addr::new(10, 244, node, pod),
            v6: Ipv6Addr::new(0xfd00, 0x10, 0x244, node as u16, 0, 0, 0, pod as u16),
        }
    }

    /// Cluster IPs of a Service.
    pub const fn service(number: u8) -> Self {
        Self {
            v4: Ipv4Addr::new(10, 96, 0, number),
            v6: Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, number as u16),
        }
    }

    const fn underlay(number: u8) -> Self {
        Self {
            v4: Ipv4Addr::new(192, 0, 2, number),
            v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number as u16),
        }
    }
}

/// Pod ranges of one node.
pub fn pod_ranges(node: u8) -> [String; 2] {
    [
        format!("10.244.{node}.0/24"),
        format!("fd00:10:244:{node:x}::/64"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_lies_in_the_ranges_of_its_node() {
        let pod = Addresses::pod(2, 7);
        assert_eq!("10.244.2.7", pod.of(Family::V4).to_string());
        assert_eq!("fd00:10:244:2::7", pod.of(Family::V6).to_string());
        assert_eq!(
            ["10.244.2.0/24", "fd00:10:244:2::/64"],
            pod_ranges(2).each_ref().map(String::as_str)
        );
    }
}
