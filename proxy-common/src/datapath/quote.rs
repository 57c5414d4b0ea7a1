//! The packet that an ICMP error quotes: what the data path reads of it.
//!
//! All that is certain of a quoted packet is its network header and the first eight bytes of what
//! follows. So there are ports, but not always a checksum.

use super::packet::Packet;
use crate::abi::{Family, V4, V6};
use crate::net::ipv4::{self, Ipv4Header};
use crate::net::ipv6::{self, Ipv6Header};
use crate::net::{Ip4, Ip6, Piece, Port, Proto, icmp, sctp, tcp, udp};
use bytemuck::{Pod, Zeroable};

/// The network header of a quoted packet.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<F: Family> {
    /// Source address.
    pub src: F::Addr,
    /// Destination address.
    pub dst: F::Addr,
    /// Protocol of the payload.
    pub proto: Proto,
    /// The header's own checksum; zero in IPv6, which has none.
    pub check: u16,
    /// Offset of the network header in the packet that quotes, in bytes.
    pub offset: usize,
    /// Offset of the transport header there, if there is one: a later fragment has none.
    pub payload: Option<usize>,
    /// Length of the transport header and what follows, in bytes, as it was before the quote was
    /// cut.
    pub len: u32,
}

/// The ports that TCP, UDP and SCTP begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Ports {
    /// Source port.
    pub sport: Port,
    /// Destination port.
    pub dport: Port,
}

/// Where the headers of a quoted packet stand.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Offset of the network header, in bytes.
    pub network: usize,
    /// Offset of the transport header, in bytes.
    pub transport: usize,
    /// Offset of the transport checksum, in bytes.
    pub check: usize,
    /// Whether the quote goes as far.
    pub has_check: bool,
    /// Whether that is SCTP's.
    pub is_crc: bool,
    /// Length of the transport header and what follows, in bytes, as it was before the quote was
    /// cut.
    pub len: u32,
}

impl<F: Family> Quoted<F> {
    /// Whether it is of a protocol that is translated, or may be.
    #[inline(always)]
    pub const fn may_be_translated(&self) -> bool {
        checksum_of(self.proto).is_some() || (F::IS_V6 && ipv6::is_extension(self.proto))
    }

    /// Where its headers stand, and its ports. `None` if a message that ends at `end` does not have
    /// those.
    #[inline(always)]
    pub fn place<P: Packet>(&self, packet: &P, end: usize) -> Option<(Place, Ports)> {
        let transport = self.payload?;
        let (check, len) = checksum_of(self.proto)?;
        if transport + size_of::<Ports>() > end {
            return None;
        }
        let place = Place {
            network: self.offset,
            transport,
            check: transport + check,
            has_check: transport + check + len <= end,
            is_crc: self.proto.0 == Proto::SCTP.0,
            len: self.len,
        };
        Some((place, packet.read(transport)?))
    }
}

/// Offset and length of the checksum in a transport header, in bytes; `None` for protocols that are
/// not translated.
#[inline(always)]
const fn checksum_of(proto: Proto) -> Option<(usize, usize)> {
    match proto {
        Proto::TCP => Some((tcp::CHECK, 2)),
        Proto::UDP => Some((udp::CHECK, 2)),
        Proto::SCTP => Some((sctp::CHECK, 4)),
        _ => None,
    }
}

/// A family whose errors can be read.
pub trait Quotes: Family {
    /// The protocol of its errors.
    const ICMP: Proto;
    /// Whether a message of this type reports an error.
    fn is_error(kind: u8) -> bool;
    /// Reads the quoted network header at `offset`; `None` if there is none.
    fn quoted<P: Packet>(packet: &P, offset: usize) -> Option<Quoted<Self>>;
    /// Corrects the checksums of a message for another address of its own: that of its network
    /// header at `network`, or its own at `check`.
    fn readdress<P: Packet>(
        packet: &mut P,
        network: usize,
        check: usize,
        from: &Self::Addr,
        to: &Self::Addr,
    ) -> Option<()>;
}

impl Quotes for V4 {
    const ICMP: Proto = Proto::ICMP;

    #[inline(always)]
    fn is_error(kind: u8) -> bool {
        icmp::is_error(kind)
    }

    #[inline(always)]
    fn quoted<P: Packet>(packet: &P, offset: usize) -> Option<Quoted<Self>> {
        let header: Ipv4Header = packet.read(offset)?;
        let len = header.header_len()?;
        Some(Quoted {
            src: header.src,
            dst: header.dst,
            proto: header.proto,
            check: header.check,
            offset,
            payload: (header.piece() != Piece::Later).then_some(offset + len),
            len: u32::from(u16::from_be(header.total_len)).saturating_sub(len as u32),
        })
    }

    #[inline(always)]
    fn readdress<P: Packet>(
        packet: &mut P,
        network: usize,
        _check: usize,
        from: &Ip4,
        to: &Ip4,
    ) -> Option<()> {
        packet.fix_header_checksum(network + ipv4::CHECK, *from, *to)
    }
}

impl Quotes for V6 {
    const ICMP: Proto = Proto::ICMPV6;

    #[inline(always)]
    fn is_error(kind: u8) -> bool {
        icmp::is_error6(kind)
    }

    #[inline(always)]
    fn quoted<P: Packet>(packet: &P, offset: usize) -> Option<Quoted<Self>> {
        let header: Ipv6Header = packet.read(offset)?;
        if !header.is_v6() {
            return None;
        }
        let begin = offset + ipv6::LEN;
        let chain = packet.pass_over(begin, header.next);
        // A later fragment has no transport header, nor has what a header hides.
        let is_hidden = chain.piece() == Piece::Later || ipv6::is_extension(chain.proto());
        let passed = chain.offset().saturating_sub(begin);
        Some(Quoted {
            src: header.src,
            dst: header.dst,
            proto: chain.proto(),
            check: 0,
            offset,
            payload: (!is_hidden).then_some(chain.offset()),
            len: u32::from(u16::from_be(header.payload_len)).saturating_sub(passed as u32),
        })
    }

    #[inline(always)]
    fn readdress<P: Packet>(
        packet: &mut P,
        _network: usize,
        check: usize,
        from: &Ip6,
        to: &Ip6,
    ) -> Option<()> {
        packet.fix_checksum6(check, from, to, false)
    }
}
