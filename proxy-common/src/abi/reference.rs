//! What the reference programs of the benchmark and the benchmark itself agree on.

use bytemuck::Zeroable as _;

use super::FrontendKey4;
use crate::net::{Ip4, Port, Proto};

/// So many frontends `reference_known` looks up.
pub const FRONTENDS: u16 = 8;

/// The `n`th of them: an address that no packet is sent to.
#[inline(always)]
pub fn frontend_key(n: u16) -> FrontendKey4 {
    FrontendKey4::exact(Ip4::zeroed(), Port::new(n), Proto::TCP)
}
