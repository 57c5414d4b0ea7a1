//! Two CPUs at once: whatever they do to one flow, they agree on it and leave nothing behind.
//!
//! Two threads on two CPUs run the programs on packets of the same flows in lockstep. How close
//! they come is up to the machine; what must hold, holds for every order.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use proxy_common::abi::flow::{Flow as _, FlowKey as _};
use proxy_common::abi::{Counter, Hook, Kind, Settings, Tier, V4, V6};
use proxy_common::datapath::memory::world::{World, endpoint_addr, vip};
use proxy_common::net::Proto;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::frames::{Tcp, addresses, frame};
use super::object::Object;
use super::{is_emulated, is_long, is_root};

mod sets;

/// A packet, and the program that sees it.
#[derive(Clone)]
struct Shot {
    program: &'static str,
    bytes: Vec<u8>,
}

/// Where a packet went: from where and to where it is addressed now; nothing if it was dropped.
type Hit = Option<(SocketAddr, SocketAddr)>;

fn enters(proto: Proto, from: SocketAddr, to: SocketAddr, tcp: Tcp) -> Shot {
    Shot {
        program: "tc_in",
        bytes: frame(proto, from, to, tcp),
    }
}

fn leaves(proto: Proto, from: SocketAddr, to: SocketAddr, tcp: Tcp) -> Shot {
    Shot {
        program: "tc_eg",
        ..enters(proto, from, to, tcp)
    }
}

impl Shot {
    fn fire(&self, object: &Object) -> Hit {
        let run = object.run(self.program, &self.bytes).unwrap();
        (run.action == -1).then(|| addresses(&run.bytes))
    }
}

/// Rounds that the threads do without waiting for each other.
const ROUNDS_AT_ONCE: usize = 8;

/// Both CPUs fire, round by round; each has a list of shots for every round.
fn lockstep(object: &Object, rounds: [&[Vec<Shot>]; 2]) -> [Vec<Vec<Hit>>; 2] {
    let cpus = sched_getaffinity(None).unwrap();
    let cpus: Vec<_> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| cpus.is_set(*cpu))
        .collect();
    let arrived = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let threads = [0, 1].map(|side| {
            let (arrived, rounds) = (&arrived, rounds[side]);
            // A machine with one CPU still mixes them, by preemption.
            let cpu = cpus[side % cpus.len()];
            scope.spawn(move || {
                let mut only = CpuSet::new();
                only.set(cpu);
                sched_setaffinity(None, &only).unwrap();
                let mut hits = Vec::with_capacity(rounds.len());
                for (turn, some) in rounds.chunks(ROUNDS_AT_ONCE).enumerate() {
                    arrived.fetch_add(1, Ordering::AcqRel);
                    let mut spins = 0;
                    while arrived.load(Ordering::Acquire) < 2 * (turn as u32 + 1) {
                        spins += 1;
                        if spins % 1000 == 0 {
                            std::thread::yield_now();
                        }
                        std::hint::spin_loop();
                    }
                    for shots in some {
                        hits.push(shots.iter().map(|shot| shot.fire(object)).collect());
                    }
                }
                hits
            })
        });
        threads.map(|thread| thread.join().unwrap())
    })
}

/// How many flows, of all families and protocols together.
fn rounds(share: u32) -> u32 {
    match (is_emulated(), is_long()) {
        (true, _) => share / 20,
        (false, false) => share,
        (false, true) => 260_000,
    }
}

/// Family and protocol by turns.
const fn turn(n: u32) -> (bool, Proto) {
    let proto = if n & 2 == 0 { Proto::TCP } else { Proto::UDP };
    (n & 1 == 1, proto)
}

/// A client of its own for each flow.
fn client(is_v6: bool, n: u32) -> SocketAddr {
    let addr: IpAddr = if is_v6 {
        Ipv6Addr::from(0xfd00_0010_0244_0001_u128 << 64 | u128::from(n)).into()
    } else {
        Ipv4Addr::from(0x0b00_0000 + n).into()
    };
    SocketAddr::new(addr, 40_000)
}

