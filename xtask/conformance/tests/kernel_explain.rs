//! Kernel ring: the same as in `explain.rs`, where the programs in the kernel decide, in an instance
//! of their own, as they do at a running controller.
//!
//! Needs root; without it the test says that it was skipped, or fails where the ring is required
//! (`KUBE_LOTTERY_RINGS=required`).

#![expect(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "all of this is test code: a panic is how a test fails"
)]

#[path = "explain/agree.rs"]
mod agree;

use kube_lottery::explain::Run;

#[test]
fn a_private_instance_says_of_every_packet_what_is_expected() {
    let root = rustix::process::geteuid().is_root();
    assert!(
        root || std::env::var_os("KUBE_LOTTERY_RINGS").is_none(),
        "the kernel ring needs root"
    );
    if !root {
        println!("skipped: the kernel ring needs root");
        return;
    }
    agree::agrees(Run::Kernel);
}
