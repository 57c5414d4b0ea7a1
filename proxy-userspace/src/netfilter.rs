//! Netfilter: one nftables table of ours for each IP family, kept by netlink from this process.
//!
//! What it is for so far: **a packet to a `ClusterIP` that nobody translates is dropped and
//! counted.** Attaching programs to a device takes time, and what comes in by it before would leave
//! by the default route. Whoever is there may refuse it, and a connect that is refused has failed;
//! one whose SYN is lost succeeds a second later.
//!
//! The drop stands behind the DNAT of anybody else, so a kube-proxy beside us is not disturbed, and
//! in front of routing and the rules of FORWARD, for those can refuse a packet as well. An address
//! that is the node's own is left alone: a DNS cache may have bound it.
//!
//! The table outlives the process, as the programs do. From the [`wanted`] table and the one that is
//! [found](found::Found), [`change`] makes one batch, which the kernel takes as a whole or not at
//! all: rules and chains are replaced, counters and elements of sets stay. The [`keeper`] alone
//! performs it, and puts right what anybody else changes.

mod addresses;
mod attribute;
mod batch;
mod change;
mod elements;
mod events;
mod found;
mod keeper;
mod kept;
mod kernel;
mod leftover;
mod message;
mod socket;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod wanted;

pub use addresses::{ClusterIps, Delta};
pub use keeper::{Keeper, Netfilter};
pub use kernel::{Count, counts};
pub use leftover::{Leftover, leftovers};
pub use state::State;
pub use wanted::{DROP_UNTRANSLATED, MEANING, TABLE};
