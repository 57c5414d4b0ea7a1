//! Packets of TCP and UDP between two peers, and what they say afterwards.

use std::net::{IpAddr, SocketAddr};

use etherparse::TransportSlice;
use etherparse::{IpHeaders, NetSlice, PacketBuilder, PacketBuilderStep, SlicedPacket};
use proxy_common::net::Proto;

/// TCP flags as letters, and the numbers that go with them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tcp {
    pub(super) flags: &'static str,
    pub(super) seq: u32,
    pub(super) ack: u32,
}

impl Tcp {
    pub(super) const SYN: Self = Self::new("S", 100, 0);
    pub(super) const SYN_ACK: Self = Self::new("SA", 900, 101);
    pub(super) const ACK: Self = Self::new("A", 101, 901);
    pub(super) const RST: Self = Self::new("R", 101, 0);

    pub(super) const fn new(flags: &'static str, seq: u32, ack: u32) -> Self {
        Self { flags, seq, ack }
    }
}

/// A frame to the test device, without a transport header yet.
pub(super) fn start(from: SocketAddr, to: SocketAddr) -> PacketBuilderStep<IpHeaders> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], [0; 6]);
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => builder.ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => builder.ipv6(from.octets(), to.octets(), 64),
        _ => unreachable!("both addresses are of one family"),
    }
}

/// A frame with a few bytes of payload; the numbers matter for TCP only.
pub(super) fn frame(proto: Proto, from: SocketAddr, to: SocketAddr, tcp: Tcp) -> Vec<u8> {
    let mut bytes = Vec::new();
    if proto == Proto::UDP {
        let udp = start(from, to).udp(from.port(), to.port());
        udp.write(&mut bytes, &[0; 32]).unwrap();
        return bytes;
    }
    let mut header = start(from, to).tcp(from.port(), to.port(), tcp.seq, 64_000);
    for flag in tcp.flags.chars() {
        header = match flag {
            'S' => header.syn(),
            'A' => header.ack(tcp.ack),
            'F' => header.fin(),
            'R' => header.rst(),
            _ => unreachable!("no such flag"),
        };
    }
    header.write(&mut bytes, &[0; 32]).unwrap();
    bytes
}

/// Source and destination of a frame.
pub(super) fn addresses(bytes: &[u8]) -> (SocketAddr, SocketAddr) {
    let packet = SlicedPacket::from_ethernet(bytes).unwrap();
    let (from, to): (IpAddr, IpAddr) = match packet.net.unwrap() {
        NetSlice::Ipv4(net) => {
            let header = net.header();
            (
                header.source_addr().into(),
                header.destination_addr().into(),
            )
        }
        NetSlice::Ipv6(net) => {
            let header = net.header();
            (
                header.source_addr().into(),
                header.destination_addr().into(),
            )
        }
        NetSlice::Arp(_) => unreachable!("tests send no ARP"),
    };
    let (sport, dport) = match packet.transport.unwrap() {
        TransportSlice::Tcp(tcp) => (tcp.source_port(), tcp.destination_port()),
        TransportSlice::Udp(udp) => (udp.source_port(), udp.destination_port()),
        _ => unreachable!("tests send TCP and UDP only"),
    };
    (SocketAddr::new(from, sport), SocketAddr::new(to, dport))
}
