//! `explain` against what is expected of every packet of our files, in both modes: what it says of
//! endpoints, odds, verdict and masquerade. Here the data path runs on the host.

#![expect(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "all of this is test code: a panic is how a test fails"
)]

#[path = "explain/agree.rs"]
mod agree;

use kube_lottery::explain::Run;

#[test]
fn every_packet_is_explained_as_it_fares_on_kube_proxy() {
    agree::agrees(Run::Host);
}
