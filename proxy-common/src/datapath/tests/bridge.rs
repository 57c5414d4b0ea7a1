//! Clients at ports of a bridge.

use super::*;
use crate::abi::{Device, DeviceClass, Hook, Network4, Network6};
use crate::datapath::memory::Fib;
use crate::datapath::memory::message::{Message, Quote};
use crate::datapath::memory::pieces::{cut, join};
use crate::datapath::packet::NextHop;
use crate::datapath::{Seat, port_ingress};
use crate::net::Mac;
use bytemuck::Zeroable as _;

/// Index of the port that the client is at, and of its bridge.
const PORT: u32 = 7;
const BRIDGE: u32 = 3;

/// What frames carry that a client sends to its gateway: see [`frame`].
const GATEWAY: Mac = Mac::new([2, 0, 0, 0, 0, 2]);
/// Where the first endpoint is, and where it moves to.
const HOME: Mac = Mac::new([2, 0, 0, 0, 9, 1]);
const NEW_HOME: Mac = Mac::new([2, 0, 0, 0, 9, 2]);

/// A node whose bridge has the networks of clients and endpoints.
struct Bridged {
    node: Node,
    fib: Fib,
    seat: Seat,
    vlan: u16,
    /// As in the kernel, what one packet leaves behind is there for the next.
    room: MemoryRoom,
}

impl Bridged {
    fn new(proto: Proto) -> Self {
        let mut node = Node::new(proto);
        let device = Device {
            class: DeviceClass::POD_PORT,
            bridge_mac: GATEWAY,
            networks4: [
                Network4::new(BRIDGE, [10, 244, 0, 1].into(), 16),
                Network4::zeroed(),
                Network4::zeroed(),
                Network4::zeroed(),
            ],
            networks6: [
                Network6::zeroed(),
                Network6::zeroed(),
                Network6::new(BRIDGE, "fd00:10:244::1".parse().unwrap(), 48),
                Network6::zeroed(),
            ],
            ..Device::zeroed()
        };
        node.tables().devices.insert(PORT, device);
        Self {
            node,
            fib: Fib::new(),
            seat: Seat::PodPort,
            vlan: 0,
            room: MemoryRoom::default(),
        }
    }

    /// What the kernel says of the way to an endpoint.
    fn says(&mut self, endpoint: SocketAddr, answer: NextHop) {
        self.fib.insert((BRIDGE, endpoint.ip()), answer);
    }

    fn packet(&self, from: SocketAddr, to: SocketAddr, tcp: Tcp) -> MemoryPacket {
        MemoryPacket::frame(frame(self.node.proto, from, to, tcp))
            .at(PORT, &self.fib)
            .tagged(self.vlan)
    }

    fn take(&mut self, mut packet: MemoryPacket) -> (Verdict, MemoryPacket) {
        let tables = &mut self.node.world.tables;
        let verdict = port_ingress(&mut packet, tables, &mut self.room, self.seat);
        (verdict, packet)
    }

    /// Sends a packet in by the port; the MAC address that it goes on to, and its destination.
    fn enters(&mut self, from: SocketAddr, to: SocketAddr, tcp: Tcp) -> (Mac, SocketAddr) {
        let (verdict, packet) = self.take(self.packet(from, to, tcp));
        assert_eq!(Verdict::Rewritten, verdict);
        let bytes = packet.bytes();
        assert_eq!([2, 0, 0, 0, 0, 1], bytes[6..12], "the sender stays");
        let mac = Mac::from(<[u8; 6]>::try_from(&bytes[..6]).unwrap());
        (mac, addresses(bytes).1)
    }

    /// The client's connection or exchange, as far as it takes to be established.
    fn establish(&mut self, client: SocketAddr, service: SocketAddr) -> SocketAddr {
        let (_, endpoint) = self.enters(client, service, SYN);
        self.node.leaves(endpoint, client, SYN_ACK).unwrap();
        self.enters(client, service, ACK);
        self.node.later(3);
        self.enters(client, service, ACK);
        assert_eq!(2, self.node.halves(Tier::Established));
        endpoint
    }
}

/// A node with one Service of one endpoint, in all four shapes.
fn each(mut check: impl FnMut(Bridged, SocketAddr, SocketAddr, SocketAddr)) {
    for (is_v6, proto) in ALL {
        let mut bridged = Bridged::new(proto);
        let service = bridged.node.service(is_v6, 1, &[1]);
        let endpoint = SocketAddr::new(endpoint_addr(is_v6, 1), 8080);
        check(bridged, client(is_v6, 1, 40_000), service, endpoint);
    }
}

