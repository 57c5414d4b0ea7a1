//! The data path over plain memory, packet by packet.

use core::net::{IpAddr, SocketAddr};
use std::vec::Vec;

use etherparse::{IpNumber, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};

use super::memory::world::{World, client_addr, endpoint_addr, vip};
use super::memory::{Fib, MemoryPacket, MemoryRoom, MemoryTables};
use super::{Verdict, egress, ingress};
use crate::abi::{
    Counter, Device, EndpointFlags, FlowState, Frontend, FrontendFlags, Kind, Origin, Settings,
    State, Tier,
};
use crate::net::sctp::crc32c;
use crate::net::{Proto, eth};

mod affinity;
mod bridge;
mod connect;
mod direct;
mod extensions;
mod fragments;
mod hairpin;
mod icmp;
mod lost;
mod masquerade;
mod open;
mod origin;
mod own;
mod remains;
mod repair;
mod report;
mod state;
mod udp;
mod verdict;

/// Both families and all protocols, for tests that must hold in each.
const ALL: [(bool, Proto); 6] = [
    (false, Proto::TCP),
    (false, Proto::UDP),
    (false, Proto::SCTP),
    (true, Proto::TCP),
    (true, Proto::UDP),
    (true, Proto::SCTP),
];

/// TCP flags as letters, and the numbers that go with them.
#[derive(Clone, Copy)]
struct Tcp {
    flags: &'static str,
    seq: u32,
    ack: u32,
}

const SYN: Tcp = tcp("S", 100, 0);
const SYN_ACK: Tcp = tcp("SA", 900, 101);
const ACK: Tcp = tcp("A", 101, 901);
const REPLY: Tcp = tcp("A", 901, 101);
const FIN: Tcp = tcp("FA", 101, 901);
const RST: Tcp = tcp("R", 101, 0);

const fn tcp(flags: &'static str, seq: u32, ack: u32) -> Tcp {
    Tcp { flags, seq, ack }
}

/// What came of a packet: the addresses it carries now, unless it was dropped.
type Outcome = Result<(SocketAddr, SocketAddr), Counter>;

/// A node's tables, and packets through them.
struct Node {
    world: World,
    proto: Proto,
    /// Index of the device that packets come in by.
    device: u32,
    /// The mark of the last packet, which had [`OTHER_MARK`] before.
    mark: u32,
}

/// Bits of other users of the mark.
const OTHER_MARK: u32 = 0x0f00_0001;

impl Node {
    fn new(proto: Proto) -> Self {
        Self {
            world: World::new(Settings::with_hz(250)),
            proto,
            device: 1,
            mark: 0,
        }
    }

    /// Changes the frontend of a Service.
    fn change(&mut self, service: SocketAddr, change: impl FnMut(&mut Frontend)) {
        let proto = self.proto;
        self.world
            .change((service.ip(), service.port()), proto, change);
    }

    /// Adds properties to the frontend of a Service.
    fn flag(&mut self, service: SocketAddr, flags: FrontendFlags) {
        self.change(service, |frontend| {
            frontend.flags = frontend.flags.with(flags);
        });
    }

    /// Takes the second and the third client of each family for pods, and not the first.
    fn detect(&mut self) {
        let v6 = "fd00:10:244:1::2".parse().unwrap();
        self.world.detect(([10, 244, 1, 2].into(), 31), (v6, 127));
    }

    /// The bits that were set in the last packet's mark; no other has changed.
    fn marked(&self) -> u32 {
        assert_eq!(OTHER_MARK, self.mark & OTHER_MARK);
        self.mark & !OTHER_MARK
    }

    /// A Service at the `n`th address, port 80, with these endpoints at port 8080.
    fn service(&mut self, is_v6: bool, n: u32, endpoints: &[u32]) -> SocketAddr {
        let endpoints: Vec<_> = endpoints
            .iter()
            .map(|id| (endpoint_addr(is_v6, *id), 8080))
            .collect();
        self.world
            .service((vip(is_v6, n), 80), self.proto, &endpoints);
        SocketAddr::new(vip(is_v6, n), 80)
    }

    fn tables(&mut self) -> &mut MemoryTables {
        &mut self.world.tables
    }

    fn later(&mut self, seconds: u32) {
        self.tables().now += seconds;
    }

    fn counted(&mut self, counter: Counter) -> u64 {
        self.tables().counted(counter)
    }

    /// A packet that comes in.
    fn enters(&mut self, from: SocketAddr, to: SocketAddr, tcp: Tcp) -> Outcome {
        self.run(from, to, tcp, true)
    }

    /// A packet that goes out.
    fn leaves(&mut self, from: SocketAddr, to: SocketAddr, tcp: Tcp) -> Outcome {
        self.run(from, to, tcp, false)
    }

