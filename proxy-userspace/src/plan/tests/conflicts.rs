//! Several Services that want one address and port.

use super::*;

/// A Service that was made at this time, at an address that it shares.
fn shared(name: &str, ip: &str, created: i64) -> Change {
    let mut service = service(name, ip, &[("", Protocol::Tcp, 80)]);
    service.external_ips = vec!["192.0.2.1".parse().unwrap()];
    service.created = Some(created);
    Change::Set(Object::Service(service.into()))
}

// B096
#[test]
fn the_oldest_of_several_services_has_what_they_all_want_in_whatever_order_they_are_seen() {
    let all = [
        shared("a", "10.96.0.1", 30),
        shared("b", "10.96.0.2", 20),
        shared("c", "10.96.0.3", 10),
    ];
    let losers = |plan: &Plan| {
        let all = plan.view(|_| true).into_iter();
        let losers = all.filter(|service| !service.notices.is_empty());
        let names: Vec<_> = losers.map(|own| own.name.name().to_owned()).collect();
        names.concat()
    };
    // One by one, and all at once as after a restart.
    let mut one_by_one = World::new(Limits::default());
    for change in all.iter().rev() {
        one_by_one.change(vec![change.clone()]);
    }
    let mut at_once = World::new(Limits::default());
    at_once.change(all.to_vec());
    for mut world in [one_by_one, at_once] {
        assert_eq!("ab", losers(&world.plan));
        for (name, left) in [("c", "a"), ("b", "")] {
            let name = ObjectName::new("default", name);
            world.change(vec![Change::Gone(ObjectKey::Service(name))]);
            assert_eq!(left, losers(&world.plan));
        }
    }
}
