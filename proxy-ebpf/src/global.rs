//! What the loader sets; to the verifier these are constants, and branches that they rule out are
//! not even looked at.

use proxy_common::abi::Settings;

/// Overridden at load. `#[used]` and the section of its own keep the compiler from merging it with
/// equal constants, which would change with it.
#[used]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".rodata.settings")]
static SETTINGS: Settings = Settings::with_hz(250);

macro_rules! setting {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name() -> u32 {
            // SAFETY: a field of a static. Volatile, because the loader has changed the value that
            // the compiler knows.
            unsafe { (&raw const SETTINGS.$name).read_volatile() }
        }
    };
}

setting!(
    /// Ticks of `jiffies` a second.
    hz
);
setting!(
    /// Up to this many endpoints the cascade is run rule by rule.
    cascade_limit
);
setting!(
    /// Whether mid-flow segments open flows.
    tcp_loose
);
setting!(
    /// First port for rewritten source ports.
    rewrite_low
);
setting!(
    /// How many ports there are from there on.
    rewrite_count
);
setting!(
    /// Bits of the mark that ask for a masquerade.
    masquerade_mark
);
setting!(
    /// Bits of the mark that ask for a rejection.
    reject_mark
);
setting!(
    /// Whether a hairpin is one wherever its endpoint is.
    hairpin_anywhere
);
setting!(
    /// Whether time and randomness come from the test map.
    test_sources
);
setting!(
    /// Whether the kernel has atomic operations that set and clear bits.
    has_atomics
);
