//! Endpoint sets that change while flows are opened.

use kube_lottery::dataplane::Plain;
use proxy_common::abi::{EndpointSet, Family, Frontend, Slot};
use proxy_common::datapath::memory::{FamilyMaps, MemoryTables};
use proxy_common::net::{Ip4, Ip6, Port};

use super::*;

/// Endpoints in each of the two sets.
const EACH: u32 = 8;
/// What a foreign slot names.
const STRANGER: u32 = 2 * EACH + 1;

/// One Service whose endpoints are the first eight or the next eight, by turns, and another
/// Service, which gets the window that is not used. What is drawn must be of a set that was the
/// Service's at some moment of the packet's run.
#[test]
fn what_is_drawn_while_sets_change_is_of_the_set_before_or_after() {
    if !is_root() {
        return;
    }
    change_under_load::<V4>("FRONTENDS4", |addr, port| {
        let IpAddr::V4(addr) = addr else {
            unreachable!()
        };
        V4::frontend_key(Ip4::from(addr), port, Proto::UDP)
    });
    change_under_load::<V6>("FRONTENDS6", |addr, port| {
        let IpAddr::V6(addr) = addr else {
            unreachable!()
        };
        V6::frontend_key(Ip6::from(addr), port, Proto::UDP)
    });
}

fn change_under_load<F: Family>(frontends: &str, key: impl Fn(IpAddr, Port) -> F::FrontendKey)
where
    MemoryTables: Holds<F>,
{
    let is_v6 = F::IS_V6;
    let mut world = World::new(Settings::with_hz(250));
    let mut add = |n, ids: std::ops::RangeInclusive<u32>| {
        let endpoints: Vec<_> = ids.map(|id| (endpoint_addr(is_v6, id), 8080)).collect();
        world.service((vip(is_v6, n), 80), Proto::UDP, &endpoints)
    };
    let own = add(1, 1..=EACH);
    add(2, EACH + 1..=2 * EACH);
    let other = add(3, STRANGER..=STRANGER);
    // The second Service's endpoints are the first one's as well.
    let tables = &mut world.tables;
    for id in EACH + 1..=2 * EACH {
        tables.give(id, own);
    }
    let windows = [1..=EACH, EACH + 1..=2 * EACH].map(|ids| {
        ids.map(|endpoint| Slot {
            endpoint,
            service: own,
        })
        .collect::<Vec<_>>()
    });
    let stranger = Slot {
        endpoint: STRANGER,
        service: other,
    };
    let key = key(vip(is_v6, 1), Port::new(80));
    let value = *tables.maps().frontends.get(&key).unwrap();
    let mut object = Object::load_only(tables.settings, &["tc_in"]);
    object.write(tables);
    let mut doors = object.take_hash::<F::FrontendKey, Frontend>(frontends);
    let mut sets = object.take_array::<Slot>("SETS");

    // Counts up: 0 the first set, 1 towards the second, 2 the second, 3 towards the first, ...
    let phase = AtomicU32::new(0);
    let count = rounds(20_000);
    let (mut switches, mut stale) = (0, 0);
    std::thread::scope(|scope| {
        let (object, phase) = (&object, &phase);
        let opener = scope.spawn(move || {
            let mut drawn = Vec::with_capacity(count as usize);
            for n in 0..count {
                let opening = enters(Proto::UDP, client(is_v6, n), service(is_v6, 1), Tcp::SYN);
                let before = phase.load(Ordering::SeqCst);
                let hit = opening.fire(object);
                drawn.push((before, hit, phase.load(Ordering::SeqCst)));
            }
            drawn
        });
        while !opener.is_finished() {
            let now = phase.load(Ordering::SeqCst);
            let (from, to) = if now % 4 == 0 { (0_u32, 1) } else { (1, 0) };
            for (at, slot) in windows[to].iter().enumerate() {
                let index = to as u32 * EACH + at as u32;
                sets.set(index, Plain(*slot), 0).unwrap();
            }
            phase.fetch_add(1, Ordering::SeqCst);
            let set = EndpointSet::new(to as u32 * EACH, EACH);
            let value = Frontend {
                inside: set,
                outside: set,
                ..value
            };
            doors.insert(Plain(key), Plain(value), 0).unwrap();
            phase.fetch_add(1, Ordering::SeqCst);
            // Sooner than the controller would.
            for at in 0..EACH {
                sets.set(from * EACH + at, Plain(stranger), 0).unwrap();
            }
            switches += 1;
        }
        for (before, hit, after) in opener.join().unwrap() {
            let Some((_, to)) = hit else {
                stale += 1;
                continue;
            };
            let may_be_first = (before..=after).any(|phase| phase % 4 != 2);
            let may_be_second = (before..=after).any(|phase| phase % 4 != 0);
            let is_of = |ids: std::ops::RangeInclusive<u32>| {
                ids.into_iter()
                    .any(|id| endpoint_addr(is_v6, id) == to.ip())
            };
            let is_right =
                may_be_first && is_of(1..=EACH) || may_be_second && is_of(EACH + 1..=2 * EACH);
            assert!(is_right, "{to} in the phases {before} to {after}");
        }
    });
    println!("{switches} changes under {count} openings, {stale} met two of them");
    assert!(switches > 10, "{switches} changes only");
    // Two changes within one packet: possible, if its CPU was taken away.
    assert_eq!(u64::from(stale), counted(&object, Counter::DropStale));
    assert!(stale < count / 100, "{stale}");
}

/// The tables of one family.
trait Holds<F: Family> {
    fn maps(&self) -> &FamilyMaps<F>;
    /// Gives an endpoint to a service port.
    fn give(&mut self, id: u32, service: u32);
}

macro_rules! holds {
    ($family:ident, $field:ident) => {
        impl Holds<$family> for MemoryTables {
            fn maps(&self) -> &FamilyMaps<$family> {
                &self.$field
            }

            fn give(&mut self, id: u32, service: u32) {
                self.$field.endpoints.get_mut(&id).unwrap().service = service;
            }
        }
    };
}

holds!(V4, v4);
holds!(V6, v6);
