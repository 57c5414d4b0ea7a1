//! What the programs need from whoever loads them.

use proxy_common::abi::Settings;
use proxy_common::net::Proto;
use rustix::thread::CapabilitySet;

use super::is_root;
use super::object::{MOVING, Object};
use super::privilege::{SHIPPED, with_only};
use proxy_common::datapath::memory::world::{World, endpoint_addr, vip};

#[test]
fn every_program_loads_and_runs_with_the_shipped_capabilities_at_the_highest_limit() {
    if !is_root() {
        return;
    }
    let loaded = with_only(SHIPPED, || {
        let mut settings = Settings::with_hz(250);
        settings.cascade_limit = Settings::MAX_CASCADE_LIMIT;
        let mut world = World::new(settings);
        let endpoints: Vec<_> = (1..=20).map(|id| (endpoint_addr(false, id), 80)).collect();
        world.service((vip(false, 1), 80), Proto::TCP, &endpoints);
        let mut object = Object::load_all(settings);
        object.load_programs(&MOVING);
        object.write(&world.tables);
        object.run("tc_in", &[0; 64]).unwrap();
    });
    loaded.unwrap();
}

#[test]
fn no_program_loads_without_the_bpf_capability() {
    if !is_root() {
        return;
    }
    // Aya asks the kernel once in a process what it can do, and must not do so in there.
    aya::features();
    let without = SHIPPED.difference(CapabilitySet::BPF);
    let refused = with_only(without, || {
        Object::load(Settings::with_hz(250));
    });
    assert!(refused.is_err(), "the thread has not lost its capabilities");
}
