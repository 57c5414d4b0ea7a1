//! The kinds of packets, and of each some as they should be.

use std::net::SocketAddr;

use etherparse::IpNumber;

use proxy_common::datapath::memory::message::{Message, Quote};
use proxy_common::datapath::memory::pieces::{cut, extended, numbered};
use proxy_common::datapath::memory::world::{client_addr, endpoint_addr, vip};
use proxy_common::net::Proto;
use proxy_common::net::sctp::crc32c;

use super::super::frames::{Tcp, frame, start};

/// A packet, and the program that is to see it.
#[derive(Clone, Debug)]
pub(super) struct Shot {
    pub(super) bytes: Vec<u8>,
    pub(super) program: &'static str,
}

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Errors4,
    Errors6,
    Fragments4,
    Fragments6,
    Sctp,
    Headers,
    Segments,
    Datagrams,
}

/// A flow through the first Service, which has one endpoint: of the first client, or of the endpoint
/// itself.
#[derive(Clone, Copy)]
struct Flow {
    proto: Proto,
    client: SocketAddr,
    service: SocketAddr,
    endpoint: SocketAddr,
}

impl Flow {
    fn new(is_v6: bool, proto: Proto, is_hairpin: bool) -> Self {
        let (door, served) = match proto {
            Proto::UDP => (53, 5353),
            _ => (80, 8080),
        };
        let endpoint = endpoint_addr(is_v6, 1);
        let client = if is_hairpin {
            SocketAddr::new(endpoint, 40_100)
        } else {
            SocketAddr::new(client_addr(is_v6, 1), 40_000)
        };
        Self {
            proto,
            client,
            service: SocketAddr::new(vip(is_v6, 1), door),
            endpoint: SocketAddr::new(endpoint, served),
        }
    }

    fn is_hairpin(&self) -> bool {
        self.client.ip() == self.endpoint.ip()
    }

    /// The Service's address, as the client's of a hairpin.
    const fn mirror(&self) -> SocketAddr {
        SocketAddr::new(self.service.ip(), self.client.port())
    }

    /// Where each packet comes from and goes to, on its way in and out.
    fn ways(&self) -> Vec<(&'static str, SocketAddr, SocketAddr)> {
        let mut ways = vec![
            ("tc_in", self.client, self.service),
            ("tc_eg", self.endpoint, self.client),
        ];
        if self.is_hairpin() {
            ways.push(("tc_eg", self.client, self.endpoint));
            ways.push(("tc_in", self.endpoint, self.mirror()));
        }
        ways
    }

    /// What errors are about at each hook, where they are translated.
    fn reported(&self) -> Vec<(&'static str, SocketAddr, SocketAddr)> {
        let ways = self.ways().into_iter();
        ways.map(|(program, from, to)| (program, to, from))
            .collect()
    }
}

fn flows() -> Vec<Flow> {
    let mut flows = Vec::new();
    for is_v6 in [false, true] {
        for proto in [Proto::TCP, Proto::UDP, Proto::SCTP] {
            flows.push(Flow::new(is_v6, proto, false));
            flows.push(Flow::new(is_v6, proto, true));
        }
    }
    flows
}

fn of_family(is_v6: bool) -> impl Iterator<Item = Flow> {
    let flows = flows().into_iter();
    flows.filter(move |flow| flow.client.is_ipv6() == is_v6)
}

fn of_proto(proto: Proto) -> impl Iterator<Item = Flow> {
    flows().into_iter().filter(move |flow| flow.proto == proto)
}

/// An SCTP packet with a chunk of this type, addressed by this tag.
fn chunk(from: SocketAddr, to: SocketAddr, (chunk, tag): (u8, u32), has_check: bool) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(from.port().to_be_bytes());
    body.extend(to.port().to_be_bytes());
    body.extend(tag.to_be_bytes());
    body.extend([0; 4]);
    // The tag that the sender wants to be addressed by, where that is said.
    body.extend([chunk, 0, 0, 20, 0, 0, 0, 77, 0, 1, 0, 0, 0, 2, 0, 2]);
    body.extend([0, 0, 0, 9]);
    if has_check {
        let check = crc32c(&body).to_le_bytes();
        body[8..12].copy_from_slice(&check);
    }
    let mut bytes = Vec::new();
    start(from, to)
        .write(&mut bytes, IpNumber::SCTP, &body)
        .unwrap();
    bytes
}

