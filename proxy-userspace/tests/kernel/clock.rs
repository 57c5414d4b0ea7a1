//! The controller reads the time that the programs note.

use std::net::SocketAddr;

use kube_lottery::dataplane::{reader, settings};
use proxy_common::abi::flow::Flow as _;
use proxy_common::abi::{Tier, V4};
use proxy_common::datapath::memory::world::{World, client_addr, endpoint_addr, vip};
use proxy_common::net::Proto;

use super::frames::{Tcp, frame};
use super::is_root;
use super::object::Object;

// B209
#[test]
fn what_a_program_notes_is_the_time_that_the_controller_reads() {
    if !is_root() {
        return;
    }
    let settings = settings::detect();
    let mut world = World::new(settings);
    let served = (endpoint_addr(false, 1), 8080);
    world.service((vip(false, 1), 80), Proto::TCP, &[served]);
    let mut object = Object::load(settings);
    object.write(&world.tables);
    for port in 40_000..40_100 {
        let from = SocketAddr::new(client_addr(false, 1), port);
        let to = SocketAddr::new(vip(false, 1), 80);
        let before = reader::now(settings.hz);
        object
            .run("tc_in", &frame(Proto::TCP, from, to, Tcp::SYN))
            .unwrap();
        let after = reader::now(settings.hz);
        let flows = object.flows::<V4>(Tier::HalfOpen);
        let noted = flows.values().map(|flow| flow.state().last_seen).max();
        let noted = noted.unwrap();
        // Each of the two clocks may be just about to go on.
        assert!(
            (before - 1..=after + 1).contains(&noted),
            "{before} {noted} {after}"
        );
    }
}
