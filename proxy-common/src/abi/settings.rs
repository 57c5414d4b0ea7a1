//! What the loader tells the programs once, at load; the verifier sees constants.

use bytemuck::{Pod, Zeroable};

use crate::lottery::MOST_RULES;

/// Settings of the kernel programs. All words, so that there is no padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Settings {
    /// Ticks of `jiffies` a second.
    pub hz: u32,
    /// Up to this many endpoints the cascade is run rule by rule.
    pub cascade_limit: u32,
    /// 1: a segment in the middle of an unknown connection opens a flow, as
    /// `net.netfilter.nf_conntrack_tcp_loose` says; 0: it is dropped.
    pub tcp_loose: u32,
    /// First port that a source port in conflict is rewritten to.
    pub rewrite_low: u32,
    /// How many ports there are from there on.
    pub rewrite_count: u32,
    /// Bits of a packet's mark that ask netfilter to masquerade it.
    pub masquerade_mark: u32,
    /// Bits of a packet's mark that ask netfilter to reject it.
    pub reject_mark: u32,
    /// 1: a client that gets itself as endpoint is a hairpin wherever that endpoint is, as in
    /// kube-proxy's iptables mode; 0: only if the endpoint is on this node, as in its nftables mode.
    pub hairpin_anywhere: u32,
    /// 1: time and randomness come from the test map, so that a test controls both.
    pub test_sources: u32,
    /// 1: the kernel knows atomic `or` and `and` (5.12), which every supported one does; 0: flows
    /// are marked without them, which only a test on one CPU may ask for.
    pub has_atomics: u32,
}

impl Settings {
    /// Highest cascade limit that every supported kernel verifies.
    pub const MAX_CASCADE_LIMIT: u32 = MOST_RULES;

    /// The defaults, on a kernel with `hz` ticks a second.
    pub const fn with_hz(hz: u32) -> Self {
        Self {
            hz,
            cascade_limit: 16,
            tcp_loose: 1,
            // Above the default ip_local_port_range, which ends at 60999.
            rewrite_low: 61_000,
            rewrite_count: 4_536,
            // kube-proxy's default, and the bit above it.
            masquerade_mark: 1 << 14,
            reject_mark: 1 << 15,
            hairpin_anywhere: 1,
            test_sources: 0,
            has_atomics: 1,
        }
    }
}

/// Time and randomness as a test sets them; element 0 of the test map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct TestSources {
    /// State of the generator, see [`crate::lottery::XorShift`]; never 0.
    pub random: u64,
    /// The time, in seconds.
    pub now: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<TestSources>() == 16);
