//! Random sequences of changes, seen by readers at every single operation.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proxy_common::abi::{Frontend, FrontendFlags};

use super::super::testing::ORIGINS;
use super::*;

mod declared;
mod planner;

use declared::{Declared, Seen, Step, created, step};
use planner::Planner;

type Reachable = BTreeSet<(IpAddr, u16)>;

/// A reader that took the value of a frontend some time ago.
struct Reader {
    family: Family,
    value: Frontend,
    since: Duration,
    found: [Vec<Found>; 2],
}

struct Run {
    planner: Planner,
    tables: Tables,
    now: Duration,
    declared: Declared,
    readers: Vec<Reader>,
    /// UDP flows: the endpoint they go to, and the slot and generation they remember.
    flows: HashMap<(u32, IpAddr, u16), (u32, u32)>,
    exact: bool,
    limits: Limits,
}

impl Run {
    fn new(limits: Limits, exact: bool) -> Self {
        Self {
            planner: Planner::new(limits),
            tables: Tables::default(),
            now: Duration::ZERO,
            declared: Declared::default(),
            readers: Vec::new(),
            flows: HashMap::new(),
            exact,
            limits,
        }
    }

    /// What the next steps come to.
    fn plan(&mut self, steps: Vec<Step>) -> Vec<Op> {
        let dirty = steps.into_iter().map(|step| self.declared.note(step));
        let dirty = dirty.collect();
        let declared = &self.declared;
        self.planner
            .update(dirty, |name| declared.of(name), self.now)
    }

    fn step(&mut self, steps: Vec<Step>) {
        let ops = self.plan(steps);
        self.follow(&ops);
        if self.planner.is_waiting() {
            self.retry();
        }
    }

    fn retry(&mut self) {
        let declared = &self.declared;
        let ops = self.planner.retry(|name| declared.of(name), self.now);
        self.follow(&ops);
    }

    fn follow(&mut self, ops: &[Op]) {
        let now = self.now;
        self.readers.retain(|reader| reader.since + GRACE > now);
        let before = self.tables.clone();
        let mut after = before.clone();
        for op in ops {
            after.apply(op);
        }
        let (was, becomes) = (all_seen(&before), all_seen(&after));
        for op in ops {
            self.tables.apply(op);
            self.check_new_readers(&was, &becomes);
            self.check_old_readers(op);
            self.check_bits();
            self.check_sources(&before, &after);
        }
        self.planner.ports.applied(self.now);
        self.check_end(&before);
        self.remember();
    }

    /// The controller dies when so many operations of the changes were carried out, and another
    /// begins with what it has left.
    fn step_and_restart(&mut self, steps: Vec<Step>, cut: prop::sample::Index) {
        let ops = self.plan(steps);
        let done = cut.index(ops.len() + 1);
        for op in ops.iter().take(done) {
            self.tables.apply(op);
        }
        self.now = Duration::ZERO;
        // No packet lasts as long as a start.
        self.readers.clear();
        let mut planner = Planner::new(self.limits);
        planner.ports.begin_at(Floors {
            service: self.planner.ports.next_number(),
            generation: 0,
        });
        planner.ports.adopt(self.tables.snapshot());
        self.planner = planner;
        let ops = complete(&mut self.planner, &self.declared);
        self.follow(&ops);
        while self.exact && self.planner.is_waiting() {
            self.now += GRACE;
            self.retry();
        }
        // A restart without a change has nothing to do.
        let mut again = Planner::new(self.limits);
        again.ports.adopt(self.tables.snapshot());
        let ops = complete(&mut again, &self.declared);
        if self.exact {
            assert_eq!(Vec::<Op>::new(), ops);
            assert!(!again.ports.has_former());
        }
    }

    /// Whoever reads now sees a frontend as it was or as it will be.
    fn check_new_readers(&self, was: &HashMap<Socket, Seen>, becomes: &HashMap<Socket, Seen>) {
        for (at, now) in all_seen(&self.tables) {
            let (was, becomes) = (was.get(&at), becomes.get(&at));
            assert!(
                was == Some(&now) || becomes == Some(&now),
                "{at}: {was:?} {now:?} {becomes:?}"
            );
        }
    }

    /// Whoever read a frontend earlier finds what it found then, or finds it dead.
    fn check_old_readers(&self, op: &Op) {
        for reader in &self.readers {
            for (origin, found) in ORIGINS.into_iter().zip(&reader.found) {
                let now = self.tables.read(reader.family, reader.value, origin);
                for (then, now) in found.iter().zip(now) {
                    match (*then, now) {
                        (_, Found::Mismatch) => {}
                        (
                            Found::Endpoint { addr, port, .. },
                            Found::Endpoint {
                                addr: now_addr,
                                port: now_port,
                                ..
                            },
                        ) => assert_eq!((addr, port), (now_addr, now_port), "{op:?}"),
                        (Found::Mismatch, Found::Endpoint { .. }) => panic!("{op:?}"),
                    }
                }
            }
        }
    }

