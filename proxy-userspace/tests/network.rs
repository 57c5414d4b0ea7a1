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
    mod affinity;
    mod bridge;
    mod changes;
    mod churn;
    mod cleanup;
    mod clock;
    mod clsact;
    mod control;
    mod detectors;
    mod devices;
    mod direct;
    mod distribution;
    mod door;
    mod echo;
    mod eviction;
    mod exchange;
    mod explaining;
    mod external;
    mod external_conflicts;
    mod fairness;
    mod flips;
    mod flow_table;
    mod foreign;
    mod fragments;
    mod icmp_errors;
    mod kill_points;
    mod lab;
    mod large;
    mod late_attach;
    mod local_policies;
    mod looking;
    mod marks;
    mod masquerade_load;
    mod matrix;
    mod monitor;
    mod moves;
    mod neighbours;
    mod netfilter;
    mod nftables;
    mod node_addresses;
    mod node_local_dns;
    mod nowhere;
    mod one_of_many;
    mod order;
    mod paths;
    mod pinned;
    mod pmtu;
    mod pmtu_hairpin;
    mod port_clash;
    mod raw;
    mod recreated;
    mod restart;
    mod reuse;
    mod scale;
    mod scene;
    mod sctp;
    mod segments;
    mod sharing;
    mod silence;
    mod source_ranges;
    mod top;
    mod traffic;
    mod tunnel;
    mod udp_stale;
    mod verdicts;
    mod world;
}
