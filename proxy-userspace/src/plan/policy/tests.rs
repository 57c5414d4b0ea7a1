//! What becomes of packets on one node, as the policy has it: each row of kube-proxy's semantics.

mod addresses;
mod judge;
mod lists;
mod matrix;
mod nowhere;
mod other_family;
mod sources;
mod world;
