//! What a set of pinned maps is: read before it is adopted, by the controller only.

use bytemuck::{Pod, Zeroable};

use super::LAYOUT;

/// The one element of the META map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Meta {
    /// [`Meta::MAGIC`]: these maps are ours.
    pub magic: u32,
    /// [`LAYOUT`] of the controller that made them.
    pub layout: u32,
    /// Ticks of `jiffies` a second: all times in the flow maps depend on it.
    pub hz: u32,
    /// Numbers of service ports from here on have never been used.
    pub next_service: u32,
    /// Lower half of the cookie of the network namespace.
    pub netns_low: u32,
    /// Upper half of that.
    pub netns_high: u32,
}

const _: () = assert!(size_of::<Meta>() == 24);

impl Meta {
    /// "lott", as bytes.
    pub const MAGIC: u32 = u32::from_ne_bytes(*b"lott");

    /// Of maps that belong to this network namespace.
    pub const fn new(hz: u32, netns: u64, next_service: u32) -> Self {
        Self {
            magic: Self::MAGIC,
            layout: LAYOUT,
            hz,
            next_service,
            netns_low: netns as u32,
            netns_high: (netns >> 32) as u32,
        }
    }

    /// Whether maps with `other` can be used where these are wanted.
    pub const fn is_like(&self, other: &Self) -> bool {
        self.magic == other.magic
            && self.layout == other.layout
            && self.hz == other.hz
            && self.netns_low == other.netns_low
            && self.netns_high == other.netns_high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_differ_and_nothing_else() {
        let meta = Meta::new(250, 1 << 32 | 7, 1);
        assert!(meta.is_like(&Meta::new(250, 1 << 32 | 7, 9)));
        assert!(!meta.is_like(&Meta::new(100, 1 << 32 | 7, 1)));
        assert!(!meta.is_like(&Meta::new(250, 7, 1)));
        assert!(!meta.is_like(&Meta::zeroed()));
    }
}
