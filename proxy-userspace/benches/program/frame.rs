//! The frames that the programs are measured with.

use std::net::IpAddr;

use etherparse::{PacketBuilder, PacketBuilderStep, TcpHeader};
use proxy_common::net::Proto;

/// An address and a port.
pub(crate) type Peer = (IpAddr, u16);

/// What a TCP segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    Syn,
    SynAck,
    Ack,
    FinAck,
}

/// A frame from `src` to `dst`; over UDP a datagram, whatever it is to say.
pub(crate) fn frame(proto: Proto, src: Peer, dst: Peer, says: Says) -> Vec<u8> {
    // The test device's address is all zeros.
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], [0; 6]);
    let builder = match (src.0, dst.0) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => builder.ipv4(src.octets(), dst.octets(), 64),
        (IpAddr::V6(src), IpAddr::V6(dst)) => builder.ipv6(src.octets(), dst.octets(), 64),
        _ => unreachable!("both addresses are of one family"),
    };
    let payload = [0; 32];
    let mut bytes = Vec::new();
    if proto == Proto::TCP {
        // Every number is the answer to one, so that a client's ACK proves that it was heard.
        let tcp = builder.tcp(src.1, dst.1, 1000, 64_000);
        let tcp = said(tcp, says);
        tcp.write(&mut bytes, &payload).unwrap();
    } else {
        let udp = builder.udp(src.1, dst.1);
        udp.write(&mut bytes, &payload).unwrap();
    }
    bytes
}

fn said(tcp: PacketBuilderStep<TcpHeader>, says: Says) -> PacketBuilderStep<TcpHeader> {
    match says {
        Says::Syn => tcp.syn(),
        Says::SynAck => tcp.syn().ack(1001),
        Says::Ack => tcp.ack(1001),
        Says::FinAck => tcp.fin().ack(1001),
    }
}