    /// Whatever a frontend and its endpoints need of the bitmaps is there before them.
    fn check_bits(&self) {
        for (at, value) in &self.tables.frontends {
            assert!(self.tables.has_bit(Bitmap::Frontends, at.addr));
            if value.flags.has(FrontendFlags::OWN_ADDRESS) {
                assert!(self.tables.has_socket_bits(*at));
            }
            for endpoint in reachable(&self.tables, *at).into_iter().flatten() {
                assert!(self.tables.has_socket_bits(listening(*at, endpoint)));
            }
        }
    }

    /// A client that may use a filtered frontend before and after may use it all the time, and one
    /// that may not never.
    fn check_sources(&self, before: &Tables, after: &Tables) {
        for (at, value) in filtered(&self.tables) {
            let service = value.service;
            let is_in = |tables: &Tables| {
                let there = tables.frontends.get(&at);
                there.is_some_and(|there| {
                    there.service == service && there.flags.has(FrontendFlags::FILTERED)
                })
            };
            let was = is_in(before).then(|| before.sources(service));
            let becomes = is_in(after).then(|| after.sources(service));
            let now = self.tables.sources(service);
            let (least, most) = match (was, becomes) {
                (Some(was), Some(becomes)) => (&was & &becomes, &was | &becomes),
                (Some(was), None) => (was.clone(), &was | &after.sources(service)),
                (None, Some(becomes)) => (becomes.clone(), &becomes | &before.sources(service)),
                (None, None) => panic!("{at} is filtered for a moment"),
            };
            assert!(now.is_superset(&least), "{at}: {now:?}, not {least:?}");
            assert!(now.is_subset(&most), "{at}: {now:?}, not {most:?}");
        }
    }

    fn check_end(&self, before: &Tables) {
        let wanted = self.declared.seen();
        let tables = &self.tables;
        for (at, now) in all_seen(tables) {
            let value = tables.frontends[&at];
            let (seen, allowed) = wanted.get(&at).expect("a frontend that nobody wants");
            if self.exact {
                let is_filtered = value.flags.has(FrontendFlags::FILTERED);
                let sources = tables.sources(value.service);
                assert_eq!(*seen, now, "{at}");
                assert!(!is_filtered || *allowed == sources, "{at}: {sources:?}");
            }
            let useful = (!at.addr.is_loopback()).then(|| now.reachable.iter().flatten());
            for endpoint in useful.into_iter().flatten() {
                let doors = &tables.reverse[&listening(at, *endpoint)];
                assert!(doors.contains(&(at.addr, at.port)) || doors.len() == 8);
            }
            self.check_identities(before, at, value);
        }
        let mut ways_back = tables.reverse.values().flatten();
        assert!(ways_back.all(|(addr, port)| !addr.is_loopback() && *port != 0));
        if self.exact {
            assert_eq!(wanted.len(), tables.frontends.len());
            assert!(!self.planner.is_waiting());
            self.check_room();
        }
        self.check_flows();
    }

    /// Whoever stays keeps its slot and generation.
    fn check_identities(&self, before: &Tables, at: Socket, value: Frontend) {
        let old = before.frontends.get(&at);
        let Some(old) = old.filter(|old| old.service == value.service) else {
            return;
        };
        for origin in ORIGINS {
            let read = |tables: &Tables, value| tables.read(at.family(), value, origin);
            let old: HashMap<_, _> = endpoints(&read(before, *old)).collect();
            for (endpoint, slot) in endpoints(&read(&self.tables, value)) {
                assert!(old.get(&endpoint).is_none_or(|old| *old == slot));
            }
        }
    }

    /// Nothing is held that no frontend needs.
    fn check_room(&self) {
        let tables = &self.tables;
        let mut windows: HashMap<_, BTreeSet<u32>> = HashMap::new();
        let mut alive = BTreeSet::new();
        for (at, value) in &tables.frontends {
            for origin in ORIGINS {
                let found = tables.read(at.family(), *value, origin);
                let found: Vec<_> = endpoints(&found).map(|(_, (slot, _))| slot).collect();
                alive.extend(found.iter().map(|slot| (at.addr.is_ipv6(), *slot)));
                let bases = windows.entry((value.service, found)).or_default();
                bases.insert(value.set(origin).base());
            }
        }
        assert!(
            windows.values().all(|bases| bases.len() == 1),
            "{windows:?}"
        );
        for ((family, slot), record) in &tables.records {
            let is_listed = alive.contains(&(*family == Family::V6, *slot));
            assert_eq!(
                is_listed,
                record.flags.has(EndpointFlags::ALIVE),
                "{record:?}"
            );
        }
        let with_ranges: BTreeSet<_> = tables.sources.iter().map(|(number, _)| *number).collect();
        let filtered: BTreeSet<_> = filtered(tables).map(|(_, value)| value.service).collect();
        assert!(with_ranges.is_subset(&filtered));
    }

