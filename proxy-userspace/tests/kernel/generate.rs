//! Random packets, built by an independent library so that our header code is not held against
//! itself; SCTP by hand, which that library does not build.

use std::net::IpAddr;

use etherparse::PacketBuilder;
use proxy_common::lottery::{Random as _, XorShift, below};
use proxy_common::net::Proto;
use proxy_common::net::sctp::crc32c;

use proxy_common::datapath::memory::message::{Message, Quote};
use proxy_common::datapath::memory::pieces::{cut, extended};
use proxy_common::datapath::memory::world::{client_addr, endpoint_addr, vip};

/// An address and a port.
type Peer = (IpAddr, u16);

/// A source of packets.
pub(super) struct Packets {
    random: XorShift,
    /// Fragments of datagrams of which others are on their way.
    pieces: Vec<(Vec<u8>, &'static str)>,
    /// A packet that was rewritten not long ago: as it was and as it became, and the other program.
    rewritten: Option<(Packet, Packet, [&'static str; 2])>,
}

/// Protocol, source and destination.
type Packet = (Proto, Peer, Peer);

/// Addresses and ports that the packets are made of, few enough that flows meet again.
const CLIENTS: u32 = 3;
const ENDPOINTS: u32 = 14;
const VIPS: u32 = 7;

impl Packets {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            random: XorShift(seed),
            pieces: Vec::new(),
            rewritten: None,
        }
    }

    pub(super) fn below(&mut self, n: u32) -> u32 {
        below(&mut self.random, n)
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }

    /// An address that may or may not be a client's, an endpoint's or a Service's.
    fn addr(&mut self, is_v6: bool) -> IpAddr {
        match self.below(4) {
            0 => client_addr(is_v6, 1 + self.below(CLIENTS)),
            1 => endpoint_addr(is_v6, 1 + self.below(ENDPOINTS)),
            2 => vip(is_v6, 1 + self.below(VIPS)),
            // Ours would be in ranges of its own.
            _ => vip(is_v6, 200 + self.below(50)),
        }
    }

    /// Source, destination and hook, mostly such as occur in life.
    fn pair(&mut self, is_v6: bool) -> (Peer, Peer, &'static str) {
        let client_port = 40_000 + self.below(4) as u16;
        // A reply to a rewritten source port, now and then.
        let reply_port = if self.below(8) == 0 {
            61_000 + self.below(4_536) as u16
        } else {
            client_port
        };
        let (vip_port, endpoint_port) = (self.one_of(&[80, 53]), self.one_of(&[8080, 5353]));
        let client = match self.below(4) {
            0 => endpoint_addr(is_v6, 1 + self.below(ENDPOINTS)),
            _ => client_addr(is_v6, 1 + self.below(CLIENTS)),
        };
        match self.below(13) {
            0..5 => (
                (client, client_port),
                (vip(is_v6, 1 + self.below(VIPS)), vip_port),
                "tc_in",
            ),
            5..8 => (
                (
                    endpoint_addr(is_v6, 1 + self.below(ENDPOINTS)),
                    endpoint_port,
                ),
                (client, reply_port),
                "tc_eg",
            ),
            // The node itself, from its own address or another Service's.
            11 => (
                (vip(is_v6, 1 + self.below(VIPS)), vip_port),
                (client, client_port),
                "tc_eg",
            ),
            // Without a Service, now and then from a port that one goes through as well.
            9 | 10 => (
                (client, client_port),
                (
                    endpoint_addr(is_v6, 1 + self.below(ENDPOINTS)),
                    endpoint_port,
                ),
                "tc_in",
            ),
            // The way back of a hairpin, and its way out.
            8 if self.below(2) == 0 => (
                (
                    endpoint_addr(is_v6, 1 + self.below(ENDPOINTS)),
                    endpoint_port,
                ),
                (vip(is_v6, 1 + self.below(VIPS)), reply_port),
                "tc_in",
            ),
            8 => {
                let addr = endpoint_addr(is_v6, 1 + self.below(ENDPOINTS));
                ((addr, client_port), (addr, endpoint_port), "tc_eg")
            }
            _ => (
                (self.addr(is_v6), self.below(65_536) as u16),
                (self.addr(is_v6), self.below(65_536) as u16),
                self.one_of(&["tc_in", "tc_eg"]),
            ),
        }
    }

    /// An Ethernet frame, now and then mutilated, and the program that is to see it.
    pub(super) fn frame(&mut self) -> (Vec<u8>, &'static str) {
        // Mostly in order.
        if !self.pieces.is_empty() && self.below(2) == 0 {
            let at = if self.below(4) == 0 {
                self.below(self.pieces.len() as u32) as usize
            } else {
                0
            };
            let (mut bytes, program) = self.pieces.remove(at);
            self.mutilate(&mut bytes);
            return (bytes, program);
        }
        let (mut bytes, program) = self.whole();
        if bytes[14] >> 4 == 6 && self.below(12) == 0 {
            bytes = extended(&bytes, &self.headers()).unwrap();
        }
        if self.below(8) == 0 && self.pieces.len() < 100 {
            let (id, len) = (self.below(3), self.one_of(&[8, 16, 24, 40]));
            let pieces = cut(&bytes, id, len).unwrap();
            let pieces = pieces.into_iter().map(|piece| (piece, program));
            self.pieces.extend(pieces);
            return self.frame();
        }
        self.mutilate(&mut bytes);
        (bytes, program)
    }

    /// Extension headers, most of which can be passed over.
    fn headers(&mut self) -> Vec<(u8, Vec<u8>)> {
        let count = 1 + self.below(7);
        let mut headers = Vec::new();
        for _ in 0..count {
            let proto = self.one_of(&[0, 60, 60, 60, 43, 51, 51, 44, 50]);
            let len = match proto {
                44 => 0,
                _ => self.below(3) as u8,
            };
            let mut header = vec![0; 8 + 8 * usize::from(len)];
            header[1] = if proto == 51 { len * 2 } else { len };
            if proto == 43 {
                header[3] = self.below(2) as u8;
            }
            headers.push((proto, header));
        }
        headers
    }

    /// A frame in one piece.
    fn whole(&mut self) -> (Vec<u8>, &'static str) {
        let is_v6 = self.below(2) == 0;
        if self.below(10) == 0 {
            return self.error(is_v6);
        }
        let (src, dst, program) = self.pair(is_v6);
        // The test device's address is all zeros; another one makes the frame somebody else's.
        let mac = if self.below(50) == 0 { 2 } else { 0 };
        let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], [mac, 0, 0, 0, 0, 0]);
        let builder = match (src.0, dst.0) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => builder.ipv4(src.octets(), dst.octets(), 64),
            (IpAddr::V6(src), IpAddr::V6(dst)) => builder.ipv6(src.octets(), dst.octets(), 64),
            _ => unreachable!("both addresses are of one family"),
        };
        let payload = vec![0x5a; self.below(64) as usize];
        let mut bytes = Vec::new();
        // Port 80 is served over TCP, port 53 over both.
        let is_web = [src.1, dst.1].iter().any(|port| [80, 8080].contains(port));
        let kind = self.below(20);
        let kind = if is_web && (9..16).contains(&kind) {
            0
        } else {
            kind
        };
        match kind {
            0..9 => {
                let mut tcp = builder.tcp(src.1, dst.1, self.random.draw(), 64_000);
                match self.below(8) {
                    0..3 => tcp = tcp.syn(),
                    3 => tcp = tcp.syn().ack(self.random.draw()),
                    4 => tcp = tcp.fin().ack(self.random.draw()),
                    5 => tcp = tcp.rst(),
                    _ => tcp = tcp.ack(self.random.draw()),
                }
                tcp.write(&mut bytes, &payload).unwrap();
            }
            9..16 => builder
                .udp(src.1, dst.1)
                .write(&mut bytes, &payload)
                .unwrap(),
            16 | 17 => {
                // Built as UDP over the same bytes, then named SCTP.
                builder
                    .udp(src.1, dst.1)
                    .write(&mut bytes, &payload)
                    .unwrap();
                let at = bytes.len() - payload.len() - 8;
                bytes.truncate(at);
                bytes.extend(self.sctp(src.1, dst.1, &payload));
                bytes[if is_v6 { 20 } else { 23 }] = 132;
            }
            18 => {
                builder
                    .udp(src.1, dst.1)
                    .write(&mut bytes, &payload)
                    .unwrap();
                bytes[if is_v6 { 20 } else { 23 }] = self.below(256) as u8;
            }
            _ if is_v6 => builder
                .icmpv6_echo_request(1, 2)
                .write(&mut bytes, &payload)
                .unwrap(),
            _ => builder
                .icmpv4_echo_request(1, 2)
                .write(&mut bytes, &payload)
                .unwrap(),
        }
        (bytes, program)
    }

    /// Tells of a packet that a program has rewritten, so that errors can be about it.
    pub(super) fn rewritten(&mut self, program: &'static str, before: &[u8], after: &[u8]) {
        let other = match program {
            "tc_eg" => "tc_in",
            _ => "tc_eg",
        };
        if let Some((before, after)) = peers(before).zip(peers(after)) {
            self.rewritten = Some((before, after, [program, other]));
        }
    }

    /// What an error is about, and who is to see that.
    fn reported(&mut self, is_v6: bool) -> (Packet, &'static str) {
        match (self.below(3), self.rewritten) {
            (0, Some((_, after, [_, other]))) => (after, other),
            (1, Some(((proto, src, dst), _, [same, _]))) => ((proto, dst, src), same),
            _ => {
                let (src, dst, program) = self.pair(is_v6);
                let proto = self.one_of(&[Proto::TCP, Proto::TCP, Proto::UDP, Proto::SCTP]);
                ((proto, dst, src), program)
            }
        }
    }

    /// An ICMP error in one of all forms, mostly about something that was seen.
    fn error(&mut self, is_v6: bool) -> (Vec<u8>, &'static str) {
        let ((proto, src, dst), program) = self.reported(is_v6);
        let is_v6 = src.0.is_ipv6();
        let mut quote = Quote::new(proto, src.into(), dst.into());
        quote.is_unchecked = self.below(8) == 0;
        quote.payload.resize(self.below(64) as usize, 0x5a);
        if is_v6 {
            // None mostly, or a few of one type, the last of which is right or not.
            let count = [0, 0, 0, 0, 1, 2, 4, 5][self.below(8) as usize];
            quote.option = self.one_of(&[0, 43, 44, 51, 60, 50, 135]);
            for left in (0..count).rev() {
                let next = if left == 0 { proto.0 } else { quote.option };
                let offset = u8::from(self.below(8) == 0);
                quote.options.extend([next, 0, offset, 0, 0, 0, 0, 0]);
            }
        } else {
            quote
                .options
                .resize(4 * self.below(11) as usize * self.below(2) as usize, 1);
            quote.fragment = self.one_of(&[0, 0, 0, 0x4000, 0x2000, 0x00b9]);
        }
        let from = match self.below(2) {
            0 => dst.0,
            _ => self.addr(is_v6),
        };
        let kinds = if is_v6 {
            [1, 2, 3, 4, 128, 137]
        } else {
            [3, 4, 5, 8, 11, 12]
        };
        let message = Message {
            from,
            to: if self.below(20) == 0 {
                self.addr(is_v6)
            } else {
                src.0
            },
            kind: [self.one_of(&kinds), self.below(6) as u8],
            rest: self.random.draw().to_be_bytes(),
            limit: match self.below(4) {
                0 => self.below(64) as usize,
                1 => 28,
                _ => 1232,
            },
        };
        (message.frame(&quote.bytes()), program)
    }

    /// An SCTP packet with one chunk; its checksum is right, or left to the device.
    fn sctp(&mut self, sport: u16, dport: u16, payload: &[u8]) -> Vec<u8> {
        // INIT, INIT ACK, ABORT, SHUTDOWN and its answer; DATA.
        let chunk = self.one_of(&[1, 1, 1, 2, 6, 7, 8, 0, 0]);
        let mut bytes = Vec::new();
        bytes.extend(sport.to_be_bytes());
        bytes.extend(dport.to_be_bytes());
        // Few enough that one repeats the other.
        bytes.extend(self.below(2).to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend([chunk, 3]);
        bytes.extend((16 + payload.len() as u16).to_be_bytes());
        bytes.extend(self.below(2).to_be_bytes());
        bytes.extend([0; 8]);
        bytes.extend(payload);
        if self.below(3) > 0 {
            let check = crc32c(&bytes);
            bytes[8..12].copy_from_slice(&check.to_le_bytes());
        }
        bytes
    }

    /// Damages one packet in six: cut short, a bit flipped, options added, checksum zeroed.
    fn mutilate(&mut self, bytes: &mut Vec<u8>) {
        match self.below(36) {
            0 => {
                let len = 14 + self.below(bytes.len() as u32 - 14) as usize;
                bytes.truncate(len);
            }
            1 | 2 => {
                let at = self.below(bytes.len() as u32) as usize;
                bytes[at] ^= 1 << self.below(8);
            }
            // Fragments, first and later, and other header lengths.
            3 if bytes.len() > 34 => {
                bytes[20] = self.one_of(&[0x20, 0x00, 0x3f]);
                bytes[21] = self.below(3) as u8;
            }
            4 if bytes.len() > 34 => bytes[14] = 0x40 | self.below(16) as u8,
            // UDP over IPv4 without a checksum.
            5 if bytes.len() > 42 => bytes[40..42].fill(0),
            _ => {}
        }
    }
}

/// Protocol, source and destination of a frame, if it is TCP, UDP or SCTP.
fn peers(bytes: &[u8]) -> Option<Packet> {
    let is_v6 = bytes[12] == 0x86;
    let (proto, payload) = if is_v6 {
        (bytes[20], 54)
    } else {
        (bytes[23], 14 + usize::from(bytes[14] & 0xf) * 4)
    };
    let port = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let addr = |index: usize| -> IpAddr {
        if is_v6 {
            let at = 22 + index * 16;
            <[u8; 16]>::try_from(&bytes[at..at + 16]).unwrap().into()
        } else {
            let at = 26 + index * 4;
            <[u8; 4]>::try_from(&bytes[at..at + 4]).unwrap().into()
        }
    };
    let proto = Proto(proto);
    matches!(proto, Proto::TCP | Proto::UDP | Proto::SCTP).then_some(())?;
    Some((
        proto,
        (addr(0), port(payload)?),
        (addr(1), port(payload + 2)?),
    ))
}
