//! From bytes to a tuple: what the data path reads of a packet.

use super::extension::is_passed_over;
use super::packet::{NextHop, Packet, Route};
use super::quote::Quotes;
use super::rewrite::Place;
use crate::abi::{Family, V4, V6};
use crate::net::ipv4::{self, Ipv4Header};
use crate::net::ipv6::{self, FragmentHeader, Ipv6Header};
use crate::net::sctp::{self, Chunk, SctpHeader};
use crate::net::tcp::{self, TcpHeader};
use crate::net::udp::{self, UdpHeader};
use crate::net::{Piece, Port, Proto};

/// The network header of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Network<F: Family> {
    /// Source address.
    pub src: F::Addr,
    /// Destination address.
    pub dst: F::Addr,
    /// Protocol of the payload.
    pub proto: Proto,
    /// Offset of the network header, in bytes.
    pub offset: usize,
    /// Offset of the transport header, in bytes.
    pub payload: usize,
    /// Length of the transport header and what follows, in bytes, as the network header has it.
    pub len: u32,
    /// Which piece of a datagram it is.
    pub piece: Piece,
    /// Offset of the header that tells which datagram, in bytes, if it is not the only piece.
    pub fragment: usize,
}

impl<F: Family> Network<F> {
    /// Where the headers of this packet stand.
    #[inline(always)]
    pub const fn place(&self, transport: &Transport) -> Place {
        Place {
            network: self.offset,
            transport: self.payload,
            len: self.len,
            checksum: transport.checksum,
        }
    }

    /// Offset of what follows the packet, in bytes, as the network header has it.
    #[inline(always)]
    pub const fn end(&self) -> usize {
        self.payload + self.len as usize
    }

    /// Whether a first fragment ends before the ports that it should have: its header cannot be
    /// read, and the others would tell as little.
    #[inline(always)]
    pub const fn is_cut_short(&self) -> bool {
        matches!(self.piece, Piece::First)
            && matches!(self.proto, Proto::TCP | Proto::UDP | Proto::SCTP)
    }
}

impl<F: Wire> Network<F> {
    /// Whether conntrack would take a packet of a protocol that is not translated for the first
    /// one of something.
    #[inline(always)]
    pub fn begins<P: Packet>(&self, packet: &P) -> bool {
        match (F::IS_V6, self.proto) {
            // Cut short.
            (_, Proto::TCP | Proto::UDP | Proto::SCTP) => false,
            (false, Proto::ICMP) => {
                let kind = packet.load::<u8>(self.payload);
                kind.is_some_and(|kind| matches!(kind, 8 | 13 | 15 | 17))
            }
            (true, Proto::ICMPV6) => packet.load::<u8>(self.payload) == Some(128),
            (true, proto) => !ipv6::is_extension(proto),
            (false, _) => true,
        }
    }
}

/// A family whose headers can be read and rewritten.
pub trait Wire: Quotes {
    /// Offset of the source address in the header.
    const SRC: usize;
    /// Offset of the destination address in the header.
    const DST: usize;

    /// Reads the network header at `offset`; `None` if there is none.
    fn network<P: Packet>(packet: &mut P, offset: usize) -> Option<Network<Self>>;

    /// What all pieces of the packet's datagram have in common beside the addresses: identification,
    /// as it stands in the header, and protocol.
    fn datagram<P: Packet>(packet: &P, network: &Network<Self>) -> Option<(u32, Proto)>;

    /// Writes an address of the header that starts at `network`, of a packet without a transport
    /// header: it replaces `from` at `offset`.
    fn replace_address<P: Packet>(
        packet: &mut P,
        network: usize,
        offset: usize,
        from: Self::Addr,
        to: &Self::Addr,
    ) -> Option<()>;

    /// Writes an address for which [`Wire::fix_checksums`] has been called.
    fn store_address<P: Packet>(packet: &mut P, offset: usize, to: &Self::Addr) -> Option<()>;

    /// Corrects the header's and the payload's checksum for a changed address.
    fn fix_checksums<P: Packet>(
        packet: &mut P,
        network: usize,
        transport: Checksum,
        from: &Self::Addr,
        to: &Self::Addr,
    ) -> Option<()>;