#[test]
fn a_flow_to_an_endpoint_on_the_same_bridge_never_meets_the_stack() {
    each(|mut at, client, service, endpoint| {
        at.says(endpoint, NextHop::Neighbour(HOME));
        assert_eq!((HOME, endpoint), at.enters(client, service, SYN));
        // What is known need not be asked for again.
        at.fib.clear();
        assert_eq!((HOME, endpoint), at.enters(client, service, ACK));
    });
}

#[test]
fn the_stack_resolves_what_is_not_known_yet() {
    each(|mut at, client, service, endpoint| {
        at.says(endpoint, NextHop::Unresolved);
        assert_eq!((GATEWAY, endpoint), at.enters(client, service, SYN));
        assert_eq!((GATEWAY, endpoint), at.enters(client, service, ACK));
        at.says(endpoint, NextHop::Neighbour(HOME));
        assert_eq!((HOME, endpoint), at.enters(client, service, ACK));
        at.fib.clear();
        assert_eq!((HOME, endpoint), at.enters(client, service, ACK));
    });
}

#[test]
fn an_endpoint_elsewhere_is_asked_for_once() {
    each(|mut at, client, service, endpoint| {
        assert_eq!((GATEWAY, endpoint), at.enters(client, service, SYN));
        at.says(endpoint, NextHop::Neighbour(HOME));
        assert_eq!((GATEWAY, endpoint), at.enters(client, service, ACK));
        at.node.later(5);
        assert_eq!((GATEWAY, endpoint), at.enters(client, service, ACK));
    });
}

/// An endpoint that does not have the client in its own network would answer by way of the stack.
#[test]
fn an_endpoint_on_the_bridge_but_in_another_network_goes_by_the_stack() {
    each(|mut at, client, service, endpoint| {
        let device = at.node.tables().devices.get_mut(&PORT).unwrap();
        device.networks4[0] = Network4::new(BRIDGE, [10, 244, 1, 1].into(), 24);
        device.networks4[1] = Network4::new(BRIDGE, [10, 244, 2, 1].into(), 24);
        device.networks6[2] = Network6::new(BRIDGE, "fd00:10:244:1::1".parse().unwrap(), 64);
        device.networks6[3] = Network6::new(BRIDGE, "fd00:10:244:2::1".parse().unwrap(), 64);
        at.says(endpoint, NextHop::Neighbour(HOME));
        assert_eq!((GATEWAY, endpoint), at.enters(client, service, SYN));
    });
}

#[test]
fn a_device_that_nothing_is_known_of_goes_by_the_stack_until_it_is() {
    each(|mut at, client, service, endpoint| {
        let device = at.node.tables().devices.remove(&PORT).unwrap();
        at.says(endpoint, NextHop::Neighbour(HOME));
        assert_eq!((GATEWAY, endpoint), at.enters(client, service, SYN));
        at.node.tables().devices.insert(PORT, device);
        assert_eq!((HOME, endpoint), at.enters(client, service, ACK));
    });
}

#[test]
fn a_hairpin_goes_by_the_stack_whatever_is_known() {
    each(|mut at, _, service, endpoint| {
        let client = SocketAddr::new(endpoint.ip(), 40_000);
        at.says(endpoint, NextHop::Neighbour(HOME));
        for (there, back) in [(SYN, SYN_ACK), (ACK, REPLY)] {
            assert_eq!((GATEWAY, endpoint), at.enters(client, service, there));
            let (from, to) = at.node.leaves(client, endpoint, there).unwrap();
            assert_eq!((service.ip(), endpoint), (from.ip(), to));
            // Its answer turns back as well.
            let (mac, to) = at.enters(endpoint, from, back);
            assert_eq!((GATEWAY, client.ip()), (mac, to.ip()));
            at.node.later(5);
        }
    });
}

#[test]
fn a_hairpin_that_has_lost_a_half_goes_by_the_stack_as_well() {
    each(|mut at, neighbour, service, endpoint| {
        let client = SocketAddr::new(endpoint.ip(), 40_000);
        at.says(endpoint, NextHop::Neighbour(HOME));
        at.enters(client, service, SYN);
        let (from, _) = at.node.leaves(client, endpoint, SYN).unwrap();
        at.node.lose(Hook::INGRESS);
        // Another flow crosses the bridge in between.
        assert_eq!(HOME, at.enters(neighbour, service, SYN).0);
        let (mac, to) = at.enters(endpoint, from, SYN_ACK);
        assert_eq!((GATEWAY, client.ip()), (mac, to.ip()));
    });
}

