//! Packets of every form that goes through a Service or must not, and what has to come out, byte for
//! byte and checksums included, as an independent library builds both.

use std::net::IpAddr;

use etherparse::{
    IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv4Options, Ipv6Extensions, Ipv6FlowLabel,
    Ipv6Header, PacketBuilder, PacketBuilderStep,
};
use proxy_common::abi::Settings;
use proxy_common::datapath::memory::pieces::{cut, extended, numbered};
use proxy_common::datapath::memory::world::{World, client_addr, endpoint_addr, vip};
use proxy_common::net::Proto;

use super::is_root;
use super::object::{MARKED, Object, Run};

/// An address and a port.
type Peer = (IpAddr, u16);

/// The forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Syn,
    SynAck,
    Segment,
    Datagram,
    /// Its IPv4 header is longer than usual.
    WithOptions,
    /// IPv4 lets the sender do without, and IPv6 tunnels (RFC 6935).
    WithoutChecksum,
    Fragment,
    Echo,
    Sctp,
}

/// The headers up to the network's. The address of the device of a test run is all zeros.
fn headers(form: Form, src: IpAddr, dst: IpAddr) -> PacketBuilderStep<IpHeaders> {
    let ip = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut header =
                Ipv4Header::new(0, 61, IpNumber::UDP, src.octets(), dst.octets()).unwrap();
            if form == Form::WithOptions {
                // Three of no operation, and the end.
                header.options = Ipv4Options::from([1, 1, 1, 0]);
            }
            header.more_fragments = form == Form::Fragment;
            IpHeaders::Ipv4(header, Ipv4Extensions::default())
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let header = Ipv6Header {
                traffic_class: 0,
                flow_label: Ipv6FlowLabel::ZERO,
                payload_length: 0,
                next_header: IpNumber::UDP,
                hop_limit: 61,
                source: src.octets(),
                destination: dst.octets(),
            };
            IpHeaders::Ipv6(header, Ipv6Extensions::default())
        }
        _ => unreachable!("both addresses are of one family"),
    };
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], [0; 6]).ip(ip)
}

/// A packet, with the library's checksums.
fn packet(form: Form, (src, sport): Peer, (dst, dport): Peer) -> Vec<u8> {
    let payload = b"what is sent is what arrives";
    let headers = headers(form, src, dst);
    let mut bytes = Vec::new();
    match form {
        Form::Syn => headers
            .tcp(sport, dport, 1000, 64_000)
            .syn()
            .write(&mut bytes, &[]),
        Form::SynAck => headers
            .tcp(sport, dport, 5000, 64_000)
            .syn()
            .ack(1001)
            .write(&mut bytes, &[]),
        Form::Segment => headers
            .tcp(sport, dport, 1001, 64_000)
            .ack(5001)
            .write(&mut bytes, payload),
        Form::Echo if src.is_ipv4() => headers.icmpv4_echo_request(7, 1).write(&mut bytes, payload),
        Form::Echo => headers.icmpv6_echo_request(7, 1).write(&mut bytes, payload),
        Form::Sctp => headers.write(&mut bytes, IpNumber::SCTP, payload),
        Form::Datagram | Form::WithOptions | Form::WithoutChecksum | Form::Fragment => {
            headers.udp(sport, dport).write(&mut bytes, payload)
        }
    }
    .unwrap();
    if form == Form::WithoutChecksum {
        let end = bytes.len() - payload.len();
        bytes[end - 2..end].fill(0);
    }
    bytes
}

/// One packet after the other through the same tables.
struct Golden {
    object: Object,
}

impl Golden {
    /// A Service at ports 80 (TCP) and 53 (UDP) with one endpoint at 8080 and 5353.
    fn new() -> Self {
        let mut world = World::new(Settings::with_hz(250));
        for is_v6 in [false, true] {
            let (vip, endpoint) = (vip(is_v6, 1), endpoint_addr(is_v6, 1));
            world.service((vip, 80), Proto::TCP, &[(endpoint, 8080)]);
            world.service((vip, 53), Proto::UDP, &[(endpoint, 5353)]);
        }
        let mut object = Object::load(world.tables.settings);
        object.write(&world.tables);
        Self { object }
    }

    /// Sends a packet from and to `before`, which has to come out as one from and to `after`.
    fn becomes(&self, program: &str, form: Form, before: (Peer, Peer), after: (Peer, Peer)) {
        let run = self
            .object
            .run(program, &packet(form, before.0, before.1))
            .unwrap();
        let expected = Run {
            action: -1,
            bytes: packet(form, after.0, after.1),
            mark: MARKED,
        };
        assert_eq!(expected, run, "{form:?} {before:?} at {program}");
        // Nobody looks at the sum where there is no checksum.
        if form != Form::WithoutChecksum {
            let bytes = packet(form, before.0, before.1);
            self.object.keeps_the_sum(program, &bytes);
        }
    }

