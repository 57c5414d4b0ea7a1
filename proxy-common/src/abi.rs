//! What stands in the maps: one layout for the kernel programs and the controller.
//!
//! Addresses and ports are in network order, everything else in the machine's. Nothing has
//! implicit padding, unused bytes are written as zero, and sizes are asserted beside each type.

pub mod affinity;
pub mod bits;
pub mod counter;
pub mod detector;
pub mod device;
pub mod endpoint;
pub mod event;
pub mod family;
pub mod flow;
pub mod fragment;
pub mod frontend;
pub mod hop;
pub mod marks;
pub mod meta;
pub mod reference;
pub mod seen;
pub mod settings;
pub mod source;

pub use affinity::{Affinity, AffinityKey4, AffinityKey6};
pub use bits::{bit_of, socket_bit_of, trace_of};
pub use counter::Counter;
pub use detector::Detector;
pub use device::{Device, DeviceClass, Network4, Network6};
pub use endpoint::{Endpoint4, Endpoint6, EndpointFlags, EndpointKey4, EndpointKey6};
pub use endpoint::{Frontends4, Frontends6, Slot};
pub use event::{Event, EventKind, Meter, Watch, What};
pub use family::{Family, V4, V6};
pub use flow::{Flow4, Flow6, FlowKey4, FlowKey6, FlowState, Hook, Kind, Tier};
pub use fragment::{Fragment4, Fragment6, FragmentKey4, FragmentKey6};
pub use frontend::{
    Empty, EndpointSet, Frontend, FrontendFlags, FrontendKey4, FrontendKey6, Origin,
};
pub use hop::Hop;
pub use marks::{FlowFlags, Marks, State};
pub use meta::Meta;
pub use seen::Seen;
pub use settings::Settings;
pub use source::{Source4, Source6};

/// Number of the map layout; any change of a shape or a meaning below raises it.
pub const LAYOUT: u32 = 7;

/// Default capacities, in entries; each can be changed by a flag.
pub mod capacity {
    /// Frontends per family.
    pub const FRONTENDS: u32 = 64 * 1024;
    /// Endpoint slots per family.
    pub const ENDPOINTS: u32 = 256 * 1024;
    /// Slots of endpoint sets: a changed set is written beside the old one.
    pub const SET_SLOTS: u32 = 2 * ENDPOINTS;
    /// Established flow halves for IPv4; IPv6 has half as many.
    pub const FLOWS: u32 = 128 * 1024;
    /// Half-open flow halves for IPv4; IPv6 has half as many.
    pub const HALF_OPEN: u32 = 32 * 1024;
    /// Clients whose last endpoint is remembered, per family.
    pub const AFFINITY: u32 = 64 * 1024;
    /// Datagrams whose first fragment is remembered, per family.
    pub const FRAGMENTS: u32 = 8 * 1024;
    /// Source ranges per family.
    pub const SOURCES: u32 = 64 * 1024;
    /// Bytes of events that nobody has read yet, 96 each: a power of two, and of whole pages.
    pub const EVENT_BYTES: u32 = 512 * 1024;
    /// Devices; a bridge has at most 1,023 ports.
    pub const DEVICES: u32 = 4 * 1024;
}