/// One that speaks to an endpoint directly, from a port that its Service's flow has there.
#[test]
fn a_direct_flow_with_another_port_stays_on_the_bridge() {
    each(|mut at, client, service, endpoint| {
        at.says(endpoint, NextHop::Neighbour(HOME));
        at.establish(client, service);
        let (mac, to) = at.enters(client, endpoint, SYN);
        assert_eq!((HOME, endpoint), (mac, to));
    });
}

#[test]
fn a_flow_keeps_its_way_when_it_is_established() {
    each(|mut at, client, service, endpoint| {
        at.says(endpoint, NextHop::Neighbour(HOME));
        at.establish(client, service);
        at.fib.clear();
        assert_eq!((HOME, endpoint), at.enters(client, service, ACK));
    });
}

#[test]
fn a_flow_that_goes_on_follows_its_endpoint() {
    each(|mut at, client, service, endpoint| {
        at.says(endpoint, NextHop::Neighbour(HOME));
        at.establish(client, service);
        at.says(endpoint, NextHop::Neighbour(NEW_HOME));
        assert_eq!((HOME, endpoint), at.enters(client, service, ACK));
        at.node.later(5);
        assert_eq!((NEW_HOME, endpoint), at.enters(client, service, ACK));
        // A neighbour that the kernel has forgotten has not moved.
        at.says(endpoint, NextHop::Unresolved);
        at.node.later(5);
        assert_eq!((NEW_HOME, endpoint), at.enters(client, service, ACK));
        at.says(endpoint, NextHop::Elsewhere);
        at.node.later(5);
        assert_eq!((GATEWAY, endpoint), at.enters(client, service, ACK));
    });
}

#[test]
fn a_half_that_was_lost_asks_again() {
    each(|mut at, client, service, endpoint| {
        at.says(endpoint, NextHop::Neighbour(HOME));
        at.establish(client, service);
        at.node.lose(Hook::INGRESS);
        assert_eq!((HOME, endpoint), at.enters(client, service, ACK));
        at.fib.clear();
        assert_eq!((HOME, endpoint), at.enters(client, service, ACK));
    });
}

#[test]
fn a_connection_that_is_opened_anew_asks_anew() {
    each(|mut at, client, service, endpoint| {
        at.says(endpoint, NextHop::Neighbour(HOME));
        at.establish(client, service);
        if at.node.proto == Proto::TCP {
            at.enters(client, service, RST);
        }
        at.node.later(200);
        at.says(endpoint, NextHop::Neighbour(NEW_HOME));
        assert_eq!((NEW_HOME, endpoint), at.enters(client, service, SYN));
    });
}

#[test]
fn only_ports_send_across_a_bridge() {
    each(|mut at, client, service, endpoint| {
        at.says(endpoint, NextHop::Neighbour(HOME));
        at.establish(client, service);
        let mut packet = at.packet(client, service, ACK);
        let room = &mut MemoryRoom::default();
        let verdict = ingress(&mut packet, at.node.tables(), room, eth::LEN);
        assert_eq!(Verdict::Rewritten, verdict);
        assert_eq!(*bytemuck::bytes_of(&GATEWAY), packet.bytes()[..6]);
    });
}

#[test]
fn an_uplink_port_leaves_frames_for_other_machines_alone() {
    each(|mut at, client, service, _| {
        at.seat = Seat::UplinkPort;
        let sent = at.packet(client, service, SYN);
        let another = [2, 0, 0, 0, 0, 0x55];
        // Addressed to the bridge, and to the port itself; the latter is delivered as well.
        for port in [another, GATEWAY.into()] {
            let (verdict, _) = at.take(sent.clone().seen_by(port));
            assert_eq!(Verdict::Rewritten, verdict);
        }
        let halves = at.node.halves(Tier::HalfOpen) + at.node.halves(Tier::Established);
        let device = at.node.tables().devices.get_mut(&PORT).unwrap();
        device.bridge_mac = another.into();
        // A flow that is known, and one that is not: neither is this machine's any more.
        let other = SocketAddr::new(client.ip(), 40_001);
        for from in [client, other] {
            let sent = at.packet(from, service, SYN).seen_by(another);
            let (verdict, packet) = at.take(sent.clone());
            assert_eq!((Verdict::Pass, &sent), (verdict, &packet));
        }
        let after = at.node.halves(Tier::HalfOpen) + at.node.halves(Tier::Established);
        assert_eq!(halves, after);
    });
}

