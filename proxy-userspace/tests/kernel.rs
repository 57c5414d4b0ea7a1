//! The kernel ring: every program is loaded by the real verifier and run with packets, and says
//! the same as the shared code run on the host.
#![expect(clippy::print_stdout, reason = "tests print their figures")]

#[path = "kernel/agreement.rs"]
mod agreement;
#[path = "kernel/capability.rs"]
mod capability;
#[path = "kernel/cost.rs"]
mod cost;
#[path = "kernel/generate.rs"]
mod generate;
#[path = "kernel/lottery.rs"]
mod lottery;
#[path = "kernel/object.rs"]
mod object;

/// Whether this process may load programs. Where the rings are required it must.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    assert!(
        root || std::env::var_os("KUBE_LOTTERY_RINGS").is_none(),
        "the kernel ring needs root"
    );
    if !root {
        println!("skipped: the kernel ring needs root");
    }
    root
}

/// Whether the long forms of the tests were asked for.
fn is_long() -> bool {
    std::env::var_os("KUBE_LOTTERY_LONG").is_some()
}
