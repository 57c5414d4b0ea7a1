//! What happens to a packet, written once for kernel and host.
//!
//! ```text
//! client → [tc ingress: DNAT, un-SNAT] → host stack → [tc egress: SNAT, un-DNAT] → endpoint
//! ```
//!
//! The stack between the two hooks, conntrack included, sees one ordinary flow between client and
//! endpoint, and never a Service address.

pub mod aside;
pub mod bridge;
pub mod choose;
pub mod claim;
pub mod connect;
pub mod direct;
pub mod egress;
pub mod extension;
pub mod flow;
pub mod fragment;
pub mod frontend;
pub mod header;
pub mod icmp;
pub mod ingress;
pub mod lifetime;
#[cfg(any(test, feature = "host"))]
pub mod memory;
pub mod miss;
pub mod note;
pub mod open;
pub mod origin;
pub mod own;
pub mod packet;
pub mod quote;
pub mod repair;
pub mod report;
pub mod rewrite;
pub mod sweep;
pub mod tables;
pub mod verdict;
pub mod work;

pub use aside::{egress, ingress, port_ingress};
pub use bridge::Seat;
pub use packet::Packet;
pub use sweep::sweep;
pub use tables::{Insert, Tables};
pub use verdict::Verdict;

#[cfg(test)]
mod tests;
