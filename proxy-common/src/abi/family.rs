//! The two IP families as type parameters: the data path is written once for both.

use bytemuck::Pod;

use super::affinity::{AffinityKey4, AffinityKey6};
use super::detector::Detector;
use super::device::{Device, NETWORKS, Network, Network4, Network6};
use super::endpoint::{
    Endpoint, Endpoint4, Endpoint6, EndpointKey4, EndpointKey6, Frontends4, Frontends6,
};
use super::flow::{Flow, Flow4, Flow6, FlowKey, FlowKey4, FlowKey6};
use super::fragment::{Fragment, Fragment4, Fragment6, FragmentKey, FragmentKey4, FragmentKey6};
use super::frontend::{FrontendKey4, FrontendKey6};
use super::source::{Source4, Source6};
use crate::net::{Address, Ip4, Ip6, Port, Proto};

/// One IP family: its address and the map layouts that hold addresses.
pub trait Family: Copy + 'static {
    /// An address.
    type Addr: Address;
    /// Key of the frontend map.
    type FrontendKey: Pod + Eq + core::hash::Hash;
    /// Element of the endpoint array.
    type Endpoint: Endpoint<Addr = Self::Addr>;
    /// Key of the map from endpoints back to their frontends.
    type EndpointKey: Pod + Eq + core::hash::Hash;
    /// Value of that map.
    type Frontends: Pod;
    /// Key of the flow maps.
    type FlowKey: FlowKey<Addr = Self::Addr>;
    /// Value of the flow maps.
    type Flow: Flow<Addr = Self::Addr>;
    /// Key of the map of datagrams in fragments.
    type FragmentKey: FragmentKey<Addr = Self::Addr>;
    /// Value of that map.
    type Fragment: Fragment<Addr = Self::Addr>;
    /// Key of the map of clients.
    type AffinityKey: Pod + Eq + core::hash::Hash;
    /// Data of the keys of the trie of source ranges.
    type Source: Pod + Eq + core::hash::Hash;
    /// A network that a bridge port's device is on.
    type Network: Network<Addr = Self::Addr>;

    /// Whether this is IPv6.
    const IS_V6: bool;

    /// Key of the frontend at exactly this address, port and protocol.
    fn frontend_key(addr: Self::Addr, port: Port, proto: Proto) -> Self::FrontendKey;
    /// Key under which an endpoint's frontends are kept.
    fn endpoint_key(addr: Self::Addr, port: Port, proto: Proto) -> Self::EndpointKey;
    /// The `index`th frontend of an endpoint, if it has that many.
    fn frontend_at(frontends: &Self::Frontends, index: usize) -> Option<(Self::Addr, Port)>;
    /// Key of a client of a service port.
    fn affinity_key(service: u32, client: Self::Addr) -> Self::AffinityKey;
    /// A source, to be looked for among the ranges of a service port.
    fn source(service: u32, addr: Self::Addr) -> Self::Source;
    /// Whether the detector's range of this family has a source in it.
    fn is_detected(detector: &Detector, addr: Self::Addr) -> bool;
    /// The networks of a device's bridge.
    fn networks(device: &Device) -> &[Self::Network; NETWORKS];
}

/// IPv4.
#[derive(Clone, Copy, Debug)]
pub struct V4;

/// IPv6.
#[derive(Clone, Copy, Debug)]
pub struct V6;

macro_rules! family {
    ($name:ident, $is_v6:literal, $addr:ty, $frontend_key:ident, $endpoint:ident,
     $endpoint_key:ident, $frontends:ident, $flow_key:ident, $flow:ident,
     $fragment_key:ident, $fragment:ident,
     $affinity_key:ident, $source:ident, $contains:ident,
     $network:ident, $networks:ident) => {
        impl Family for $name {
            type Addr = $addr;
            type FrontendKey = $frontend_key;
            type Endpoint = $endpoint;
            type EndpointKey = $endpoint_key;
            type Frontends = $frontends;
            type FlowKey = $flow_key;
            type Flow = $flow;
            type FragmentKey = $fragment_key;
            type Fragment = $fragment;
            type AffinityKey = $affinity_key;
            type Source = $source;
            type Network = $network;

            const IS_V6: bool = $is_v6;

            #[inline(always)]
            fn frontend_key(addr: $addr, port: Port, proto: Proto) -> $frontend_key {
                $frontend_key::exact(addr, port, proto)
            }

            #[inline(always)]
            fn endpoint_key(addr: $addr, port: Port, proto: Proto) -> $endpoint_key {
                $endpoint_key::new(addr, port, proto)
            }

            #[inline(always)]
            fn frontend_at(frontends: &$frontends, index: usize) -> Option<($addr, Port)> {
                frontends.at(index)
            }

            #[inline(always)]
            fn affinity_key(service: u32, client: $addr) -> $affinity_key {
                $affinity_key { service, client }
            }

            #[inline(always)]
            fn source(service: u32, addr: $addr) -> $source {
                $source { service, addr }
            }

            #[inline(always)]
            fn is_detected(detector: &Detector, addr: $addr) -> bool {
                detector.$contains(addr)
            }

            #[inline(always)]
            fn networks(device: &Device) -> &[$network; NETWORKS] {
                &device.$networks
            }
        }
    };
}

family!(
    V4,
    false,
    Ip4,
    FrontendKey4,
    Endpoint4,
    EndpointKey4,
    Frontends4,
    FlowKey4,
    Flow4,
    FragmentKey4,
    Fragment4,
    AffinityKey4,
    Source4,
    contains4,
    Network4,
    networks4
);
family!(
    V6,
    true,
    Ip6,
    FrontendKey6,
    Endpoint6,
    EndpointKey6,
    Frontends6,
    FlowKey6,
    Flow6,
    FragmentKey6,
    Fragment6,
    AffinityKey6,
    Source6,
    contains6,
    Network6,
    networks6
);
