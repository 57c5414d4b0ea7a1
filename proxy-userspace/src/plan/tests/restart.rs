//! A plan that begins with what another has left in the tables.

use super::*;

/// Another controller begins with the tables as they are.
fn restart(world: &mut World) {
    let mut plan = Plan::new("one", Limits::default());
    plan.adopt(world.tables.snapshot());
    world.plan = plan;
    world.now = Duration::ZERO;
}

fn complete(world: &mut World, changes: Vec<Change>) -> Outcome {
    let outcome = world.plan.complete(changes, world.now);
    world.carry_out(outcome)
}

fn two_services() -> Vec<Change> {
    vec![
        set_service("web", "10.96.0.1"),
        set_slice("web", &["10.1.0.1", "10.1.0.2"]),
        set_service("other", "10.96.0.2"),
        set_slice("other", &["10.1.0.1"]),
    ]
}

#[test]
fn nothing_is_written_where_nothing_has_changed() {
    let mut world = World::new(Limits::default());
    world.change(two_services());
    restart(&mut world);
    let outcome = complete(&mut world, two_services());
    assert_eq!((Vec::<Op>::new(), 0), (outcome.ops, outcome.retired));
    assert!(!world.plan.has_former());
    let summary = world.plan.summary();
    assert_eq!(
        (2, 2, 3),
        (summary.services, summary.frontends, summary.endpoints)
    );
}

#[test]
fn slots_generations_and_numbers_stay() {
    let mut world = World::new(Limits::default());
    world.change(two_services());
    world.change(vec![set_slice("web", &["10.1.0.2"])]);
    world.change(two_services());
    let before = world.slot("10.96.0.1", "10.1.0.1");
    assert_eq!(1, before.unwrap().1);
    let number = world.tables.frontends[&at("10.96.0.1")].service;
    restart(&mut world);
    let mut changes = two_services();
    changes.push(set_slice("web", &["10.1.0.1", "10.1.0.3"]));
    complete(&mut world, changes);
    assert_eq!(
        ["10.1.0.1:8080", "10.1.0.3:8080"],
        *world.reachable("10.96.0.1")
    );
    assert_eq!(before, world.slot("10.96.0.1", "10.1.0.1"));
    assert_eq!(number, world.tables.frontends[&at("10.96.0.1")].service);
}

#[test]
fn what_nobody_wants_goes_once_all_is_known_and_not_before() {
    let mut world = World::new(Limits::default());
    world.change(two_services());
    let (slot, generation) = world.slot("10.96.0.2", "10.1.0.1").unwrap();
    restart(&mut world);
    let web = two_services().into_iter().take(2).collect::<Vec<_>>();
    assert_eq!(Vec::<Op>::new(), world.change(web.clone()).ops);
    assert!(world.plan.has_former());
    assert_eq!(["10.1.0.1:8080"], *world.reachable("10.96.0.2"));
    let outcome = complete(&mut world, web);
    assert_eq!(1, outcome.retired);
    assert_eq!(None, world.tables.reachable(at("10.96.0.2")));
    let record = world.tables.records[&(Family::V4, slot)];
    assert_eq!(generation + 1, record.generation);
}

#[test]
fn endpoints_that_nothing_declares_stay_until_all_is_known() {
    let mut world = World::new(Limits::default());
    world.change(two_services());
    restart(&mut world);
    // As with a slice in a file that cannot be used.
    let known = vec![
        set_service("web", "10.96.0.1"),
        set_service("other", "10.96.0.2"),
        set_slice("other", &["10.1.0.3"]),
    ];
    world.change(known);
    assert_eq!(
        ["10.1.0.1:8080", "10.1.0.2:8080"],
        *world.reachable("10.96.0.1")
    );
    assert_eq!(
        ["10.1.0.1:8080", "10.1.0.3:8080"],
        *world.reachable("10.96.0.2")
    );
    // What was declared since goes at once when it is declared no more, or cannot serve.
    world.change(vec![set_slice("web", &["10.1.0.2"])]);
    let idle = Endpoint {
        ready: false,
        serving: false,
        ..endpoint("10.1.0.2")
    };
    let idle = slice("web", "a", HTTP, &[idle]);
    world.change(vec![Change::Set(Object::Slice(idle))]);
    assert_eq!(["10.1.0.1:8080"], *world.reachable("10.96.0.1"));
    assert!(world.plan.has_former());
    complete(&mut world, vec![set_slice("web", &["10.1.0.2"])]);
    assert_eq!(["10.1.0.2:8080"], *world.reachable("10.96.0.1"));
    assert_eq!(["10.1.0.3:8080"], *world.reachable("10.96.0.2"));
    assert!(!world.plan.has_former());
}

#[test]
fn an_endpoint_that_only_keeps_its_flows_is_known_again() {
    let mut world = World::new(Limits::default());
    let with = |serving| {
        let ending = Endpoint {
            ready: false,
            serving,
            terminating: true,
            ..endpoint("10.1.0.1")
        };
        let all = [ending, endpoint("10.1.0.2")];
        Change::Set(Object::Slice(slice("web", "a", HTTP, &all)))
    };
    world.change(two_services());
    let (slot, generation) = world.slot("10.96.0.1", "10.1.0.1").unwrap();
    world.change(vec![with(true)]);
    restart(&mut world);
    let mut changes = two_services();
    changes.push(with(true));
    assert_eq!(Vec::<Op>::new(), complete(&mut world, changes).ops);
    world.change(vec![with(false)]);
    let record = world.tables.records[&(Family::V4, slot)];
    assert_eq!(generation + 1, record.generation);
}

#[test]
fn numbers_begin_where_they_are_told_to() {
    let mut world = World::new(Limits::default());
    world.plan.begin_at(Floors {
        service: 9,
        generation: 4,
    });
    world.change(two_services());
    let numbers: BTreeSet<_> = world
        .tables
        .frontends
        .values()
        .map(|value| value.service)
        .collect();
    assert_eq!(BTreeSet::from([9, 10]), numbers);
    assert_eq!(4, world.slot("10.96.0.1", "10.1.0.1").unwrap().1);
}