    /// Where the kernel would send a packet next.
    fn next_hop<P: Packet>(packet: &mut P, route: &Route<Self::Addr>) -> NextHop;
}

impl Wire for V4 {
    const SRC: usize = ipv4::SRC;
    const DST: usize = ipv4::DST;

    #[inline(always)]
    fn network<P: Packet>(packet: &mut P, offset: usize) -> Option<Network<Self>> {
        packet.ready(offset + size_of::<Ipv4Header>() + size_of::<TcpHeader>());
        let header: Ipv4Header = packet.load(offset)?;
        let len = header.header_len()?;
        if len > size_of::<Ipv4Header>() {
            packet.ready(offset + len + size_of::<TcpHeader>());
        }
        Some(Network {
            src: header.src,
            dst: header.dst,
            proto: header.proto,
            offset,
            payload: offset + len,
            len: u32::from(u16::from_be(header.total_len)).saturating_sub(len as u32),
            piece: header.piece(),
            fragment: offset,
        })
    }

    #[inline(always)]
    fn datagram<P: Packet>(packet: &P, network: &Network<Self>) -> Option<(u32, Proto)> {
        let id: u16 = packet.load(network.fragment + ipv4::ID)?;
        Some((u32::from(id), network.proto))
    }

    #[inline(always)]
    fn replace_address<P: Packet>(
        packet: &mut P,
        network: usize,
        offset: usize,
        from: Self::Addr,
        to: &Self::Addr,
    ) -> Option<()> {
        packet.fix_header_checksum(network + ipv4::CHECK, from, *to)?;
        packet.store(offset, *to)
    }

    #[inline(always)]
    fn store_address<P: Packet>(packet: &mut P, offset: usize, to: &Self::Addr) -> Option<()> {
        packet.store(offset, *to)
    }

    #[inline(always)]
    fn fix_checksums<P: Packet>(
        packet: &mut P,
        network: usize,
        transport: Checksum,
        from: &Self::Addr,
        to: &Self::Addr,
    ) -> Option<()> {
        // No pseudo header is in a CRC.
        if !transport.is_crc {
            packet.fix_checksum4(transport.offset, *from, *to, transport.optional)?;
        }
        packet.fix_header_checksum(network + ipv4::CHECK, *from, *to)
    }

    #[inline(always)]
    fn next_hop<P: Packet>(packet: &mut P, route: &Route<Self::Addr>) -> NextHop {
        packet.next_hop4(route)
    }
}

impl Wire for V6 {
    const SRC: usize = ipv6::SRC;
    const DST: usize = ipv6::DST;

    #[inline(always)]
    fn network<P: Packet>(packet: &mut P, offset: usize) -> Option<Network<Self>> {
        packet.ready(offset + ipv6::LEN + size_of::<TcpHeader>());
        let header: Ipv6Header = packet.load(offset)?;
        if !header.is_v6() {
            return None;
        }
        let mut network = Network {
            src: header.src,
            dst: header.dst,
            proto: header.next,
            offset,
            payload: offset + ipv6::LEN,
            len: u32::from(u16::from_be(header.payload_len)),
            piece: Piece::Whole,
            fragment: 0,
        };
        if is_passed_over(header.next) {
            let chain = packet.pass_over(network.payload, header.next);
            network.fragment = network.payload + chain.fragment();
            let passed = chain.offset().saturating_sub(network.payload);
            network.len = network.len.saturating_sub(passed as u32);
            network.payload = chain.offset();
            network.proto = chain.proto();
            network.piece = chain.piece();
            packet.ready(network.payload + size_of::<TcpHeader>());
        }
        Some(network)
    }

    #[inline(always)]
    fn datagram<P: Packet>(packet: &P, network: &Network<Self>) -> Option<(u32, Proto)> {
        let header: FragmentHeader = packet.load(network.fragment)?;
        Some((header.id, header.next))
    }

    #[inline(always)]
    fn replace_address<P: Packet>(
        packet: &mut P,
        _network: usize,
        offset: usize,
        _from: Self::Addr,
        to: &Self::Addr,
    ) -> Option<()> {
        packet.store_summed(offset, to)
    }

    #[inline(always)]
    fn store_address<P: Packet>(packet: &mut P, offset: usize, to: &Self::Addr) -> Option<()> {
        packet.store_summed(offset, to)
    }

