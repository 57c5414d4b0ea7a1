//! Random sequences of changes, seen by readers at every single operation.

use std::collections::{BTreeSet, HashMap};

use proxy_common::abi::Frontend;

use super::*;
use crate::model::{EndpointSlice, Service};

mod changes;
mod declared;

use changes::{Step, change, step};
use declared::Declared;

type Reachable = BTreeSet<(IpAddr, u16)>;

/// A reader that took the value of a frontend some time ago.
struct Reader {
    family: Family,
    value: Frontend,
    since: Duration,
    found: Vec<Found>,
}

struct Run {
    world: World,
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
            world: World::new(limits),
            declared: Declared::default(),
            readers: Vec::new(),
            flows: HashMap::new(),
            exact,
            limits,
        }
    }

    fn step(&mut self, changes: Vec<Change>) {
        for change in &changes {
            self.declared.note(change);
        }
        let outcome = self.world.plan.update(changes, self.world.now);
        self.follow(&outcome);
        if self.world.plan.is_waiting() {
            let outcome = self.world.plan.retry(self.world.now);
            self.follow(&outcome);
        }
    }

    fn follow(&mut self, outcome: &Outcome) {
        let now = self.world.now;
        self.readers.retain(|reader| reader.since + GRACE > now);
        let before = self.tables().clone();
        let mut after = before.clone();
        for op in &outcome.ops {
            after.apply(op);
        }
        let (was, becomes) = (all_reachable(&before), all_reachable(&after));
        for op in &outcome.ops {
            self.world.tables.apply(op);
            self.check_new_readers(&was, &becomes);
            self.check_old_readers(op);
        }
        self.world.plan.applied(self.world.now);
        self.check_end(&before);
        self.remember();
    }

    /// The controller dies when so many operations of the changes were carried out, and another
    /// begins with what it has left.
    fn step_and_restart(&mut self, changes: Vec<Change>, cut: prop::sample::Index) {
        for change in &changes {
            self.declared.note(change);
        }
        let outcome = self.world.plan.update(changes, self.world.now);
        let done = cut.index(outcome.ops.len() + 1);
        for op in outcome.ops.iter().take(done) {
            self.world.tables.apply(op);
        }
        self.world.now = Duration::ZERO;
        // No packet lasts as long as a start.
        self.readers.clear();
        let mut plan = Plan::new("one", self.limits);
        plan.begin_at(Floors {
            service: self.world.plan.next_number(),
            generation: 0,
        });
        plan.adopt(self.tables().snapshot());
        self.world.plan = plan;
        let outcome = self
            .world
            .plan
            .complete(self.declared.all(), Duration::ZERO);
        self.follow(&outcome);
        while self.exact && self.world.plan.is_waiting() {
            self.world.now += GRACE;
            let outcome = self.world.plan.retry(self.world.now);
            self.follow(&outcome);
        }
        // A restart without a change has nothing to do.
        let mut again = Plan::new("one", self.limits);
        again.adopt(self.tables().snapshot());
        let outcome = again.complete(self.declared.all(), Duration::ZERO);
        if self.exact {
            assert_eq!(Vec::<Op>::new(), outcome.ops);
        }
    }

    const fn tables(&self) -> &Tables {
        &self.world.tables
    }

    /// Whoever reads now sees a frontend as it was or as it will be.
    fn check_new_readers(
        &self,
        was: &HashMap<Socket, Reachable>,
        becomes: &HashMap<Socket, Reachable>,
    ) {
        for (at, now) in all_reachable(self.tables()) {
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
            let now = self.tables().read(reader.family, reader.value);
            for (then, now) in reader.found.iter().zip(now) {
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

    fn check_end(&self, before: &Tables) {
        let wanted = self.declared.reachable();
        let tables = self.tables();
        for (at, value) in &tables.frontends {
            let claims = wanted.get(at).expect("a frontend that nobody wants");
            let now = tables.reachable(*at).unwrap();
            if self.exact {
                assert!(claims.contains(&now), "{at}: {now:?} of {claims:?}");
            }
            assert!(tables.has_bit(Bitmap::Frontends, at.addr));
            for (addr, port) in &now {
                let endpoint = Socket {
                    addr: *addr,
                    port: *port,
                    proto: at.proto,
                };
                assert!(tables.has_socket_bits(endpoint));
                assert!(tables.reverse[&endpoint].contains(&(at.addr, at.port)));
            }
            // Whoever stays keeps its slot and generation.
            let old = before
                .frontends
                .get(at)
                .filter(|old| old.service == value.service);
            if let Some(old) = old {
                let old: HashMap<_, _> = endpoints(&before.read(at.family(), *old)).collect();
                for (endpoint, slot) in endpoints(&tables.read(at.family(), *value)) {
                    assert!(old.get(&endpoint).is_none_or(|old| *old == slot));
                }
            }
        }
        if self.exact {
            assert_eq!(wanted.len(), tables.frontends.len());
            assert!(!self.world.plan.is_waiting());
        }
        self.check_flows();
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
            let record = self.tables().records[&(Family::of(addr), slot)];
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
        for (at, value) in &self.world.tables.frontends {
            let found = self.world.tables.read(at.family(), *value);
            for ((addr, port), flow) in endpoints(&found) {
                self.flows.insert((value.service, addr, port), flow);
            }
            self.readers.push(Reader {
                family: at.family(),
                value: *value,
                since: self.world.now,
                found,
            });
        }
    }
}

fn all_reachable(tables: &Tables) -> HashMap<Socket, Reachable> {
    let all = tables.frontends.keys();
    all.map(|at| (*at, tables.reachable(*at).unwrap()))
        .collect()
}

fn endpoints(found: &[Found]) -> impl Iterator<Item = ((IpAddr, u16), (u32, u32))> {
    found.iter().filter_map(|found| match *found {
        Found::Endpoint {
            addr,
            port,
            slot,
            generation,
        } => Some(((addr, port), (slot, generation))),
        Found::Mismatch => None,
    })
}

fn batches() -> impl Strategy<Value = Vec<(Vec<Step>, u8)>> {
    prop::collection::vec((prop::collection::vec(step(), 1..4), 0u8..4), 1..40)
}

fn run(mut run: Run, batches: Vec<(Vec<Step>, u8)>) {
    for (steps, pause) in batches {
        run.world.now += GRACE * pause.into() / 2;
        run.step(steps.into_iter().map(change).collect());
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
    fn with_room_every_frontend_leads_to_exactly_its_endpoints(batches in batches()) {
        run(Run::new(Limits::default(), true), batches);
    }

    #[test]
    fn a_controller_that_dies_at_any_operation_is_followed_by_one_that_goes_on(
        batches in batches(),
        cuts in prop::collection::vec(prop::option::of(any::<prop::sample::Index>()), 40),
    ) {
        let mut run = Run::new(Limits::default(), true);
        for ((steps, pause), cut) in batches.into_iter().zip(cuts) {
            run.world.now += GRACE * pause.into() / 2;
            let changes = steps.into_iter().map(change).collect();
            match cut {
                Some(cut) => run.step_and_restart(changes, cut),
                None => run.step(changes),
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