    fn run(&mut self, from: SocketAddr, to: SocketAddr, tcp: Tcp, enters: bool) -> Outcome {
        let (verdict, bytes) = self.take(frame(self.proto, from, to, tcp), enters);
        match verdict {
            Verdict::Drop(reason) => Err(reason),
            Verdict::Pass => {
                assert_eq!((from, to), addresses(&bytes));
                Ok((from, to))
            }
            Verdict::Rewritten => Ok(addresses(&bytes)),
            Verdict::Rejected => {
                assert_eq!((from, to), addresses(&bytes));
                Err(Counter::Reject)
            }
        }
    }

    /// A frame that comes in or goes out, and what it is afterwards.
    fn take(&mut self, frame: impl Into<Vec<u8>>, enters: bool) -> (Verdict, Vec<u8>) {
        let mut packet = MemoryPacket::frame(frame)
            .at(self.device, &Fib::new())
            .marked(OTHER_MARK);
        let room = &mut MemoryRoom::default();
        let tables = &mut self.world.tables;
        let verdict = if enters {
            ingress(&mut packet, tables, room, eth::LEN)
        } else {
            egress(&mut packet, tables, room, eth::LEN)
        };
        self.mark = packet.mark_of();
        (verdict, packet.bytes().to_vec())
    }

    /// Opens a connection from the `n`th client and returns its endpoint.
    fn connect(&mut self, client: SocketAddr, service: SocketAddr) -> SocketAddr {
        let (from, endpoint) = self.enters(client, service, SYN).unwrap();
        assert_eq!(
            (service, client),
            self.leaves(endpoint, from, SYN_ACK).unwrap()
        );
        assert_eq!((from, endpoint), self.enters(client, service, ACK).unwrap());
        endpoint
    }

    /// Takes an endpoint away, as the controller does when its slot is given up.
    fn remove_endpoint(&mut self, addr: IpAddr) {
        self.change_endpoint(addr, |generation, flags| {
            *generation += 1;
            *flags = EndpointFlags::NONE;
        });
    }

    /// Has an endpoint keep what it has and get nothing new.
    fn terminate(&mut self, addr: IpAddr) {
        self.world.flag(addr, |flags| *flags = EndpointFlags::HELD);
    }

    fn change_endpoint(
        &mut self,
        addr: IpAddr,
        mut change: impl FnMut(&mut u32, &mut EndpointFlags),
    ) {
        let tables = self.tables();
        for own in tables.v4.endpoints.values_mut() {
            if IpAddr::from(own.addr) == addr {
                change(&mut own.generation, &mut own.flags);
            }
        }
        for own in tables.v6.endpoints.values_mut() {
            if IpAddr::from(own.addr) == addr {
                change(&mut own.generation, &mut own.flags);
            }
        }
    }

    /// How many halves a tier holds.
    fn halves(&mut self, tier: Tier) -> usize {
        let tables = self.tables();
        tables.v4.tier(tier).len() + tables.v6.tier(tier).len()
    }

    /// What all halves have in common, whatever their family.
    fn states(&mut self) -> Vec<FlowState> {
        let tables = self.tables();
        let v4 = [&tables.v4.flows, &tables.v4.half_open];
        let v6 = [&tables.v6.flows, &tables.v6.half_open];
        let v4 = v4
            .into_iter()
            .flat_map(|map| map.values().map(|flow| flow.state));
        let v6 = v6
            .into_iter()
            .flat_map(|map| map.values().map(|flow| flow.state));
        v4.chain(v6).collect()
    }

    /// The kinds of all halves.
    fn kinds(&mut self) -> Vec<Kind> {
        let states = self.states().into_iter();
        states.map(|state| state.marks.kind()).collect()
    }

    /// State and proof of the one half of a kind.
    fn state_of(&mut self, kind: Kind) -> (State, u32) {
        let states = self.states().into_iter();
        let mut own = states.filter(|state| state.marks.kind() == kind);
        let half = own.next().unwrap();
        assert_eq!(None, own.next());
        (half.marks.state(), half.proof)
    }

    /// Loses every half of a kind.
    fn lose_kind(&mut self, kind: Kind) {
        let tables = self.tables();
        for map in [&mut tables.v4.flows, &mut tables.v4.half_open] {
            map.retain(|_, flow| flow.state.marks.kind() != kind);
        }
        for map in [&mut tables.v6.flows, &mut tables.v6.half_open] {
            map.retain(|_, flow| flow.state.marks.kind() != kind);
        }
    }

    /// Loses every half at one hook, as a full table does.
    fn lose(&mut self, hook: crate::abi::Hook) {
        let tables = self.tables();
        tables.v4.flows.retain(|key, _| key.hook != hook);
        tables.v6.flows.retain(|key, _| key.hook != hook);
        tables.v4.half_open.retain(|key, _| key.hook != hook);
        tables.v6.half_open.retain(|key, _| key.hook != hook);
    }
}

fn client(is_v6: bool, n: u32, port: u16) -> SocketAddr {
    SocketAddr::new(client_addr(is_v6, n), port)
}

