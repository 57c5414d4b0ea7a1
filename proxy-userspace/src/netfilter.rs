//! Netfilter: one nftables table of ours for each IP family, kept by netlink from this process.
//!
//! What it is for:
//!
//! - **Masquerading and rejecting what the programs have marked.** A program cannot choose a source
//!   address and port that nobody else has, and does not answer by itself; it sets a bit in the
//!   packet's mark, and a rule does the rest. Both bits are taken off every packet before it leaves.
//! - **A packet to a Service that nobody translates is dropped and counted.** Attaching programs to
//!   a device takes time, and what comes in by it before would leave by the default route. Whoever is
//!   there may refuse it, and a connect that is refused has failed; one whose SYN is lost succeeds a
//!   second later. In the mode of nftables this goes for all of a `ClusterIP`, and for addresses that
//!   no Service has; in that of iptables for the ports of Services.
//! - **What kube-proxy's iptables mode does for all packets**: forwarded ones that conntrack calls
//!   invalid are dropped, and two [`accepts`] in somebody else's chain let Services through.
//!
//! The drop stands behind the DNAT of anybody else, so a kube-proxy beside us is not disturbed, and
//! in front of routing and the rules of FORWARD, for those can refuse a packet as well. An address
//! that is the node's own is left alone: a DNS cache may have bound it.
//!
//! The table outlives the process, as the programs do. From the [`wanted`] table and the one that is
//! [found](found::Found), [`change`] makes one batch, which the kernel takes as a whole or not at
//! all: rules and chains are replaced, counters and elements of sets stay. The [`keeper`] alone
//! performs it, and puts right what anybody else changes. What the table does with a packet is
//! [judged](judge) by the same data.

mod accepts;
mod addresses;
mod attribute;
mod batch;
mod change;
mod counter;
mod destination;
mod elements;
mod events;
mod expressions;
mod found;
mod judge;
mod keeper;
mod kept;
mod kernel;
mod leftover;
mod message;
mod options;
mod socket;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod wanted;

pub use addresses::{ClusterIps, Delta, ServiceCidrs};
pub use counter::{Count, Counter, Counts};
pub use destination::Destination;
pub use judge::{Judgement, Packet, Path, Rules};
pub use keeper::{Keeper, Netfilter};
pub use kernel::counts;
pub use leftover::{Leftover, leftovers};
pub use options::Options;
pub use state::State;
pub use wanted::TABLE;
