//! Room in the flow tables.

use std::net::{Ipv4Addr, SocketAddr};

use kube_lottery::dataplane::LogLevel;
use proxy_common::abi::{Settings, Tier, V4};
use proxy_common::datapath::memory::world::{World, endpoint_addr, vip};
use proxy_common::net::Proto;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::frames::{Tcp, frame};
use super::is_root;
use super::object::Object;
use super::old::for_this_kernel;

/// Entries that there is room for.
const ROOM: u32 = 1 << 14;

/// Field report B185: tables whose room is shared out among CPUs evict as soon as the busiest one
/// has used up its share.
#[test]
fn nothing_is_evicted_while_a_table_is_sixty_percent_full_by_one_cpu() {
    if !is_root() {
        return;
    }
    let (bytes, settings) = for_this_kernel(Settings::with_hz(250));
    let mut world = World::new(settings);
    let service = (vip(false, 1), 80);
    world.service(service, Proto::TCP, &[(endpoint_addr(false, 1), 8080)]);
    let mut object = Object::load_with(&bytes, settings, LogLevel::Off, ROOM, &["tc_in"]);
    object.write(&world.tables);
    let allowed = sched_getaffinity(None).unwrap();
    let one = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
    let mut only = CpuSet::new();
    only.set(one.unwrap());
    // A thread of its own: the harness uses this one for other tests.
    let flows = ROOM * 6 / 10 / 2;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sched_setaffinity(None, &only).unwrap();
            for n in 0..flows {
                let client = SocketAddr::new(Ipv4Addr::from(0x0b00_0000 + n).into(), 40_000);
                let bytes = frame(Proto::TCP, client, service.into(), Tcp::SYN);
                object.run("tc_in", &bytes).unwrap();
            }
        });
    });
    let halves = object.flows::<V4>(Tier::HalfOpen).len();
    assert_eq!(2 * flows as usize, halves);
}
