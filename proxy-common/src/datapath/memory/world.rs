//! Services and endpoints in the memory form of the maps, for tests.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::vec::Vec;

use bytemuck::Zeroable as _;

use super::MemoryTables;
use crate::abi::bits::{bit_of, socket_bit_of};
use crate::abi::source::SERVICE_BITS;
use crate::abi::{
    Detector, Endpoint4, Endpoint6, EndpointFlags, EndpointSet, Family as _, Frontend,
    FrontendFlags, Frontends4, Frontends6, Network4, Network6, Settings, Slot, V4, V6,
};
use crate::net::{Address, Ip4, Ip6, Port, Proto};

/// Builds the tables of a few Services.
pub struct World {
    /// The tables.
    pub tables: MemoryTables,
    next_service: u32,
    next_endpoint: u32,
}

fn set_bit(words: &mut [u64], (word, mask): (u32, u64)) {
    if let Some(bits) = words.get_mut(word as usize) {
        *bits |= mask;
    }
}

fn set_endpoint_bits<A: Address>(words: &mut [u64], addr: A, port: Port, proto: Proto) {
    set_bit(words, bit_of(addr));
    set_bit(words, socket_bit_of(addr, port, proto));
}

impl World {
    /// No Service yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            tables: MemoryTables::new(settings),
            next_service: 1,
            next_endpoint: 1,
        }
    }

    /// Adds a service port with these endpoints and returns its number. One that is named several
    /// times in a row has as many slots in the set, and so as many chances.
    pub fn service(
        &mut self,
        vip: (IpAddr, u16),
        proto: Proto,
        endpoints: &[(IpAddr, u16)],
    ) -> u32 {
        let service = self.next_service;
        self.next_service += 1;
        let base = self.tables.sets.len() as u32;
        for same in endpoints.chunk_by(|one, other| one == other) {
            let id = self.next_endpoint;
            self.next_endpoint += 1;
            let slot = Slot {
                endpoint: id,
                service,
            };
            self.tables.sets.extend(same.iter().map(|_| slot));
            if let Some((addr, port)) = same.first() {
                self.endpoint((id, service), *addr, *port, proto);
                self.reverse(vip, proto, *addr, *port);
            }
        }
        let set = EndpointSet::new(base, endpoints.len() as u32);
        let frontend = Frontend {
            inside: set,
            outside: set,
            service,
            flags: FrontendFlags::NONE,
            affinity_timeout: 0,
            reserved: [0; 5],
        };
        self.frontend(vip, proto, frontend);
        service
    }

    /// Adds a frontend, or puts it in place of the one that is there.
    pub fn frontend(&mut self, (addr, port): (IpAddr, u16), proto: Proto, frontend: Frontend) {
        let port = Port::new(port);
        match addr {
            IpAddr::V4(addr) => {
                set_bit(&mut self.tables.frontend_bits, bit_of(Ip4::from(addr)));
                let key = V4::frontend_key(addr.into(), port, proto);
                self.tables.v4.frontends.insert(key, frontend);
            }
            IpAddr::V6(addr) => {
                set_bit(&mut self.tables.frontend_bits, bit_of(Ip6::from(addr)));
                let key = V6::frontend_key(addr.into(), port, proto);
                self.tables.v6.frontends.insert(key, frontend);
            }
        }
    }

    /// Changes a frontend that is there.
    pub fn change(
        &mut self,
        (addr, port): (IpAddr, u16),
        proto: Proto,
        change: impl FnMut(&mut Frontend),
    ) {
        let port = Port::new(port);
        let found = match addr {
            IpAddr::V4(addr) => {
                let key = V4::frontend_key(addr.into(), port, proto);
                self.tables.v4.frontends.get_mut(&key)
            }
            IpAddr::V6(addr) => {
                let key = V6::frontend_key(addr.into(), port, proto);
                self.tables.v6.frontends.get_mut(&key)
            }
        };
        found.into_iter().for_each(change);
    }

    /// Says what becomes of packets to ports of an address where there is no Service.
    pub fn whole(&mut self, addr: IpAddr, flags: FrontendFlags) {
        let service = self.next_service;
        self.next_service += 1;
        let frontend = Frontend {
            service,
            flags,
            ..Frontend::zeroed()
        };
        self.frontend((addr, 0), Proto::ANY, frontend);
    }

    /// Makes the address of a frontend one of the node's own.
    pub fn own(&mut self, (addr, port): (IpAddr, u16), proto: Proto) {
        self.change((addr, port), proto, |frontend| {
            frontend.flags = frontend.flags.with(FrontendFlags::OWN_ADDRESS);
        });
        let (bits, port) = (&mut self.tables.endpoint_bits, Port::new(port));
        match addr {
            IpAddr::V4(addr) => set_endpoint_bits(bits, Ip4::from(addr), port, proto),
            IpAddr::V6(addr) => set_endpoint_bits(bits, Ip6::from(addr), port, proto),
        }
    }

    /// Lets a service port's filtered frontends be used from this range.
    pub fn source(&mut self, service: u32, range: IpAddr, len: u32) {
        let len = SERVICE_BITS + len;
        match range {
            IpAddr::V4(addr) => {
                let source = V4::source(service, addr.into());
                self.tables.v4.sources.push((len, source));
            }
            IpAddr::V6(addr) => {
                let source = V6::source(service, addr.into());
                self.tables.v6.sources.push((len, source));
            }
        }
    }

    /// Takes sources in these ranges for pods.
    pub fn detect(&mut self, (v4, len4): (Ipv4Addr, u8), (v6, len6): (Ipv6Addr, u8)) {
        let (v4, v6) = (Network4::new(1, v4, len4), Network6::new(1, v6, len6));
        self.tables.detector = Detector {
            by_device: 0,
            has4: 1,
            has6: 1,
            addr4: v4.addr,
            mask4: v4.mask,
            addr6: v6.addr,
            mask6: v6.mask,
        };
    }

    /// Changes the properties of the endpoints at an address.
    pub fn flag(&mut self, addr: IpAddr, change: impl Fn(&mut EndpointFlags)) {
        for own in self.tables.v4.endpoints.values_mut() {
            if IpAddr::from(own.addr) == addr {
                change(&mut own.flags);
            }
        }
        for own in self.tables.v6.endpoints.values_mut() {
            if IpAddr::from(own.addr) == addr {
                change(&mut own.flags);
            }
        }
    }

    fn endpoint(&mut self, (id, service): (u32, u32), addr: IpAddr, port: u16, proto: Proto) {
        let port = Port::new(port);
        match addr {
            IpAddr::V4(addr) => {
                set_endpoint_bits(&mut self.tables.endpoint_bits, Ip4::from(addr), port, proto);
                self.tables.v4.endpoints.insert(
                    id,
                    Endpoint4 {
                        addr: addr.into(),
                        port,
                        flags: TAKES_FLOWS,
                        pad: 0,
                        generation: 1,
                        service,
                    },
                );
            }
            IpAddr::V6(addr) => {
                set_endpoint_bits(&mut self.tables.endpoint_bits, Ip6::from(addr), port, proto);
                self.tables.v6.endpoints.insert(
                    id,
                    Endpoint6 {
                        addr: addr.into(),
                        port,
                        flags: TAKES_FLOWS,
                        pad: 0,
                        generation: 1,
                        service,
                        pad2: 0,
                    },
                );
            }
        }
    }

    fn reverse(&mut self, vip: (IpAddr, u16), proto: Proto, addr: IpAddr, port: u16) {
        let (port, vip_port) = (Port::new(port), Port::new(vip.1));
        match (vip.0, addr) {
            (IpAddr::V4(vip), IpAddr::V4(addr)) => {
                let key = V4::endpoint_key(addr.into(), port, proto);
                let known = self.tables.v4.reverse.get(&key).copied();
                let doors = (0..8).filter_map(|index| known.as_ref()?.at(index));
                let doors = doors.chain([(vip.into(), vip_port)]).collect::<Vec<_>>();
                self.tables.v4.reverse.insert(key, Frontends4::new(doors));
            }
            (IpAddr::V6(vip), IpAddr::V6(addr)) => {
                let key = V6::endpoint_key(addr.into(), port, proto);
                let known = self.tables.v6.reverse.get(&key).copied();
                let doors = (0..8).filter_map(|index| known.as_ref()?.at(index));
                let doors = doors.chain([(vip.into(), vip_port)]).collect::<Vec<_>>();
                self.tables.v6.reverse.insert(key, Frontends6::new(doors));
            }
            // A frontend and its endpoints are of one family.
            _ => {}
        }
    }
}

