//! ICMP errors and the packets that they quote, built byte by byte: for tests, which hold what was
//! changed in place against what is computed anew.

use core::net::{IpAddr, SocketAddr};
use std::vec;
use std::vec::Vec;

use crate::net::Proto;
use crate::net::sctp::crc32c;

/// An ICMP error.
#[derive(Clone, Debug)]
pub struct Message {
    /// Who sends it.
    pub from: IpAddr,
    /// Who gets it.
    pub to: IpAddr,
    /// Its type and its code.
    pub kind: [u8; 2],
    /// The rest of its header: the MTU of the next hop, say.
    pub rest: [u8; 4],
    /// So many bytes of the packet that it is about are quoted, or as many as there are.
    pub limit: usize,
}

/// The packet that an error is about.
#[derive(Clone, Debug)]
pub struct Quote {
    /// Transport protocol: TCP, UDP or SCTP, or any other of which ports are nothing but bytes.
    pub proto: Proto,
    /// Its source.
    pub from: SocketAddr,
    /// Its destination.
    pub to: SocketAddr,
    /// IPv4 options, or IPv6 extension headers.
    pub options: Vec<u8>,
    /// The type of the first of those.
    pub option: u8,
    /// Flags and offset of a fragment, in IPv4.
    pub fragment: u16,
    /// Whether it is a datagram without a checksum.
    pub is_unchecked: bool,
    /// What follows the transport header.
    pub payload: Vec<u8>,
}

impl Quote {
    /// A packet of a few bytes.
    pub fn new(proto: Proto, from: SocketAddr, to: SocketAddr) -> Self {
        Self {
            proto,
            from,
            to,
            options: Vec::new(),
            option: 0,
            fragment: 0,
            is_unchecked: false,
            payload: b"what it was about".to_vec(),
        }
    }

    /// The same from and to others.
    #[must_use]
    pub fn between(&self, from: SocketAddr, to: SocketAddr) -> Self {
        Self {
            from,
            to,
            ..self.clone()
        }
    }

    /// The packet, from its network header on.
    pub fn bytes(&self) -> Vec<u8> {
        let transport = self.transport();
        let mut bytes = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let len = 20 + self.options.len();
                let mut bytes = vec![0x40 | (len / 4) as u8, 0];
                bytes.extend(((len + transport.len()) as u16).to_be_bytes());
                bytes.extend([0x12, 0x34]);
                bytes.extend(self.fragment.to_be_bytes());
                bytes.extend([3, self.proto.0, 0, 0]);
                bytes.extend(from.octets());
                bytes.extend(to.octets());
                bytes.extend(&self.options);
                let check = checksum(&[&bytes]);
                put(&mut bytes, 10, check);
                bytes
            }
            (from, to) => {
                let next = if self.options.is_empty() {
                    self.proto.0
                } else {
                    self.option
                };
                let len = self.options.len() + transport.len();
                let mut bytes = vec![0x60, 0, 0, 0];
                bytes.extend((len as u16).to_be_bytes());
                bytes.extend([next, 3]);
                bytes.extend(octets(from));
                bytes.extend(octets(to));
                bytes.extend(&self.options);
                bytes
            }
        };
        bytes.extend(transport);
        bytes
    }

    fn transport(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.from.port().to_be_bytes());
        bytes.extend(self.to.port().to_be_bytes());
        let check = match self.proto {
            Proto::TCP => {
                bytes.extend([0, 0, 3, 0xe9, 0, 0, 19, 0x89, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
                16
            }
            Proto::SCTP => {
                bytes.extend([0xca, 0xfe, 0xf0, 0x0d, 0, 0, 0, 0]);
                8
            }
            _ => {
                bytes.extend((8 + self.payload.len() as u16).to_be_bytes());
                bytes.extend([0, 0]);
                6
            }
        };
        bytes.extend(&self.payload);
        if self.proto == Proto::SCTP {
            let [a, b, c, d] = crc32c(&bytes).to_le_bytes();
            put(&mut bytes, check, u16::from_be_bytes([a, b]));
            put(&mut bytes, check + 2, u16::from_be_bytes([c, d]));
        } else if !self.is_unchecked {
            let pseudo = pseudo(self.from.ip(), self.to.ip(), self.proto, bytes.len());
            let sum = checksum(&[&pseudo, &bytes]);
            let is_none = sum == 0 && self.proto == Proto::UDP;
            put(&mut bytes, check, if is_none { 0xffff } else { sum });
        }
        bytes
    }
}

impl Message {
    /// The frame that carries this message about a packet.
    pub fn frame(&self, quote: &[u8]) -> Vec<u8> {
        let mut message = self.kind.to_vec();
        message.extend([0, 0]);
        message.extend(self.rest);
        message.extend(quote.iter().take(self.limit));
        // To a device of a test run, and from elsewhere.
        let mut bytes = vec![0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 9];
        match (self.from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                bytes.extend([8, 0]);
                let mut header = vec![0x45, 0xc0];
                header.extend((20 + message.len() as u16).to_be_bytes());
                header.extend([0xab, 0xcd, 0, 0, 63, 1, 0, 0]);
                header.extend(from.octets());
                header.extend(to.octets());
                let check = checksum(&[&header]);
                put(&mut header, 10, check);
                bytes.extend(header);
                let check = checksum(&[&message]);
                put(&mut message, 2, check);
            }
            (from, to) => {
                bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                bytes.extend((message.len() as u16).to_be_bytes());
                bytes.extend([58, 63]);
                bytes.extend(octets(from));
                bytes.extend(octets(to));
                let pseudo = pseudo(from, to, Proto::ICMPV6, message.len());
                let check = checksum(&[&pseudo, &message]);
                put(&mut message, 2, check);
            }
        }
        bytes.extend(message);
        bytes
    }
}

/// The pseudo header of a checksum (RFC 9293, 3.1; RFC 8200, 8.1).
fn pseudo(from: IpAddr, to: IpAddr, proto: Proto, len: usize) -> Vec<u8> {
    let mut bytes = octets(from);
    bytes.extend(octets(to));
    bytes.extend((len as u32).to_be_bytes());
    bytes.extend([0, 0, 0, proto.0]);
    bytes
}

fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    }
}

/// The Internet checksum of some pieces; all but the last have an even length.
fn checksum(pieces: &[&[u8]]) -> u16 {
    let mut sum = 0_u64;
    for pair in pieces.iter().flat_map(|piece| piece.chunks(2)) {
        let high = pair.first().copied().unwrap_or_default();
        let low = pair.get(1).copied().unwrap_or_default();
        sum += u64::from(high) << 8 | u64::from(low);
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(target) = bytes.get_mut(at..at + 2) {
        target.copy_from_slice(&value.to_be_bytes());
    }
}