fn frame(proto: Proto, from: SocketAddr, to: SocketAddr, tcp: Tcp) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let builder = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => builder.ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => builder.ipv6(from.octets(), to.octets(), 64),
        _ => unreachable!("both addresses are of one family"),
    };
    let mut bytes = Vec::new();
    if proto == Proto::SCTP {
        builder
            .write(&mut bytes, IpNumber::SCTP, &sctp(from, to, tcp))
            .unwrap();
        return bytes;
    }
    if proto == Proto::UDP {
        let udp = builder.udp(from.port(), to.port());
        udp.write(&mut bytes, b"payload").unwrap();
        return bytes;
    }
    let mut header = builder.tcp(from.port(), to.port(), tcp.seq, 64_000);
    for flag in tcp.flags.chars() {
        header = match flag {
            'S' => header.syn(),
            'A' => header.ack(tcp.ack),
            'F' => header.fin(),
            _ => header.rst(),
        };
    }
    header.write(&mut bytes, b"payload").unwrap();
    bytes
}

/// The packet of an association that says what the segment says in a connection.
fn sctp(from: SocketAddr, to: SocketAddr, tcp: Tcp) -> Vec<u8> {
    let chunk = match tcp.flags {
        "S" => 1,
        "SA" => 2,
        "FA" => 7,
        "R" => 6,
        _ => 0,
    };
    let mut bytes = Vec::new();
    bytes.extend(from.port().to_be_bytes());
    bytes.extend(to.port().to_be_bytes());
    bytes.extend(tcp.ack.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend([chunk, 0, 0, 20]);
    // The tag that the sender wants to be addressed by.
    bytes.extend(tcp.seq.wrapping_add(1).to_be_bytes());
    bytes.extend(b"payload");
    let check = crc32c(&bytes);
    bytes[8..12].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// Ports of an SCTP packet, its checksum verified.
fn sctp_ports(payload: &[u8]) -> (u16, u16) {
    let mut bytes = payload.to_vec();
    bytes[8..12].fill(0);
    assert_eq!(crc32c(&bytes).to_le_bytes(), payload[8..12]);
    let port = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
    (port(0), port(2))
}

/// The addresses of a packet, its checksums verified by an independent implementation.
fn addresses(bytes: &[u8]) -> (SocketAddr, SocketAddr) {
    let packet = SlicedPacket::from_ethernet(bytes).unwrap();
    let Some(transport) = packet.transport else {
        let net = packet.net.as_ref().unwrap();
        let (sport, dport) = sctp_ports(net.ip_payload_ref().unwrap().payload);
        if let NetSlice::Ipv4(net) = net {
            let header = net.header().to_header();
            assert_eq!(header.calc_header_checksum(), header.header_checksum);
        }
        let (src, dst) = ends(net);
        return (SocketAddr::new(src, sport), SocketAddr::new(dst, dport));
    };
    let (sport, dport, good) = match (&packet.net, &transport) {
        (Some(NetSlice::Ipv4(net)), TransportSlice::Tcp(tcp)) => {
            let header = net.header();
            assert_eq!(
                header.to_header().calc_header_checksum(),
                header.header_checksum()
            );
            let sum = tcp
                .calc_checksum_ipv4(header.source(), header.destination())
                .unwrap();
            (
                tcp.source_port(),
                tcp.destination_port(),
                sum == tcp.checksum(),
            )
        }
        (Some(NetSlice::Ipv6(net)), TransportSlice::Tcp(tcp)) => {
            let header = net.header();
            let sum = tcp
                .calc_checksum_ipv6(header.source(), header.destination())
                .unwrap();
            (
                tcp.source_port(),
                tcp.destination_port(),
                sum == tcp.checksum(),
            )
        }
        (Some(NetSlice::Ipv4(net)), TransportSlice::Udp(udp)) => {
            let header = net.header();
            assert_eq!(
                header.to_header().calc_header_checksum(),
                header.header_checksum()
            );
            let fresh = udp
                .to_header()
                .calc_checksum_ipv4_raw(header.source(), header.destination(), udp.payload())
                .unwrap();
            (
                udp.source_port(),
                udp.destination_port(),
                fresh == udp.checksum(),
            )
        }
        (Some(NetSlice::Ipv6(net)), TransportSlice::Udp(udp)) => {
            let header = net.header();
            let fresh = udp
                .to_header()
                .calc_checksum_ipv6_raw(header.source(), header.destination(), udp.payload())
                .unwrap();
            (
                udp.source_port(),
                udp.destination_port(),
                fresh == udp.checksum(),
            )
        }
        _ => unreachable!("tests send TCP, UDP and SCTP only"),
    };
    assert!(good, "the transport checksum is wrong: {bytes:02x?}");
    let (src, dst) = ends(&packet.net.unwrap());
    (SocketAddr::new(src, sport), SocketAddr::new(dst, dport))
}

/// The addresses in a network header.
fn ends(net: &NetSlice<'_>) -> (IpAddr, IpAddr) {
    match net {
        NetSlice::Ipv4(net) => (
            net.header().source_addr().into(),
            net.header().destination_addr().into(),
        ),
        NetSlice::Ipv6(net) => (
            net.header().source_addr().into(),
            net.header().destination_addr().into(),
        ),
        NetSlice::Arp(_) => unreachable!("tests send no ARP"),
    }
}