/// The first Services share their endpoints, port 8080.
fn object(services: u32, endpoints: u32) -> (Object, World) {
    let mut world = World::new(Settings::with_hz(250));
    for is_v6 in [false, true] {
        for proto in [Proto::TCP, Proto::UDP] {
            let endpoints: Vec<_> = (1..=endpoints)
                .map(|id| (endpoint_addr(is_v6, id), 8080))
                .collect();
            for n in 1..=services {
                world.service((vip(is_v6, n), 80), proto, &endpoints);
            }
        }
    }
    let mut object = Object::load_only(world.tables.settings, &["tc_in", "tc_eg"]);
    object.write(&world.tables);
    (object, world)
}

fn service(is_v6: bool, n: u32) -> SocketAddr {
    SocketAddr::new(vip(is_v6, n), 80)
}

fn endpoint(is_v6: bool) -> SocketAddr {
    SocketAddr::new(endpoint_addr(is_v6, 1), 8080)
}

/// All halves, by client address: tier, kind, and the endpoint with the port that it sees.
type Halves = HashMap<IpAddr, Vec<(Tier, Kind, SocketAddr, u16)>>;

fn halves(object: &mut Object) -> Halves {
    let mut all = Halves::new();
    macro_rules! family {
        ($family:ty) => {
            for tier in [Tier::Established, Tier::HalfOpen] {
                for (key, half) in object.flows::<$family>(tier) {
                    let state = half.state();
                    let kind = state.marks.kind();
                    assert!(
                        key.hook == Hook::INGRESS || key.hook == Hook::EGRESS,
                        "a lock was left"
                    );
                    let (client, endpoint, seen) = if kind == Kind::DNAT {
                        let endpoint = (half.new_dst(), state.new_dport.host());
                        (key.src(), endpoint, state.new_sport.host())
                    } else {
                        (
                            key.dst(),
                            (key.src(), key.sport().host()),
                            key.dport().host(),
                        )
                    };
                    let endpoint = SocketAddr::new(IpAddr::from(endpoint.0), endpoint.1);
                    all.entry(IpAddr::from(client))
                        .or_default()
                        .push((tier, kind, endpoint, seen));
                }
            }
        };
    }
    family!(V4);
    family!(V6);
    all
}

/// Each client has one flow: where both CPUs sent it, and one half on either side says so.
fn assert_agreed(object: &mut Object, hits: &[Vec<Vec<Hit>>; 2]) {
    let mut halves = halves(object);
    for (n, (one, two)) in hits[0].iter().zip(&hits[1]).enumerate() {
        assert_eq!(one, two, "round {n}: two choices");
        let (from, to) = one
            .last()
            .unwrap()
            .unwrap_or_else(|| panic!("round {n}: dropped"));
        let mut own = halves.remove(&from.ip()).unwrap_or_default();
        own.sort_unstable_by_key(|(_, kind, ..)| kind.0);
        let flow = |kind| (Tier::HalfOpen, kind, to, from.port());
        assert_eq!([flow(Kind::DNAT), flow(Kind::UNDNAT)], *own, "round {n}");
    }
    assert!(halves.is_empty(), "left behind: {halves:?}");
}

fn counted(object: &Object, counter: Counter) -> u64 {
    object.counters()[counter as usize]
}

#[test]
fn two_cpus_that_open_the_same_new_flows_agree_on_every_one() {
    if !is_root() {
        return;
    }
    let count = rounds(20_000);
    let (mut object, _) = object(1, 8);
    let opening = |n| {
        let (is_v6, proto) = turn(n);
        vec![enters(proto, client(is_v6, n), service(is_v6, 1), Tcp::SYN)]
    };
    let shots: Vec<_> = (0..count).map(opening).collect();
    let hits = lockstep(&object, [&shots, &shots]);
    assert_agreed(&mut object, &hits);
    assert_eq!(u64::from(count), counted(&object, Counter::NewFlow));
}

