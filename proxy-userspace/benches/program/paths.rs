//! The paths of packets of one family, and how each is brought about.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proxy_common::abi::bits::bit_of;
use proxy_common::abi::{Empty, FrontendFlags, Hook, Origin, Tier};
use proxy_common::datapath::memory::MemoryTables;
use proxy_common::datapath::memory::world::{World, endpoint_addr, vip};
use proxy_common::net::{Ip4, Ip6, Proto};

use super::cycle::{self, Cycle};
use super::frame::{Peer, Says, frame};
use super::runner::{NOOP, REFERENCE_KNOWN, REFERENCE_NEW, Runner};
use super::samples::{Harness, Subject, Way};

/// Numbers of endpoints that new flows choose from: the smallest sets, the largest that the
/// cascade serves rule by rule, the smallest that it does not, and a large one.
const SIZES: [(&str, usize); 5] = [
    ("new-tcp-1", 1),
    ("new-tcp-2", 2),
    ("new-tcp-16", 16),
    ("new-tcp-17", 17),
    ("new-tcp-1000", 1000),
];
/// Addresses of the bridge whose port is measured; its network has the clients and the Services in
/// it.
pub(crate) const PREFIXES: [&str; 2] = ["10.0.0.1/8", "fd00::1/16"];
/// Flows of a kind that are opened in a row.
const RUNS: usize = 8;

/// Who opens connections at the same time.
type Clients = [Peer; RUNS];

