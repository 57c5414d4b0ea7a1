//! Which programs a device needs.

use crate::node::{Class, Device, Framing};

/// The program at one hook, and the one that leaves alone what another instance of it at the same
/// hook has handled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) once: &'static str,
}

macro_rules! program {
    ($name:literal) => {
        Program {
            name: $name,
            once: concat!($name, "_once"),
        }
    };
}

/// The programs at ingress and egress of a device.
pub(super) const fn programs(device: &Device) -> (Program, Program) {
    match (device.framing, device.class) {
        (Framing::None, _) => (program!("tc_in_l3"), program!("tc_eg_l3")),
        (Framing::Ethernet, Class::Pod | Class::Uplink) => (program!("tc_in"), program!("tc_eg")),
        (Framing::Ethernet, Class::PodPort) => (program!("tc_in_port"), program!("tc_eg")),
        (Framing::Ethernet, Class::UplinkPort) => {
            (program!("tc_in_uplink_port"), program!("tc_eg"))
        }
    }
}
