//! Threads that hold less than root does.

use std::thread;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// What a `DaemonSet` grants, and nothing else.
pub(super) const SHIPPED: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::PERFMON);

/// Runs `f` on a thread that holds these capabilities only.
pub(super) fn with_only<T: Send + 'static>(
    set: CapabilitySet,
    f: impl FnOnce() -> T + Send + 'static,
) -> thread::Result<T> {
    thread::spawn(move || {
        let sets = CapabilitySets {
            effective: set,
            permitted: set,
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, sets).unwrap();
        assert_eq!(set, capabilities(None).unwrap().effective);
        f()
    })
    .join()
}