#[test]
fn two_cpus_that_open_closed_flows_again_agree_on_every_one() {
    if !is_root() {
        return;
    }
    let (mut object, mut world) = object(1, 8);
    let opening = |n| {
        let (is_v6, proto) = turn(n);
        enters(proto, client(is_v6, n), service(is_v6, 1), Tcp::SYN)
    };
    for n in 0..rounds(8_000) {
        let (is_v6, proto) = turn(n);
        let (from, to) = opening(n).fire(&object).unwrap();
        if proto == Proto::TCP {
            // Every other one is established, and so ends in the other tier.
            if n & 4 == 0 {
                leaves(proto, to, from, Tcp::SYN_ACK).fire(&object).unwrap();
                let ack = enters(proto, from, service(is_v6, 1), Tcp::ACK);
                ack.fire(&object).unwrap();
            }
            let reset = enters(proto, from, service(is_v6, 1), Tcp::RST);
            reset.fire(&object).unwrap();
        }
    }
    // A datagram leaves an endpoint that changed hands.
    for endpoint in world.tables.v4.endpoints.values_mut() {
        endpoint.generation += 1;
    }
    for endpoint in world.tables.v6.endpoints.values_mut() {
        endpoint.generation += 1;
    }
    object.write(&world.tables);
    let shots: Vec<_> = (0..rounds(8_000)).map(|n| vec![opening(n)]).collect();
    let hits = lockstep(&object, [&shots, &shots]);
    assert_agreed(&mut object, &hits);
    assert_eq!(u64::from(rounds(8_000)), counted(&object, Counter::Repick));
}

#[test]
fn an_opening_to_a_service_and_one_past_it_get_two_ports_in_every_order() {
    if !is_root() {
        return;
    }
    let (mut object, _) = object(1, 1);
    let to = |target: fn(bool) -> SocketAddr| {
        (0..rounds(8_000))
            .map(|n| {
                let (is_v6, proto) = turn(n);
                vec![enters(proto, client(is_v6, n), target(is_v6), Tcp::SYN)]
            })
            .collect::<Vec<_>>()
    };
    let shots = [to(|is_v6| service(is_v6, 1)), to(endpoint)];
    let hits = lockstep(&object, [&shots[0], &shots[1]]);
    let mut halves = halves(&mut object);
    let mut moved = 0;
    for (n, (through, past)) in hits[0].iter().zip(&hits[1]).enumerate() {
        let (through, past) = (through[0].unwrap(), past[0].unwrap());
        let (is_v6, _) = turn(n as u32);
        assert_eq!([endpoint(is_v6); 2], [through.1, past.1]);
        let ports = (through.0.port(), past.0.port());
        let mut own = halves.remove(&through.0.ip()).unwrap();
        own.sort_unstable_by_key(|(_, kind, _, port)| (kind.0, *port));
        let flow = |kind, port| (Tier::HalfOpen, kind, endpoint(is_v6), port);
        // Which of them was first decides who keeps the port.
        let expected = if ports.1 == 40_000 {
            vec![
                flow(Kind::DNAT, ports.0),
                flow(Kind::UNDNAT, ports.0),
                flow(Kind::PASS, ports.1),
            ]
        } else {
            moved += 1;
            vec![
                flow(Kind::DNAT, ports.0),
                flow(Kind::DNAT, ports.1),
                flow(Kind::UNDNAT, ports.0),
                flow(Kind::UNDNAT, ports.1),
            ]
        };
        assert_eq!(expected, own, "round {n}");
        assert_ne!(ports.0, ports.1, "round {n}");
    }
    assert!(halves.is_empty(), "left behind: {halves:?}");
    println!("{moved} of {} direct flows were second", rounds(8_000));
}