/// A packet that says what the segment says; the answers' number is 77 in every protocol.
fn packet(proto: Proto, from: SocketAddr, to: SocketAddr, tcp: Tcp) -> Vec<u8> {
    if proto != Proto::SCTP {
        return frame(proto, from, to, tcp);
    }
    let kind = match tcp.flags {
        "S" => 1,
        "SA" => 2,
        _ => 0,
    };
    chunk(from, to, (kind, tcp.ack), true)
}

/// Opens each flow, or goes on with it.
pub(super) fn opening() -> Vec<Shot> {
    let mut shots = Vec::new();
    for flow in flows() {
        for (tcp, is_request) in [
            (Tcp::new("S", 100, 0), true),
            (Tcp::new("SA", 76, 101), false),
            (Tcp::new("A", 101, 77), true),
            (Tcp::new("A", 77, 101), false),
        ] {
            let ways = flow.ways().into_iter().enumerate();
            // Of a hairpin every second one goes with the request.
            let ways = ways.filter(|(n, _)| {
                let requests = [true, false, true, false];
                requests[*n] == is_request
            });
            for (_, (program, from, to)) in ways {
                let bytes = packet(flow.proto, from, to, tcp);
                shots.push(Shot { bytes, program });
            }
        }
    }
    shots
}

impl Kind {
    pub(super) const ALL: [Self; 8] = [
        Self::Errors4,
        Self::Errors6,
        Self::Fragments4,
        Self::Fragments6,
        Self::Sctp,
        Self::Headers,
        Self::Segments,
        Self::Datagrams,
    ];

    /// Packets as they should be.
    pub(super) fn golden(self) -> Vec<Shot> {
        match self {
            Self::Errors4 => errors(false),
            Self::Errors6 => errors(true),
            Self::Fragments4 => fragments(false),
            Self::Fragments6 => fragments(true),
            Self::Sctp => chunks(),
            Self::Headers => headers(),
            Self::Segments => segments(),
            Self::Datagrams => datagrams(),
        }
    }
}

/// Errors about every flow, whose quotes are long and short and have options.
fn errors(is_v6: bool) -> Vec<Shot> {
    let mut shots = Vec::new();
    let kinds: &[[u8; 2]] = if is_v6 {
        &[[1, 4], [2, 0], [3, 0], [4, 1]]
    } else {
        &[[3, 3], [3, 4], [11, 0], [12, 0]]
    };
    for flow in of_family(is_v6) {
        for (n, (program, from, to)) in flow.reported().into_iter().enumerate() {
            for (form, kind) in kinds.iter().enumerate() {
                let mut quote = Quote::new(flow.proto, from, to);
                quote.is_unchecked = form == 1 && flow.proto == Proto::UDP;
                if form == 2 && is_v6 {
                    quote.option = 60;
                    quote.options = vec![flow.proto.0, 0, 1, 4, 0, 0, 0, 0];
                } else if form == 2 {
                    quote.options = vec![1, 1, 1, 0];
                }
                let message = Message {
                    from: if n % 2 == 0 {
                        to.ip()
                    } else {
                        client_addr(is_v6, 3)
                    },
                    to: from.ip(),
                    kind: *kind,
                    rest: [0, 0, 5, 0],
                    limit: match form {
                        3 if is_v6 => 48,
                        3 => 28,
                        _ => 1232,
                    },
                };
                let bytes = message.frame(&quote.bytes());
                shots.push(Shot { bytes, program });
            }
        }
    }
    shots
}

/// Every packet in fragments of several lengths, some padded as a device pads them.
fn fragments(is_v6: bool) -> Vec<Shot> {
    let mut shots = Vec::new();
    let flows = of_family(is_v6).filter(|flow| flow.proto != Proto::SCTP);
    for (n, flow) in flows.enumerate() {
        for (program, from, to) in flow.ways() {
            for len in [8, 24, 40] {
                let whole = packet(flow.proto, from, to, Tcp::ACK);
                let mut whole = numbered(&whole, n as u16).unwrap();
                if is_v6 && len == 40 {
                    let options = vec![0, 0, 1, 4, 0, 0, 0, 0];
                    whole = extended(&whole, &[(60, options)]).unwrap();
                }
                for mut bytes in cut(&whole, n as u32, len).unwrap() {
                    bytes.resize(bytes.len().max(60), 0);
                    shots.push(Shot { bytes, program });
                }
            }
        }
    }
    shots
}