#[test]
fn a_pod_port_takes_frames_for_its_bridge_which_are_not_for_itself() {
    each(|mut at, client, service, _| {
        let sent = at.packet(client, service, SYN).seen_by([2, 0, 0, 0, 0, 3]);
        assert_eq!(Verdict::Rewritten, at.take(sent).0);
    });
}

#[test]
fn frames_of_a_vlan_are_not_the_ports_but_mere_priorities_are() {
    each(|mut at, client, service, endpoint| {
        for seat in [Seat::PodPort, Seat::UplinkPort] {
            (at.seat, at.vlan) = (seat, 10);
            let sent = at.packet(client, service, SYN);
            assert_eq!(Verdict::Pass, at.take(sent).0);
            at.vlan = 0;
            assert_eq!(endpoint, at.enters(client, service, SYN).1);
        }
        let room = &mut MemoryRoom::default();
        for (vlan, expected) in [(10, Verdict::Pass), (0, Verdict::Rewritten)] {
            let mut sent = at.packet(client, service, SYN).tagged(vlan);
            let verdict = ingress(&mut sent, at.node.tables(), room, eth::LEN);
            assert_eq!(expected, verdict);
        }
        for (vlan, expected) in [(10, Verdict::Pass), (0, Verdict::Rewritten)] {
            let mut sent = at.packet(endpoint, client, SYN_ACK).tagged(vlan);
            let verdict = egress(&mut sent, at.node.tables(), room, eth::LEN);
            assert_eq!(expected, verdict);
        }
    });
}

/// Across the bridge all of them, or none: those that the stack gets alone are no datagram.
#[test]
fn all_fragments_of_a_datagram_go_the_same_way() {
    each(|mut at, client, service, endpoint| {
        if at.node.proto == Proto::SCTP {
            return;
        }
        for (answer, mac) in [
            (NextHop::Unresolved, GATEWAY),
            (NextHop::Neighbour(HOME), HOME),
        ] {
            at.says(endpoint, answer);
            let whole = frame(at.node.proto, client, service, SYN);
            let len = if at.node.proto == Proto::UDP { 8 } else { 24 };
            let mut out = Vec::new();
            for piece in cut(&whole, 7, len).unwrap() {
                let piece = MemoryPacket::frame(piece).at(PORT, &at.fib);
                let (verdict, piece) = at.take(piece);
                assert_eq!(Verdict::Rewritten, verdict);
                assert_eq!(bytemuck::bytes_of(&mac), &piece.bytes()[..6]);
                out.push(piece.bytes().to_vec());
            }
            assert!(out.len() > 1);
            assert_eq!((client, endpoint), addresses(&join(&out).unwrap()));
            // Whatever is known by the time that the others come.
            at.fib.clear();
        }
    });
}

/// Like the packets of its flow: conntrack knows nothing of what crosses the bridge.
#[test]
fn an_error_about_an_answer_takes_the_way_of_the_clients_packets() {
    each(|mut at, client, service, endpoint| {
        for (answer, mac) in [
            (NextHop::Elsewhere, GATEWAY),
            (NextHop::Neighbour(HOME), HOME),
        ] {
            at.says(endpoint, answer);
            let client = SocketAddr::new(client.ip(), client.port() + mac.words()[2]);
            assert_eq!((mac, endpoint), at.enters(client, service, SYN));
            let quote = Quote::new(at.node.proto, service, client);
            let mut message = Message {
                from: client.ip(),
                to: service.ip(),
                kind: if client.is_ipv4() { [3, 3] } else { [1, 4] },
                rest: [0; 4],
                limit: 500,
            };
            let mut before = message.frame(&quote.bytes());
            before[..6].copy_from_slice(bytemuck::bytes_of(&GATEWAY));
            // The flow knows the way, whatever the packet before it took.
            at.room = MemoryRoom::default();
            let (verdict, packet) = at.take(MemoryPacket::frame(before).at(PORT, &at.fib));
            message.to = endpoint.ip();
            let mut after = message.frame(&quote.between(endpoint, client).bytes());
            after[..6].copy_from_slice(bytemuck::bytes_of(&mac));
            assert_eq!((Verdict::Rewritten, &after[..]), (verdict, packet.bytes()));
        }
    });
}