/// The Services and addresses of one family.
pub(crate) struct Paths {
    is_v6: bool,
    sizes: Vec<(&'static str, Cycle)>,
    udp: Cycle,
    /// Services that remember their clients, and those that only some may use.
    choosy: [(&'static str, Cycle); 2],
    /// Behind the same bridge as its clients.
    beside: Cycle,
    known: [(&'static str, Cycle); 3],
    /// A Service without endpoints, which rejects.
    empty: Peer,
    /// An endpoint that is no frontend.
    endpoint: Peer,
    /// An address that is neither.
    stranger: Peer,
}

impl Paths {
    pub(crate) fn declare(world: &mut World, is_v6: bool) -> Self {
        let mut number = 0;
        let mut cycle = |proto, n| {
            number += 1;
            Cycle::declare(world, is_v6, proto, number - 1, n)
        };
        let sizes = SIZES.map(|(name, n)| (name, cycle(Proto::TCP, n))).into();
        let udp = cycle(Proto::UDP, 1);
        let beside = cycle(Proto::TCP, 1);
        let known = [
            ("known-tcp", Proto::TCP),
            ("known-udp", Proto::UDP),
            ("known-masqueraded", Proto::TCP),
        ]
        .map(|(name, proto)| (name, cycle(proto, 1)));
        let choosy = ["new-tcp-affinity", "new-tcp-filtered"];
        let choosy = choosy.map(|name| (name, cycle(Proto::TCP, 1)));
        let empty = (vip(is_v6, 5001), 80);
        properties(world, is_v6, [&known[2].1, &choosy[0].1, &choosy[1].1]);
        world.service(empty, Proto::TCP, &[]);
        world.change(empty, Proto::TCP, |frontend| {
            frontend.flags = FrontendFlags::if_empty(Origin::Outside, Empty::Reject);
        });
        let endpoint = unmarked(&world.tables, |n| endpoint_addr(is_v6, n));
        for proto in [Proto::TCP, Proto::UDP] {
            world.service((vip(is_v6, 5000), 80), proto, &[(endpoint, 8080)]);
        }
        let stranger = unmarked(&world.tables, |n| vip(is_v6, 10_000 + n));
        Self {
            is_v6,
            sizes,
            udp,
            choosy,
            beside,
            known,
            empty,
            endpoint: (endpoint, 8080),
            stranger: (stranger, 80),
        }
    }

    const fn path(&self, name: &'static str, way: Way) -> Subject {
        let is_v6 = self.is_v6;
        Subject::Path { name, is_v6, way }
    }

    /// Opens the flows that are to be known, or goes on with them: the opening, its answer, and
    /// what follows, which over UDP makes them established only after some seconds. Returns how
    /// many there are.
    pub(crate) fn establish(&self, runner: &Runner) -> u64 {
        let client = Runner::steady_client(self.is_v6);
        let says = [
            (Way::In, Says::Syn),
            (Way::Out, Says::SynAck),
            (Way::In, Says::Ack),
        ];
        for (_, cycle) in &self.known {
            for (way, says) in says {
                runner.walk(way, &between(cycle.proto, client, cycle.door(), way, says));
            }
        }
        for client in self.clients_at_port() {
            for (way, says) in says {
                let way = if way == Way::In { Way::Port } else { way };
                let frame = between(Proto::TCP, client, self.beside.door(), way, says);
                runner.walk(way, &frame);
            }
        }
        for proto in [Proto::TCP, Proto::UDP] {
            for (way, says) in says {
                let frame = between(proto, client, self.endpoint, way, says);
                runner.run(way.program(), &frame, 1);
            }
        }
        let circles = self.known.len() + self.clients_at_port().len();
        circles as u64 * u64::from(cycle::LEN)
    }

    /// One in the network of the bridge, whose packets cross it, and one that the stack serves.
    fn clients_at_port(&self) -> [Peer; 2] {
        [Runner::steady_client, Runner::outside_client].map(|client| client(self.is_v6))
    }

    /// Addresses whose place the kernel must know.
    pub(crate) fn beside(&self) -> impl Iterator<Item = IpAddr> {
        self.beside.places().map(|(addr, _)| addr)
    }

    /// Measures every path, those of known flows only if they are `established`.
    pub(crate) fn round(&self, runner: &mut Runner, established: bool) {
        self.steady(runner, established);
        for (name, cycle) in &self.sizes {
            self.open(runner, name, cycle, Way::In);
        }
        for (name, cycle) in &self.choosy {
            self.open(runner, name, cycle, Way::In);
        }
        self.open(runner, "new-tcp-1", &self.beside, Way::Port);
        self.whole_connections(runner);
        self.lost_halves(runner);
        self.datagrams(runner);
        self.direct(runner);
    }

    /// What changes nothing.
    fn steady(&self, runner: &mut Runner, established: bool) {
        let client = Runner::steady_client(self.is_v6);
        let (_, served) = &self.sizes[0];
        let mut peers = vec![
            ("none", Proto::TCP, self.stranger),
            ("other-port", Proto::TCP, (served.door().0, 1)),
            ("direct-tcp", Proto::TCP, self.endpoint),
            ("direct-udp", Proto::UDP, self.endpoint),
            // An endpoint's pod as a client.
            ("pod-client", Proto::TCP, (self.endpoint.0, 50_000)),
        ];
        let known = self.known.iter().filter(|_| established);
        peers.extend(known.map(|(name, cycle)| (*name, cycle.proto, cycle.door())));
        for reference in [NOOP, REFERENCE_KNOWN, REFERENCE_NEW] {
            let frame = between(Proto::TCP, client, self.stranger, Way::In, Says::Ack);
            runner.measure(reference, Harness::Steady, &frame);
        }
        for (name, proto, peer) in peers {
            for way in [Way::In, Way::Out] {
                let frame = between(proto, client, peer, way, Says::Ack);
                runner.measure(self.path(name, way), Harness::Steady, &frame);
            }
        }
        let opening = between(Proto::TCP, client, self.empty, Way::In, Says::Syn);
        runner.measure(self.path("reject", Way::In), Harness::Steady, &opening);
        let [near, outside] = self.clients_at_port();
        for (name, client, peer) in [
            ("none", near, self.stranger),
            ("known-tcp", near, self.beside.door()),
            ("known-tcp-by-stack", outside, self.beside.door()),
        ] {
            let frame = between(Proto::TCP, client, peer, Way::Port, Says::Ack);
            runner.measure(self.path(name, Way::Port), Harness::Steady, &frame);
        }
    }

    /// New clients' first packets, and empty runs as many times repeated.
    fn open(&self, runner: &mut Runner, name: &'static str, cycle: &Cycle, way: Way) -> Clients {
        let clients = [(); RUNS].map(|()| runner.fresh_client(self.is_v6, cycle::LEN));
        for client in clients {
            let frame = between(cycle.proto, client, cycle.door(), way, Says::Syn);
            runner.warm_up(way, cycle, client, &frame);
            runner.measure(NOOP, Harness::Circle, &frame);
        }
        self.step(runner, (name, cycle, clients), way, Says::Syn);
        clients
    }

    /// One packet of each client to or from each Service of a circle: in a row, so that the caches
    /// hold what such packets need.
    fn step(
        &self,
        runner: &mut Runner,
        (name, cycle, clients): (&'static str, &Cycle, Clients),
        way: Way,
        says: Says,
    ) {
        for client in clients {
            let frame = between(cycle.proto, client, cycle.door(), way, says);
            runner.measure(self.path(name, way), Harness::Circle, &frame);
        }
    }

    fn opened(&self, runner: &mut Runner) -> (&Cycle, Clients) {
        let (name, cycle) = &self.sizes[0];
        let clients = self.open(runner, name, cycle, Way::In);
        let answered = ("first-reply", cycle, clients);
        self.step(runner, answered, Way::Out, Says::SynAck);
        self.step(runner, ("establish", cycle, clients), Way::In, Says::Ack);
        (cycle, clients)
    }

    fn whole_connections(&self, runner: &mut Runner) {
        let (cycle, clients) = self.opened(runner);
        self.step(runner, ("fin", cycle, clients), Way::In, Says::FinAck);
        self.step(runner, ("fin", cycle, clients), Way::Out, Says::FinAck);
    }

    /// Answers without an entry: found by way of the client's half.
    fn lost_halves(&self, runner: &mut Runner) {
        let (cycle, clients) = self.opened(runner);
        for client in clients {
            for endpoint in cycle.places() {
                let reply = (endpoint, client);
                runner.lose(Tier::Established, cycle.proto, reply, Hook::EGRESS);
            }
        }
        self.step(runner, ("lost-half", cycle, clients), Way::Out, Says::Ack);
    }

    fn datagrams(&self, runner: &mut Runner) {
        let clients = self.open(runner, "new-udp-1", &self.udp, Way::In);
        let first = ("first-reply-udp", &self.udp, clients);
        self.step(runner, first, Way::Out, Says::SynAck);
    }

    /// A client that speaks to an endpoint without a Service.
    fn direct(&self, runner: &mut Runner) {
        for (way, says) in [(Way::In, Says::Syn), (Way::Out, Says::SynAck)] {
            let frames = [(); 2 * RUNS].map(|()| {
                let client = runner.fresh_client(self.is_v6, 0);
                let frame = between(Proto::TCP, client, self.endpoint, way, says);
                // Noted once and forgotten, to warm up.
                runner.run(way.program(), &frame, 1);
                let reply = (self.endpoint, client);
                runner.lose(Tier::HalfOpen, Proto::TCP, reply, Hook::EGRESS);
                frame
            });
            runner.measure_each(NOOP, &frames);
            runner.measure_each(self.path("new-direct", way), &frames);
        }
    }
}

/// Gives three circles the properties that their names tell.
fn properties(world: &mut World, is_v6: bool, [masqueraded, remembering, filtered]: [&Cycle; 3]) {
    masqueraded.change(world, |frontend| {
        frontend.flags = FrontendFlags::masquerade(Origin::Outside);
    });
    remembering.change(world, |frontend| frontend.affinity_timeout = 10_800);
    let mut services = Vec::new();
    filtered.change(world, |frontend| {
        frontend.flags = FrontendFlags::FILTERED;
        services.push(frontend.service);
    });
    // Everybody in one of two ranges.
    let other = vip(is_v6, 0);
    for service in services {
        let (range, len) = if is_v6 {
            (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0).into(), 8)
        } else {
            (Ipv4Addr::new(10, 0, 0, 0).into(), 8)
        };
        world.source(service, range, len);
        world.source(service, other, 24);
    }
}

/// A frame from the client to the peer, or back.
fn between(proto: Proto, client: Peer, peer: Peer, way: Way, says: Says) -> Vec<u8> {
    match way {
        Way::In | Way::Port => frame(proto, client, peer, says),
        Way::Out => frame(proto, peer, client, says),
    }
}

/// The first of these addresses that shares no bit with one that is in the tables.
fn unmarked(tables: &MemoryTables, addr: impl Fn(u32) -> IpAddr) -> IpAddr {
    let is_marked = |addr: &IpAddr| {
        let (word, mask) = match addr {
            IpAddr::V4(addr) => bit_of(Ip4::from(*addr)),
            IpAddr::V6(addr) => bit_of(Ip6::from(*addr)),
        };
        let word = word as usize;
        (tables.frontend_bits[word] | tables.endpoint_bits[word]) & mask != 0
    };
    (1..1000).map(addr).find(|addr| !is_marked(addr)).unwrap()
}