fn chunks() -> Vec<Shot> {
    let mut shots = Vec::new();
    for flow in of_proto(Proto::SCTP) {
        for (program, from, to) in flow.ways() {
            for kind in [0, 1, 2, 3, 4, 6, 7, 8, 10, 14, 192] {
                let tag = if kind == 1 { 0 } else { 77 };
                let bytes = chunk(from, to, (kind, tag), kind != 3);
                shots.push(Shot { bytes, program });
            }
        }
    }
    shots
}

/// IPv4 options of every length, and chains of IPv6 extension headers.
fn headers() -> Vec<Shot> {
    let mut shots = Vec::new();
    for flow in flows() {
        for (program, from, to) in flow.ways() {
            let whole = packet(flow.proto, from, to, Tcp::ACK);
            let forms = (1..=5).map(|n| {
                if from.is_ipv4() {
                    return with_options(&whole, 8 * n);
                }
                let header = |proto: u8| {
                    let len = if proto == 51 {
                        4
                    } else {
                        u8::from(proto == 60)
                    };
                    let mut header = vec![0; if len == 0 { 8 } else { 16 }];
                    header[1] = if proto == 51 { 2 } else { len };
                    (proto, header)
                };
                let chain: Vec<_> = [0, 60, 43, 44, 51, 60][..=n]
                    .iter()
                    .map(|proto| header(*proto))
                    .collect();
                extended(&whole, &chain).unwrap()
            });
            shots.extend(forms.map(|bytes| Shot { bytes, program }));
        }
    }
    shots
}

/// The same IPv4 packet with so many bytes of options, of no operation all.
fn with_options(frame: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = frame[..34].to_vec();
    bytes.extend(std::iter::repeat_n(1, len));
    bytes.extend(&frame[34..]);
    bytes[14] = 0x45 + (len / 4) as u8;
    let total = (bytes.len() - 14) as u16;
    bytes[16..18].copy_from_slice(&total.to_be_bytes());
    // With the identification that it has, which gives it a right header checksum as well.
    numbered(&bytes, u16::from_be_bytes([bytes[18], bytes[19]])).unwrap()
}

/// Segments with all control bits that may stand together, and those that may not.
fn segments() -> Vec<Shot> {
    let mut shots = Vec::new();
    let mut flows: Vec<_> = of_proto(Proto::TCP).collect();
    // And of connections that nobody has opened.
    for flow in of_proto(Proto::TCP) {
        let port = flow.client.port() + 1;
        let client = SocketAddr::new(flow.client.ip(), port);
        flows.push(Flow { client, ..flow });
    }
    for flow in flows {
        for (program, from, to) in flow.ways() {
            for flags in [
                0x00, 0x01, 0x02, 0x03, 0x04, 0x06, 0x10, 0x11, 0x12, 0x14, 0x18, 0x29, 0x3f, 0x42,
                0xc2, 0xff,
            ] {
                let mut bytes = Vec::new();
                start(from, to)
                    .tcp(from.port(), to.port(), 101, 64_000)
                    .write(&mut bytes, b"data")
                    .unwrap();
                let at = bytes.len() - 4 - 20;
                bytes[at + 13] = flags;
                bytes[at + 8..at + 12].copy_from_slice(&77_u32.to_be_bytes());
                shots.push(Shot { bytes, program });
            }
        }
    }
    shots
}

/// Datagrams with and without a checksum, from and to ports that there are not.
fn datagrams() -> Vec<Shot> {
    let mut shots = Vec::new();
    for flow in of_proto(Proto::UDP) {
        for (program, from, to) in flow.ways() {
            for form in 0..8 {
                let (mut from, mut to) = (from, to);
                match form {
                    4 => from.set_port(0),
                    5 => to.set_port(0),
                    6 => from.set_port(from.port() + 1),
                    7 => to.set_port(to.port() + 1),
                    _ => {}
                }
                let mut bytes = frame(Proto::UDP, from, to, Tcp::ACK);
                let at = bytes.len() - 32 - 2;
                if form == 1 {
                    bytes[at..at + 2].fill(0);
                }
                shots.push(Shot { bytes, program });
            }
        }
    }
    shots
}
