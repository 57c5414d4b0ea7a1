//! ICMP errors about packets of flows.

use super::*;
use crate::datapath::memory::message::{Message, Quote};

mod flows;
mod quotes;

/// Every kind of error with a code that it has, and what is none.
const ERRORS4: [[u8; 2]; 8] = [
    [3, 1],
    [3, 3],
    [3, 4],
    [4, 0],
    [11, 0],
    [11, 1],
    [12, 0],
    [12, 2],
];
const ERRORS6: [[u8; 2]; 6] = [[1, 0], [1, 4], [2, 0], [3, 0], [3, 1], [4, 1]];
/// Redirects, requests, answers, neighbour discovery, nothing.
const OTHERS4: [[u8; 2]; 5] = [[5, 1], [8, 0], [0, 0], [13, 0], [200, 0]];
const OTHERS6: [[u8; 2]; 5] = [[137, 0], [128, 0], [129, 0], [135, 0], [0, 0]];

/// A router that reports.
fn router(is_v6: bool) -> IpAddr {
    client_addr(is_v6, 200)
}

/// The packet is too big, says somebody to the sender of `quote`.
fn too_big(from: IpAddr, quote: &Quote) -> Message {
    let is_v6 = from.is_ipv6();
    Message {
        from,
        to: quote.from.ip(),
        kind: if is_v6 { [2, 0] } else { [3, 4] },
        rest: [0, 0, 5, 0],
        limit: 1232,
    }
}

/// A flow from the first client by a Service to its only endpoint.
struct Flow {
    node: Node,
    client: SocketAddr,
    service: SocketAddr,
    endpoint: SocketAddr,
    /// The client, as the endpoint knows it.
    seen: SocketAddr,
}

impl Flow {
    fn new(is_v6: bool, proto: Proto) -> Self {
        let mut node = Node::new(proto);
        let service = node.service(is_v6, 1, &[1]);
        Self::through(node, client(is_v6, 1, 40_000), service)
    }

    /// The same where the client has its port at the endpoint already, by another Service.
    fn with_another_port(is_v6: bool, proto: Proto) -> Self {
        let mut node = Node::new(proto);
        let other = node.service(is_v6, 2, &[1]);
        let service = node.service(is_v6, 1, &[1]);
        let client = client(is_v6, 1, 40_000);
        node.connect(client, other);
        let flow = Self::through(node, client, service);
        assert_ne!(flow.client, flow.seen);
        flow
    }

    fn through(mut node: Node, client: SocketAddr, service: SocketAddr) -> Self {
        let endpoint = node.connect(client, service);
        let (seen, _) = node.enters(client, service, ACK).unwrap();
        Self {
            node,
            client,
            service,
            endpoint,
            seen,
        }
    }

    /// What the client has sent, as whoever is beyond the node knows it.
    fn request(&self) -> Quote {
        Quote::new(self.node.proto, self.seen, self.endpoint)
    }

    /// The same, as the client itself knows it.
    fn sent(&self) -> Quote {
        Quote::new(self.node.proto, self.client, self.service)
    }

    /// What the endpoint has answered, as it knows it itself.
    fn answer(&self) -> Quote {
        Quote::new(self.node.proto, self.endpoint, self.seen)
    }

    /// The same, as the client got it.
    fn received(&self) -> Quote {
        Quote::new(self.node.proto, self.service, self.client)
    }
}

impl Node {
    /// Sends a frame in or out, and returns what comes of it.
    fn passes(&mut self, bytes: &[u8], enters: bool) -> (Verdict, Vec<u8>) {
        let mut packet = MemoryPacket::frame(bytes)
            .at(self.device, &Fib::new())
            .marked(OTHER_MARK);
        let (tables, room) = (&mut self.world.tables, &mut MemoryRoom::default());
        let verdict = if enters {
            ingress(&mut packet, tables, room, eth::LEN)
        } else {
            egress(&mut packet, tables, room, eth::LEN)
        };
        assert_eq!(OTHER_MARK, packet.mark_of());
        (verdict, packet.bytes().to_vec())
    }

    /// An error must come out as the other one.
    fn becomes(&mut self, enters: bool, before: &[u8], after: &[u8]) {
        let counted = self.counted(Counter::IcmpError);
        let (verdict, bytes) = self.passes(before, enters);
        assert_eq!(after, bytes, "of {before:02x?}");
        assert_eq!(Verdict::Rewritten, verdict);
        assert_eq!(counted + 1, self.counted(Counter::IcmpError));
    }

    /// A packet must come out as it was, at both hooks.
    fn leaves_alone(&mut self, bytes: &[u8]) {
        for enters in [true, false] {
            let counted = self.counted(Counter::IcmpError);
            assert_eq!((Verdict::Pass, bytes.to_vec()), self.passes(bytes, enters));
            assert_eq!(counted, self.counted(Counter::IcmpError));
        }
    }
}

/// `message` to another address.
fn to(message: &Message, to: SocketAddr) -> Message {
    Message {
        to: to.ip(),
        ..message.clone()
    }
}

/// `message` from another address.
fn from(message: &Message, from: SocketAddr) -> Message {
    Message {
        from: from.ip(),
        ..message.clone()
    }
}
