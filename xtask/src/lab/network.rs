//! How the CNI of a lab connects pods and nodes.

/// Links between pods, nodes and the world. The default is Calico without an overlay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Network {
    /// How pods hang on their node.
    pub pods: Pods,
    /// How packets between pods of two nodes travel.
    pub between: Between,
    /// What carries a node's address.
    pub uplink: Uplink,
    /// MTU of what connects nodes and the client outside in bytes, if it is not Ethernet's.
    pub underlay_mtu: Option<u16>,
    /// MTU of pods in bytes, if it is not the largest that fits all ways.
    pub pod_mtu: Option<u16>,
}

/// How pods hang on their node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pods {
    /// Each on a routed veth, its neighbours entered once and for all.
    #[default]
    Routed,
    /// All on one bridge that has the gateway's address, as with the plugin `bridge` and flannel:
    /// hairpin mode off, neighbours found by ARP and neighbour discovery.
    Bridged {
        /// Whether bridged packets pass iptables and nftables (`bridge-nf-call-iptables`).
        netfilter: bool,
    },
}

/// How packets between pods of two nodes travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Between {
    /// By routes over the underlay (host-gw).
    #[default]
    Routes,
    /// In VXLAN with entries made by hand, as with flannel.
    Vxlan,
    /// By a device without an Ethernet header.
    ///
    /// It is VXLAN-GPE, which nobody uses, since IPIP and `WireGuard` are modules that a test
    /// machine may lack. A tc program sees the same: packets that start with the IP header.
    Tunnel,
}

/// What carries a node's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Uplink {
    /// The device `eth0`, a veth.
    #[default]
    Device,
    /// A bridge over `eth0`, as on hosts of virtual machines.
    ///
    /// With bridged pods behind netfilter as well, IPv6 answers to masqueraded packets make the
    /// node send redirects (`br_netfilter` gives them a route, and their way in is taken from it).
    Bridge,
}

impl Network {
    /// Pods on bridges, and routes between nodes.
    pub const fn bridged(netfilter: bool) -> Self {
        Self {
            pods: Pods::Bridged { netfilter },
            between: Between::Routes,
            uplink: Uplink::Device,
            underlay_mtu: None,
            pod_mtu: None,
        }
    }

    /// Pods on bridges, and VXLAN between nodes.
    pub const fn vxlan(netfilter: bool) -> Self {
        Self {
            between: Between::Vxlan,
            ..Self::bridged(netfilter)
        }
    }

    /// MTU of the underlay, in bytes.
    pub(super) fn underlay_mtu(self) -> u16 {
        self.underlay_mtu.unwrap_or(UNDERLAY_MTU)
    }

    /// MTU of pods, in bytes.
    pub(super) fn mtu(self) -> u16 {
        self.pod_mtu.unwrap_or(match self.between {
            Between::Routes => self.underlay_mtu(),
            Between::Vxlan | Between::Tunnel => TUNNEL_MTU,
        })
    }

    /// Name of the device that carries a node's address.
    pub(super) const fn uplink_device(self) -> &'static str {
        match self.uplink {
            Uplink::Device => "eth0",
            Uplink::Bridge => "uplink0",
        }
    }
}

const UNDERLAY_MTU: u16 = 1500;
/// What VXLAN over IPv4 leaves: 50 bytes are outer headers.
pub(super) const TUNNEL_MTU: u16 = 1450;
