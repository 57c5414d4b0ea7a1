//! The sweeper removes what is over, and nothing else.

use std::collections::HashMap;

use kube_lottery::dataplane::Swept;
use proxy_common::abi::flow::{Flow as _, FlowKey as _};
use proxy_common::abi::{Tier, V4, V6};
use proxy_common::datapath::lifetime::{self, may_go};
use proxy_common::datapath::memory::Stored;

use super::agreement::mixed_world;
use super::generate::Packets;
use super::is_root;
use super::object::Object;

/// Ages between which every limit lies.
const AGES: [u32; 6] = [
    0,
    lifetime::TCP_RESET + 1,
    lifetime::UDP_UNREPLIED + 1,
    lifetime::TCP_OPENING + 1,
    lifetime::TCP_TIME_WAIT + 1,
    lifetime::TCP_ESTABLISHED + 1,
];

/// A kernel with flows of all kinds and states; none where it cannot be loaded.
fn busy() -> Option<(Object, u32, u64)> {
    if !is_root() {
        return None;
    }
    let world = mixed_world(16);
    let mut object = Object::load(world.tables.settings);
    object.write(&world.tables);
    let (now, random) = (world.tables.now, world.tables.random.0);
    object.set_sources(now, random);
    let mut packets = Packets::new(7);
    for _ in 0..6_000 {
        let (bytes, name) = packets.frame();
        // Some are too short for the kernel's test run.
        object.run(name, &bytes).ok();
    }
    Some((object, now, random))
}

fn count(object: &mut Object) -> usize {
    let mut entries = 0;
    for tier in [Tier::Established, Tier::HalfOpen] {
        entries += object.flows::<V4>(tier).len() + object.flows::<V6>(tier).len();
    }
    entries
}

fn left<F: Stored>(object: &mut Object, tier: Tier, now: u32) -> HashMap<F::FlowKey, F::Flow> {
    let mut flows = object.flows::<F>(tier);
    flows.retain(|key, flow| !may_go(key.proto(), tier, flow.state(), now, false));
    flows
}

#[test]
fn what_is_over_is_removed_and_nothing_else() {
    let Some((mut object, begin, random)) = busy() else {
        return;
    };
    let sweeper = object.sweeper();
    let mut rounds_with_both = 0;
    for now in AGES.map(|age| begin + age) {
        object.set_sources(now, random);
        let before = count(&mut object);
        let [established, half_open] = [Tier::Established, Tier::HalfOpen].map(|tier| {
            (
                left::<V4>(&mut object, tier, now),
                left::<V6>(&mut object, tier, now),
            )
        });
        let swept = sweeper.round(now, false).unwrap();
        assert_eq!(before, swept.seen);
        assert_eq!(before - count(&mut object), swept.removed);
        for (tier, (v4, v6)) in [
            (Tier::Established, established),
            (Tier::HalfOpen, half_open),
        ] {
            assert_eq!(v4, object.flows::<V4>(tier), "{tier:?} at {now}");
            assert_eq!(v6, object.flows::<V6>(tier), "{tier:?} at {now}");
        }
        if swept.removed > 0 && swept.removed < swept.seen {
            rounds_with_both += 1;
        }
    }
    assert_eq!(0, count(&mut object), "in a day everything is over");
    assert!(rounds_with_both >= 3, "{rounds_with_both}");
}

#[test]
fn the_program_looks_once_more_before_it_removes() {
    let Some((mut object, begin, _)) = busy() else {
        return;
    };
    // Userspace takes all for over, as if every flow had begun anew since it looked.
    let swept = object
        .sweeper()
        .round(begin + 2 * lifetime::TCP_ESTABLISHED, false);
    let Swept { seen, removed, .. } = swept.unwrap();
    assert!(seen > 1_000, "{seen}");
    assert_eq!(0, removed);
    assert_eq!(seen, count(&mut object));
}