    /// A flow whose slot still shows its generation goes to its own endpoint, and that serves.
    fn check_flows(&self) {
        let serving: BTreeSet<_> = self
            .declared
            .wanted()
            .into_iter()
            .flat_map(|port| port.endpoints)
            .map(|endpoint| (endpoint.addr, endpoint.port))
            .collect();
        for (&(service, addr, port), &(slot, generation)) in &self.flows {
            let record = self.tables.records[&(Family::of(addr), slot)];
            if record.generation == generation {
                assert_eq!(
                    (service, addr, port),
                    (record.service, record.addr, record.port)
                );
                assert!(
                    !self.exact || serving.contains(&(addr, port)),
                    "{addr}:{port}"
                );
            }
        }
    }

    fn remember(&mut self) {
        for (at, value) in &self.tables.frontends {
            let found = ORIGINS.map(|origin| self.tables.read(at.family(), *value, origin));
            for ((addr, port), flow) in found.iter().flat_map(|found| endpoints(found)) {
                self.flows.insert((value.service, addr, port), flow);
            }
            self.readers.push(Reader {
                family: at.family(),
                value: *value,
                since: self.now,
                found,
            });
        }
    }
}

fn complete(planner: &mut Planner, declared: &Declared) -> Vec<Op> {
    planner.complete(declared.names(), |name| declared.of(name), Duration::ZERO)
}

fn reachable(tables: &Tables, at: Socket) -> [Reachable; 2] {
    ORIGINS.map(|origin| tables.reachable_from(at, origin).unwrap())
}

fn all_seen(tables: &Tables) -> HashMap<Socket, Seen> {
    let seen = |(at, value): (&Socket, &Frontend)| {
        let seen = Seen {
            reachable: reachable(tables, *at),
            flags: value.flags,
            affinity_timeout: value.affinity_timeout,
        };
        (*at, seen)
    };
    tables.frontends.iter().map(seen).collect()
}

fn filtered(tables: &Tables) -> impl Iterator<Item = (Socket, Frontend)> {
    let all = tables.frontends.iter().map(|(at, value)| (*at, *value));
    all.filter(|(_, value)| value.flags.has(FrontendFlags::FILTERED))
}

/// Where an endpoint of a frontend listens.
const fn listening(at: Socket, (addr, port): (IpAddr, u16)) -> Socket {
    let proto = at.proto;
    Socket { addr, port, proto }
}

fn endpoints(found: &[Found]) -> impl Iterator<Item = ((IpAddr, u16), (u32, u32))> {
    found.iter().filter_map(|found| match *found {
        Found::Endpoint {
            addr,
            port,
            slot,
            generation,
            ..
        } => Some(((addr, port), (slot, generation))),
        Found::Mismatch => None,
    })
}

fn batches() -> impl Strategy<Value = Vec<(Vec<Step>, u8)>> {
    prop::collection::vec((prop::collection::vec(step(), 1..4), 0u8..4), 1..40)
}

fn run(mut run: Run, batches: Vec<(Vec<Step>, u8)>) {
    for (steps, pause) in batches {
        run.now += GRACE * pause.into() / 2;
        run.step(steps);
    }
}

/// Few cases where nobody asks for more: this ring takes no longer than a compiler.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let is_asked = std::env::var_os("PROPTEST_CASES").is_some();
    ProptestConfig {
        cases: if is_asked { default.cases } else { 64 },
        failure_persistence: None,
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn with_room_every_frontend_leads_to_exactly_the_endpoints_of_its_best_claim(batches in batches()) {
        run(Run::new(Limits::default(), true), batches);
    }

    #[test]
    fn a_controller_that_dies_at_any_operation_is_followed_by_one_that_goes_on(
        batches in batches(),
        cuts in prop::collection::vec(prop::option::of(any::<prop::sample::Index>()), 40),
    ) {
        let mut run = Run::new(Limits::default(), true);
        for ((steps, pause), cut) in batches.into_iter().zip(cuts) {
            run.now += GRACE * pause.into() / 2;
            match cut {
                Some(cut) => run.step_and_restart(steps, cut),
                None => run.step(steps),
            }
        }
    }

    #[test]
    fn without_room_no_reader_is_led_astray(
        batches in batches(),
        frontends in 1u32..6,
        endpoints in 1u32..12,
        set_slots in 1u32..24,
    ) {
        run(Run::new(limits(frontends, endpoints, set_slots), false), batches);
    }
}
