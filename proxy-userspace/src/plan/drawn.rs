//! Sets that clients draw from, for those who count the draws.

use std::net::SocketAddr;
use std::sync::Arc;

use super::ports::Ports;
use crate::model::{Family, ObjectName, Protocol};

/// The sets of a service port.
#[derive(Clone, Debug)]
pub struct PortSets {
    /// Its Service.
    pub service: ObjectName,
    /// Its name.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its family.
    pub family: Family,
    /// Its number in the tables.
    pub number: u32,
    /// They, each once.
    pub sets: Vec<DrawnSet>,
}

/// A set of endpoints that clients draw from with equal odds. It stays the same as long as it stands
/// there: a changed one gets another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawnSet {
    /// Its first element in the set array.
    pub base: u32,
    /// Names of the lists that it is: `cluster`, `local`, or both.
    pub lists: Vec<&'static str>,
    /// Its endpoints in order.
    pub endpoints: Vec<SocketAddr>,
}

/// Sets that are left: nobody begins to draw from them any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Number of the service port.
    pub service: u32,
    /// First element and length of each.
    pub sets: Vec<(u32, u32)>,
    /// Whether the service port has ended.
    pub is_last: bool,
}

/// The sets of all service ports that Services have, in order of their names and numbers.
pub(super) fn port_sets(ports: &Ports) -> Vec<PortSets> {
    let mut all: Vec<_> = ports.sets().collect();
    all.sort_unstable_by(|one, other| {
        (&one.service, one.number).cmp(&(&other.service, other.number))
    });
    all
}
