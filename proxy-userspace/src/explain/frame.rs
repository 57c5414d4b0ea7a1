//! Frames: the first packet of a flow, and what has become of one.

use std::net::{IpAddr, SocketAddr};

use etherparse::{
    IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv6Extensions, Ipv6FlowLabel, Ipv6Header,
    LaxPacketHeaders, LaxPayloadSlice, NetHeaders, PacketBuilder, TransportHeader,
};

use thiserror::Error;

use crate::model::Protocol;

/// Why a frame cannot be made or read.
#[derive(Debug, Error)]
pub enum FrameError {
    /// Source and destination are of different families.
    #[error("{0} and {1} are not of one family")]
    Families(SocketAddr, SocketAddr),
    /// The frame cannot be made.
    #[error("the packet cannot be made: {0}")]
    Make(String),
    /// The frame cannot be read.
    #[error("the packet cannot be read: {0}")]
    Read(String),
}

type Result<T> = std::result::Result<T, FrameError>;

const HOPS: u8 = 64;
/// Type of the chunk by which an SCTP association begins, its length, and its tag.
const SCTP_INIT: [u8; 20] = [1, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1];

/// The first packet of a flow, in an Ethernet frame for the loopback device.
pub(super) fn first(proto: Protocol, from: SocketAddr, to: SocketAddr) -> Result<Vec<u8>> {
    let headers = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], [0; 6]).ip(ip(from, to)?);
    let mut frame = Vec::new();
    match proto {
        Protocol::Tcp => headers
            .tcp(from.port(), to.port(), 1, u16::MAX)
            .syn()
            .write(&mut frame, &[])
            .map_err(make)?,
        Protocol::Udp => headers
            .udp(from.port(), to.port())
            .write(&mut frame, b"kube-lottery")
            .map_err(make)?,
        Protocol::Sctp => {
            let [from, to] = [from, to].map(|end| end.port().to_be_bytes());
            // No tag, and no checksum yet, as the kernel has it of its own packets.
            let segment = [&from[..], &to, &[0; 8], &SCTP_INIT].concat();
            headers
                .write(&mut frame, IpNumber::SCTP, &segment)
                .map_err(make)?;
        }
    }
    Ok(frame)
}

fn ip(from: SocketAddr, to: SocketAddr) -> Result<IpHeaders> {
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = Ipv4Header::new(0, HOPS, IpNumber::UDP, from.octets(), to.octets())
                .map_err(make)?;
            Ok(IpHeaders::Ipv4(header, Ipv4Extensions::default()))
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = Ipv6Header {
                traffic_class: 0,
                flow_label: Ipv6FlowLabel::ZERO,
                payload_length: 0,
                next_header: IpNumber::UDP,
                hop_limit: HOPS,
                source: from.octets(),
                destination: to.octets(),
            };
            Ok(IpHeaders::Ipv6(header, Ipv6Extensions::default()))
        }
        _ => Err(FrameError::Families(from, to)),
    }
}

/// Where a frame comes from and goes to.
pub(super) fn ends(frame: &[u8]) -> Result<(SocketAddr, SocketAddr)> {
    let headers = LaxPacketHeaders::from_ethernet(frame).map_err(|error| unread(&error))?;
    let (from, to): (IpAddr, IpAddr) = match headers.net {
        Some(NetHeaders::Ipv4(header, _)) => (header.source.into(), header.destination.into()),
        Some(NetHeaders::Ipv6(header, _)) => (header.source.into(), header.destination.into()),
        _ => return Err(unread(&"no IP packet")),
    };
    let (sport, dport) = match (&headers.transport, &headers.payload) {
        (Some(TransportHeader::Tcp(tcp)), _) => (tcp.source_port, tcp.destination_port),
        (Some(TransportHeader::Udp(udp)), _) => (udp.source_port, udp.destination_port),
        (None, LaxPayloadSlice::Ip(rest)) => {
            let ports = rest
                .payload
                .first_chunk::<4>()
                .ok_or_else(|| unread(&"no ports"))?;
            let [a, b, c, d] = *ports;
            (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
        }
        _ => return Err(unread(&"no ports")),
    };
    Ok((SocketAddr::new(from, sport), SocketAddr::new(to, dport)))
}

fn make(error: impl std::fmt::Display) -> FrameError {
    FrameError::Make(error.to_string())
}

fn unread(error: &dyn std::fmt::Display) -> FrameError {
    FrameError::Read(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_says_where_it_comes_from_and_goes_to() {
        for (from, to) in [
            ("10.0.0.1:40000", "10.96.0.1:80"),
            ("[fd00::1]:40000", "[fd00::2]:80"),
        ] {
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            for proto in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
                let frame = first(proto, from, to).unwrap();
                assert_eq!((from, to), ends(&frame).unwrap(), "{proto:?}");
            }
        }
    }
}