    #[inline(always)]
    fn fix_checksums<P: Packet>(
        packet: &mut P,
        _network: usize,
        transport: Checksum,
        from: &Self::Addr,
        to: &Self::Addr,
    ) -> Option<()> {
        if transport.is_crc {
            return Some(());
        }
        packet.fix_checksum6(transport.offset, from, to, transport.optional)
    }

    #[inline(always)]
    fn next_hop<P: Packet>(packet: &mut P, route: &Route<Self::Addr>) -> NextHop {
        packet.next_hop6(route)
    }
}

/// Where the transport checksum stands.
#[derive(Clone, Copy, Debug)]
pub struct Checksum {
    /// Offset in the packet, in bytes.
    pub offset: usize,
    /// Whether zero means that there is none.
    pub optional: bool,
    /// Whether it is SCTP's: a CRC of the packet, without addresses.
    pub is_crc: bool,
}

/// The transport header of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Transport {
    /// Source port.
    pub sport: Port,
    /// Destination port.
    pub dport: Port,
    /// TCP control bits, or those of the segment that stands for the same; none for UDP.
    pub flags: tcp::Flags,
    /// TCP sequence number, host order. SCTP: one less than the tag that the sender of an INIT ACK
    /// asks to be addressed by.
    pub seq: u32,
    /// TCP acknowledgment number, host order. SCTP: the tag that the receiver is addressed by: like
    /// a TCP client's first acknowledgment, it shows that the answer was heard.
    pub ack: u32,
    /// The protocol.
    pub proto: Proto,
    /// The checksum.
    pub checksum: Checksum,
}

impl Transport {
    /// Reads the transport header; `None` for other protocols and for headers cut short, by the end
    /// of a first fragment or of the frame.
    #[inline(always)]
    pub fn read<F: Family, P: Packet>(packet: &P, network: &Network<F>) -> Option<Self> {
        // Behind a short fragment may be bytes that make the frame long enough for a device.
        if network.piece == Piece::First && network.len < header_len(network.proto) {
            return None;
        }
        match network.proto {
            Proto::TCP => {
                let header: TcpHeader = packet.load(network.payload)?;
                Some(Self {
                    sport: header.sport,
                    dport: header.dport,
                    flags: header.flags,
                    seq: u32::from_be(header.seq),
                    ack: u32::from_be(header.ack),
                    proto: Proto::TCP,
                    checksum: Checksum {
                        offset: network.payload + tcp::CHECK,
                        optional: false,
                        is_crc: false,
                    },
                })
            }
            Proto::UDP => {
                let header: UdpHeader = packet.load(network.payload)?;
                Some(Self {
                    sport: header.sport,
                    dport: header.dport,
                    flags: tcp::Flags::NONE,
                    seq: 0,
                    ack: 0,
                    proto: Proto::UDP,
                    checksum: Checksum {
                        offset: network.payload + udp::CHECK,
                        optional: true,
                        is_crc: false,
                    },
                })
            }
            Proto::SCTP => {
                // The chunks of a large message lie elsewhere, one packet's after the other's.
                let header: SctpHeader = packet.read(network.payload)?;
                let tag = if header.chunk == Chunk::INIT_ACK {
                    packet.read(network.payload + size_of::<SctpHeader>())?
                } else {
                    0
                };
                Some(Self {
                    sport: header.sport,
                    dport: header.dport,
                    flags: header.chunk.as_tcp(),
                    seq: u32::from_be(tag).wrapping_sub(1),
                    ack: u32::from_be(header.tag),
                    proto: Proto::SCTP,
                    checksum: Checksum {
                        offset: network.payload + sctp::CHECK,
                        optional: true,
                        is_crc: true,
                    },
                })
            }
            _ => None,
        }
    }
}

/// How much of a transport header is read, in bytes; none of protocols that are not translated.
#[inline(always)]
const fn header_len(proto: Proto) -> u32 {
    match proto {
        Proto::TCP => size_of::<TcpHeader>() as u32,
        Proto::UDP => size_of::<UdpHeader>() as u32,
        Proto::SCTP => size_of::<SctpHeader>() as u32,
        _ => 0,
    }
}