#[test]
fn openings_to_two_services_with_one_endpoint_get_two_ports_in_every_order() {
    if !is_root() {
        return;
    }
    let (mut object, _) = object(2, 1);
    let to = |number| {
        (0..rounds(8_000))
            .map(|n| {
                let (is_v6, proto) = turn(n);
                vec![enters(
                    proto,
                    client(is_v6, n),
                    service(is_v6, number),
                    Tcp::SYN,
                )]
            })
            .collect::<Vec<_>>()
    };
    let shots = [to(1), to(2)];
    let hits = lockstep(&object, [&shots[0], &shots[1]]);
    let mut halves = halves(&mut object);
    for (n, (one, two)) in hits[0].iter().zip(&hits[1]).enumerate() {
        let (one, two) = (one[0].unwrap(), two[0].unwrap());
        assert_ne!(one, two, "round {n}");
        let mut own = halves.remove(&one.0.ip()).unwrap();
        own.sort_unstable_by_key(|(_, kind, _, port)| (kind.0, *port));
        let mut ports = [one.0.port(), two.0.port()];
        ports.sort_unstable();
        assert_eq!(40_000, ports[0], "round {n}: nobody kept the port");
        let flow = |kind, port| (Tier::HalfOpen, kind, one.1, port);
        let expected = [Kind::DNAT, Kind::UNDNAT].map(|kind| ports.map(|port| flow(kind, port)));
        assert_eq!(expected.as_flattened(), own, "round {n}");
    }
    assert!(halves.is_empty(), "left behind: {halves:?}");
}

fn move_while_looking(object: &Object, clients: &[u32]) {
    let flows: Vec<_> = clients
        .iter()
        .map(|&n| {
            let (is_v6, proto) = (n & 1 == 1, Proto::TCP);
            let client = client(is_v6, n);
            let first = enters(proto, client, service(is_v6, 1), Tcp::SYN);
            first.fire(object).unwrap();
            let second = enters(proto, client, service(is_v6, 2), Tcp::SYN);
            let (from, to) = second.fire(object).unwrap();
            assert_ne!(client, from);
            leaves(proto, to, from, Tcp::SYN_ACK).fire(object).unwrap();
            (client, service(is_v6, 2), from, to)
        })
        .collect();
    // The third proves that the client hears the answers; whoever looks proves nothing.
    let guess = Tcp::new("A", 101, 4711);
    let moving: Vec<_> = flows
        .iter()
        .map(|(client, service, ..)| {
            [guess, guess, Tcp::ACK, guess]
                .map(|tcp| enters(Proto::TCP, *client, *service, tcp))
                .to_vec()
        })
        .collect();
    let looking: Vec<_> = flows
        .iter()
        .map(|(client, service, from, to)| {
            let there = enters(Proto::TCP, *client, *service, guess);
            let back = leaves(Proto::TCP, *to, *from, Tcp::SYN_ACK);
            vec![back.clone(), there.clone(), back, there]
        })
        .collect();
    let hits = lockstep(object, [&moving, &looking]);
    for (n, (client, service, from, to)) in flows.iter().enumerate() {
        let (there, back) = (Some((*from, *to)), Some((*service, *client)));
        assert_eq!(vec![there; 4], hits[0][n], "{client}");
        assert_eq!(vec![back, there, back, there], hits[1][n], "{client}");
    }
}

/// While one CPU moves a flow to the established tier, another looks it up from either side. The
/// flow has another port, so that no repair could find it again.
#[test]
fn a_flow_is_found_while_it_moves_between_the_tiers() {
    if !is_root() {
        return;
    }
    let (mut object, _) = object(2, 1);
    let all: Vec<u32> = (0..rounds(8_000)).collect();
    // A few at a time: nobody waits for the last one until the first has been half open for so
    // long that it is over.
    for some in all.chunks(250) {
        move_while_looking(&object, some);
    }
    for (client, own) in halves(&mut object) {
        let established = own.iter().filter(|half| half.0 == Tier::Established);
        assert_eq!(
            (2, 4),
            (established.count(), own.len()),
            "{client}: {own:?}"
        );
    }
    for counter in [Counter::Repaired, Counter::Loose, Counter::Direct] {
        assert_eq!(0, counted(&object, counter), "{}", counter.name());
    }
}
