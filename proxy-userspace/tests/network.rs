//! Network ring: the real proxy on nodes made of network namespaces, real sockets, strict rules.
//!
//! Needs root; without it every test says that it was skipped, or fails where the ring is required
//! (`KUBE_LOTTERY_RINGS=required`). `KUBE_LOTTERY_LONG=1` repeats what is random more often and
//! waits for what takes its time. `KUBE_LOTTERY_BINARY` names another proxy than the one of this
//! build.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "all of this is test code, and a panic is how a test fails"
)]

mod network {
    mod accepts;
    mod bridge;
    mod changes;
    mod churn;
    mod cleanup;
    mod clsact;
    mod control;
    mod devices;
    mod direct;
    mod distribution;
    mod door;
    mod eviction;
    mod exchange;
    mod external;
    mod foreign;
    mod icmp_errors;
    mod kill_points;
    mod lab;
    mod late_attach;
    mod looking;
    mod marks;
    mod matrix;
    mod moves;
    mod neighbours;
    mod netfilter;
    mod nftables;
    mod order;
    mod paths;
    mod pinned;
    mod pmtu;
    mod restart;
    mod reuse;
    mod scale;
    mod sharing;
    mod traffic;
    mod tunnel;
    mod verdicts;
    mod world;
}