    fn stays(&self, program: &str, form: Form, peers: (Peer, Peer)) {
        self.becomes(program, form, peers, peers);
    }
}

/// Through the Service and back, and from the endpoint to itself.
fn translated(golden: &Golden, is_v6: bool) {
    let client = client_addr(is_v6, 1);
    let (vip, endpoint) = (vip(is_v6, 1), endpoint_addr(is_v6, 1));

    let (from, door, served) = ((client, 40_000), (vip, 80), (endpoint, 8080));
    golden.becomes("tc_in", Form::Syn, (from, door), (from, served));
    golden.becomes("tc_eg", Form::SynAck, (served, from), (door, from));
    golden.becomes("tc_in", Form::Segment, (from, door), (from, served));

    let (door, served) = ((vip, 53), (endpoint, 5353));
    for form in [
        Form::Datagram,
        Form::WithOptions,
        Form::WithoutChecksum,
        Form::Fragment,
    ] {
        // Only IPv4 has options, and a fragment's mark in its own header.
        if !is_v6 || matches!(form, Form::Datagram | Form::WithoutChecksum) {
            golden.becomes("tc_in", form, (from, door), (from, served));
            golden.becomes("tc_eg", form, (served, from), (door, from));
        }
    }
    in_fragments(golden, (from, door), (from, served));

    // Its source becomes the Service's address on the way to itself.
    let (from, itself) = ((endpoint, 40_001), (vip, 40_001));
    golden.becomes("tc_in", Form::Datagram, (from, door), (from, served));
    golden.becomes("tc_eg", Form::Datagram, (from, served), (itself, served));
    golden.becomes("tc_in", Form::Datagram, (served, itself), (served, from));
    golden.becomes("tc_eg", Form::Datagram, (served, from), (door, from));
}

/// A datagram cut small both ways, with extension headers where there are any: each piece comes out
/// as if the datagram had been translated before it was cut.
fn in_fragments(golden: &Golden, before: (Peer, Peer), after: (Peer, Peer)) {
    let back = ((before.1, before.0), (after.1, after.0));
    for (program, before, after) in [("tc_in", before, after), ("tc_eg", back.1, back.0)] {
        for len in [8, 16, 24] {
            let cut = |(from, to): (Peer, Peer)| {
                let mut bytes = numbered(&packet(Form::Datagram, from, to), 7).unwrap();
                if from.0.is_ipv6() {
                    let padding = [0, 0, 1, 4, 0, 0, 0, 0].to_vec();
                    bytes = extended(&bytes, &[(60, padding)]).unwrap();
                }
                cut(&bytes, 7, len).unwrap()
            };
            let (before, after) = (cut(before), cut(after));
            // With ports behind more than a first fragment of 8 bytes holds, nobody knows them.
            let first_is_short = len == 8 && before[0][14] >> 4 == 6;
            if first_is_short {
                continue;
            }
            for (n, (before, after)) in before.iter().zip(after).enumerate() {
                let expected = Run {
                    action: -1,
                    bytes: after,
                    mark: MARKED,
                };
                let run = golden.object.run(program, before).unwrap();
                assert_eq!(expected, run, "piece {n} of {len} bytes at {program}");
                golden.object.keeps_the_sum(program, before);
            }
        }
    }
}

/// What is no concern of the Service, or cannot be translated.
fn untranslated(golden: &Golden, is_v6: bool) {
    let from = (client_addr(is_v6, 1), 40_002);
    let vip = vip(is_v6, 1);
    for form in [Form::Echo, Form::Sctp] {
        golden.stays("tc_in", form, (from, (vip, 53)));
    }
    // No such port, and no Service at all.
    golden.stays("tc_in", Form::Datagram, (from, (vip, 54)));
    golden.stays("tc_in", Form::Syn, (from, (vip, 53)));
    golden.stays("tc_in", Form::Syn, (from, (client_addr(is_v6, 2), 80)));
    // No endpoint that serves here.
    let elsewhere = (endpoint_addr(is_v6, 1), 9);
    golden.stays("tc_eg", Form::Datagram, (from, elsewhere));
}

#[test]
fn packets_of_every_form_come_out_as_they_have_to() {
    if !is_root() {
        return;
    }
    let golden = Golden::new();
    for is_v6 in [false, true] {
        translated(&golden, is_v6);
        untranslated(&golden, is_v6);
    }
}
