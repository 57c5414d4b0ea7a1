//! Kernel ring: every program is loaded by the real verifier and run with packets, and says the
//! same as the shared code run on the host.
//!
//! Needs root; without it every test says that it was skipped, or fails where the ring is required
//! (`KUBE_LOTTERY_RINGS=required`). `KUBE_LOTTERY_LONG=1` runs more packets, and
//! `KUBE_LOTTERY_EMULATED=1` fewer, on an emulated machine that takes more than ten times as long.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "all of this is test code: a panic is how a test fails, and figures are printed"
)]

mod kernel {
    mod agreement;
    mod capability;
    mod capacity;
    mod clock;
    mod cost;
    mod errors;
    mod events;
    mod flow_table;
    mod frames;
    mod generate;
    mod golden;
    mod lottery;
    mod mutations;
    mod neighbours;
    mod netfilter;
    mod object;
    mod old;
    mod once;
    mod ports;
    mod privilege;
    mod race;
    mod sweep;
    mod tables;

    /// Whether this process may load programs. Where the ring is required it must.
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

    /// Whether the machine is an emulated one.
    fn is_emulated() -> bool {
        std::env::var_os("KUBE_LOTTERY_EMULATED").is_some()
    }
}