/// Of an endpoint that is in the sets of the cluster.
const TAKES_FLOWS: EndpointFlags = EndpointFlags::ALIVE.with(EndpointFlags::IN_CLUSTER_SET);

/// The `n`th endpoint address of a family: `10.244.2.x`, `fd00:10:244:2::x`.
pub fn endpoint_addr(is_v6: bool, n: u32) -> IpAddr {
    if is_v6 {
        Ipv6Addr::from(0xfd00_0010_0244_0002_u128 << 64 | u128::from(n)).into()
    } else {
        Ipv4Addr::from(0x0af4_0200 + n).into()
    }
}

/// The `n`th client address of a family: `10.244.1.x`, `fd00:10:244:1::x`.
pub fn client_addr(is_v6: bool, n: u32) -> IpAddr {
    if is_v6 {
        Ipv6Addr::from(0xfd00_0010_0244_0001_u128 << 64 | u128::from(n)).into()
    } else {
        Ipv4Addr::from(0x0af4_0100 + n).into()
    }
}

/// The `n`th Service address of a family: `10.96.0.x`, `fd00:10:96::x`.
pub fn vip(is_v6: bool, n: u32) -> IpAddr {
    if is_v6 {
        Ipv6Addr::from(0xfd00_0010_0096_u128 << 80 | u128::from(n)).into()
    } else {
        Ipv4Addr::from(0x0a60_0000 + n).into()
    }
}
