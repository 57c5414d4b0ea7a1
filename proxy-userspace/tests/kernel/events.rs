//! What the programs tell, and that they tell it to nobody in vain.

use proxy_common::abi::{Counter, EventKind, Settings, Watch, What};
use proxy_common::datapath::lifetime;
use proxy_common::datapath::memory::MemoryTables;
use proxy_common::datapath::memory::world::{World, client_addr, endpoint_addr, vip};
use proxy_common::net::Proto;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use super::frames::{Tcp, frame};
use super::is_root;
use super::object::Object;

/// Bits of all kinds.
fn all() -> u32 {
    EventKind::ALL.iter().map(|kind| kind.bit()).sum()
}

/// Listens to all that happens, on the host as in the kernel.
pub(super) fn listen(object: &mut Object, tables: &mut MemoryTables) {
    let (kinds, until, per_second) = (all(), u32::MAX, u32::MAX);
    object.monitor().listen(kinds, until, per_second).unwrap();
    tables.watch = Watch {
        until,
        kinds,
        per_second,
        pad: 0,
    };
}

/// A kernel with a Service that has an endpoint and one that has none; all on one CPU.
fn object(now: u32) -> Object {
    let mut settings = Settings::with_hz(250);
    settings.test_sources = 1;
    let mut world = World::new(settings);
    for is_v6 in [false, true] {
        let endpoint = (endpoint_addr(is_v6, 1), 8080);
        world.service((vip(is_v6, 1), 80), Proto::UDP, &[endpoint]);
        world.service((vip(is_v6, 2), 80), Proto::UDP, &[]);
    }
    let mut object = Object::load_only(settings, &["tc_in", "sweeper"]);
    object.write(&world.tables);
    object.set_sources(now, 1);
    let mut own = CpuSet::new();
    own.set(sched_getcpu());
    sched_setaffinity(None, &own).unwrap();
    object
}

/// Sends so many datagrams from different ports to the `n`th Service.
fn send(object: &Object, n: u32, count: u16) {
    for port in 0..count {
        let is_v6 = port % 2 == 1;
        let from = (client_addr(is_v6, 1), 1000 + port);
        let bytes = frame(
            Proto::UDP,
            from.into(),
            (vip(is_v6, n), 80).into(),
            Tcp::SYN,
        );
        object.run("tc_in", &bytes).unwrap();
    }
}

fn cpus() -> u32 {
    aya::util::online_cpus().unwrap().len() as u32
}

#[test]
fn nothing_is_told_while_nobody_listens_and_only_so_much_while_somebody_does() {
    if !is_root() {
        return;
    }
    let begin = 1_000;
    let mut object = object(begin);
    send(&object, 2, 20);
    assert!(object.events().is_empty());
    assert_eq!((0, 0), lost(&mut object));

    // Three a second on each CPU.
    let until = begin + 3;
    object.monitor().listen(all(), until, 3 * cpus()).unwrap();
    send(&object, 2, 20);
    let events = object.events();
    assert_eq!(3, events.len());
    let expected = What::dropped(Counter::DropNoEndpoint);
    assert!(
        events.iter().all(|event| event.what == expected),
        "{events:?}"
    );
    assert_eq!((17, 0), lost(&mut object));
    object.set_sources(begin + 1, 1);
    send(&object, 2, 2);
    assert_eq!(2, object.events().len());

    // Other kinds are not what is listened for, and the time is over at last.
    object
        .monitor()
        .listen(EventKind::New.bit(), until, 1 << 20)
        .unwrap();
    send(&object, 2, 5);
    assert!(object.events().is_empty());
    send(&object, 1, 5);
    let events = object.events();
    assert_eq!(
        [What::OPENED; 5],
        *events.iter().map(|event| event.what).collect::<Vec<_>>()
    );
    object.set_sources(until, 1);
    send(&object, 1, 40);
    object.set_sources(until - 1, 1);
    object.monitor().silence().unwrap();
    send(&object, 2, 40);
    assert!(object.events().is_empty());
    assert_eq!((17, 0), lost(&mut object));
}

#[test]
fn a_ring_that_nobody_empties_costs_no_packet_and_what_is_lost_is_counted() {
    if !is_root() {
        return;
    }
    let mut object = object(1_000);
    object.monitor().listen(all(), u32::MAX, u32::MAX).unwrap();
    let sent: u64 = 10_000;
    send(&object, 2, sent as u16);
    let counted = object.counters()[Counter::DropNoEndpoint as usize];
    assert_eq!(sent, counted);
    let told = object.events().len() as u64;
    let (limited, full) = lost(&mut object);
    println!("{told} of {sent} events fit into the ring buffer");
    assert_eq!((0, sent), (limited, told + full));
    assert!(told > 4_000 && full > 0, "{told}");
    // It goes on where there is room again.
    send(&object, 2, 10);
    assert_eq!(10, object.events().len());
}

#[test]
fn a_flow_that_is_swept_is_told_of_once() {
    if !is_root() {
        return;
    }
    let begin = 1_000;
    let mut object = object(begin);
    object.monitor().listen(all(), u32::MAX, u32::MAX).unwrap();
    send(&object, 1, 10);
    assert_eq!(10, object.events().len());
    let later = begin + lifetime::UDP_UNREPLIED + 1;
    object.set_sources(later, 1);
    let swept = object.sweeper().round(later, false).unwrap();
    assert_eq!(20, swept.removed);
    let events = object.events();
    assert_eq!(10, events.len());
    assert!(
        events.iter().all(|event| event.what == What::EXPIRED),
        "{events:?}"
    );
    let mut clients: Vec<_> = events
        .iter()
        .map(|event| event.client_port.host())
        .collect();
    clients.sort_unstable();
    assert_eq!((1000..1010).collect::<Vec<_>>(), clients);
}

fn lost(object: &mut Object) -> (u64, u64) {
    let lost = object.monitor().lost().unwrap();
    (lost.limited, lost.full)
}
