//! What happens where there is no room.

use super::*;

// Field report B180.
#[test]
fn what_fits_is_served_and_the_rest_is_named_and_served_when_there_is_room() {
    let mut world = World::new(limits(1, 3, 16));
    let outcome = world.change(vec![
        set_service("a", "10.96.0.1"),
        set_slice("a", &["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4"]),
        set_service("b", "10.96.0.2"),
    ]);
    let expected = [
        "default/a: port /TCP: 1 IPv4 endpoints are left out: all 3 slots are in use \
         (--max-endpoints)",
        "default/b: 10.96.0.2:80/TCP is not served: all 1 IPv4 frontends are in use \
         (--max-frontends)",
    ];
    assert_eq!(expected, *messages(&outcome));
    assert_eq!(3, world.reachable("10.96.0.1").len());
    assert!(world.plan.is_waiting());

    world.change(vec![set_slice("a", &["10.1.0.3", "10.1.0.4"])]);
    assert_eq!(["10.1.0.3:8080"], *world.reachable("10.96.0.1"));
    world.now += GRACE;
    assert!(world.retry().notices.is_empty());
    assert_eq!(
        ["10.1.0.3:8080", "10.1.0.4:8080"],
        *world.reachable("10.96.0.1")
    );

    world.change(vec![gone("a")]);
    world.retry();
    assert!(world.reachable("10.96.0.2").is_empty());
    assert!(!world.plan.is_waiting());
}

#[test]
fn a_set_without_room_stays_as_it_is_until_there_is_some() {
    let mut world = World::new(limits(4, 16, 4));
    world.change(vec![
        set_service("web", "10.96.0.1"),
        set_slice("web", &["10.1.0.1", "10.1.0.2"]),
    ]);
    let outcome = world.change(vec![set_slice(
        "web",
        &["10.1.0.2", "10.1.0.3", "10.1.0.4"],
    )]);
    let expected = "default/web: port /TCP: the former IPv4 endpoints stay: no room for a set of \
                    3 (--max-endpoints)";
    assert_eq!([expected], *messages(&outcome));
    assert!(outcome.ops.is_empty());
    assert_eq!(
        ["10.1.0.1:8080", "10.1.0.2:8080"],
        *world.reachable("10.96.0.1")
    );

    world.change(vec![set_slice("web", &["10.1.0.2", "10.1.0.3"])]);
    assert_eq!(
        ["10.1.0.2:8080", "10.1.0.3:8080"],
        *world.reachable("10.96.0.1")
    );
    assert!(!world.plan.is_waiting());
}

// Field report B182.
#[test]
fn a_service_port_has_at_most_65535_endpoints() {
    let mut world = World::new(Limits::default());
    let endpoints: Vec<_> = (0..70_000u32)
        .map(|n| Endpoint {
            address: IpAddr::from((0x0a00_0000 + n).to_be_bytes()),
            ..endpoint("10.0.0.1")
        })
        .collect();
    let all = slice("web", "a", HTTP, &endpoints);
    let outcome = world.plan.update(
        [
            set_service("web", "10.96.0.1"),
            Change::Set(Object::Slice(all)),
        ],
        Duration::ZERO,
    );
    let expected = "default/web: port /TCP: 4465 IPv4 endpoints are left out: a Service port has \
                    at most 65535";
    assert_eq!([expected], *messages(&outcome));
    assert_eq!(65_535, world.plan.summary().endpoints);
}
