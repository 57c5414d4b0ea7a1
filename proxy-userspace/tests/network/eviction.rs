//! Tables that lose halves of flows all the time, under traffic.

use std::thread;
use std::time::Duration;

use proxy_common::lottery::XorShift;
use xtask::lab::Family;
use xtask::lab::client::Connection;
use xtask::lab::manifest::Service;

use super::pinned::Live;
use super::traffic;
use super::world::{World, is_long};

/// Every tenth of a second one flow in five loses one of its halves, which is ten times as many as
/// a table that is much too small would take. Flows that are open are neither reset nor moved, and
/// what they carry arrives.
#[test]
fn open_flows_do_not_notice_that_halves_of_them_are_evicted() {
    let Some(mut world) = World::new(2) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (near, _near) = world.servers(1, 2);
    let (far, _far) = world.servers(2, 2);
    let mut service = Service::new("web", 10).with(world.endpoints(1, &near));
    service.endpoints.extend(world.endpoints(2, &far));
    world.start_with(&service);
    let mut live = Live::open(&world.lab.node(1));
    let mut random = XorShift(0x5eed_0010);
    let (evicted, tally) = traffic::during(
        &client,
        &service,
        |_| true,
        |_| {
            // UDP flows that are younger than two seconds may begin anew.
            thread::sleep(Duration::from_secs(3));
            thread::scope(|scope| {
                let transfers: Vec<_> = Family::ALL
                    .map(|family| {
                        let mut open = Connection::open(&client, service.target(family)).unwrap();
                        scope.spawn(move || {
                            for seed in 0..if is_long() { 200 } else { 20 } {
                                open.upload(1_000_000, seed).unwrap();
                                open.download(1_000_000, seed).unwrap();
                            }
                        })
                    })
                    .into();
                let mut evicted = 0;
                let mut rounds = 0;
                while rounds < 30 || transfers.iter().any(|thread| !thread.is_finished()) {
                    evicted += live.evict(&mut random, 20);
                    rounds += 1;
                    thread::sleep(Duration::from_millis(100));
                }
                evicted
            })
        },
    );
    // 20 flows stay open, and most have both halves again each time.
    assert!(evicted > 50, "{evicted} halves were evicted");
    assert!(tally.kept.into_inner() > 100);
    world.assert_unnoticed(&[&service]);
}
