//! What the data path needs of the maps.

use super::flow::Path;
use super::verdict::Step;
use super::work::{Part, Work};
use crate::abi::{
    Affinity, Counter, Detector, Device, Event, Family, Frontend, Hop, Kind, Meter, Slot, State,
    Tier, Watch,
};
use crate::net::{Port, Proto};

/// How an insertion of a new key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    /// The entry is there now.
    Done,
    /// The key was there already; nothing was changed.
    Exists,
    /// The map had no room, or could not make any at this moment.
    Refused,
}

/// What a flow has been through when a half is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Past {
    /// Its state.
    pub state: State,
    /// The proof that its endpoint or its age gives, see [`crate::abi::FlowState::proof`].
    pub proof: u32,
    /// The time, in seconds.
    pub now: u32,
}

/// A change of a half in place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Touch {
    /// State bits to set.
    pub set: State,
    /// State bits to clear.
    pub clear: State,
    /// A new proof; 0 leaves the old one.
    pub proof: u32,
    /// The time, in seconds.
    pub now: u32,
}

/// The maps of one family, and the few things from outside that a decision depends on.
pub trait Tables<F: Family> {
    /// Whether packets to this address can be for a Service: see [`crate::abi::bits`].
    fn may_be_frontend(&self, addr: F::Addr) -> bool;
    /// Whether packets from this address can be an endpoint's.
    fn may_be_endpoint(&self, addr: F::Addr) -> bool;
    /// Whether an endpoint may listen there.
    fn may_be_served(&self, addr: F::Addr, port: Port, proto: Proto) -> bool;
    /// When a flow was last noted that leaves its trace at this index; 0 if never.
    fn trace(&self, index: u32) -> u32;
    /// Leaves such a trace.
    fn leave_trace(&mut self, index: u32, now: u32);
    /// The frontend at this key.
    fn frontend(&self, key: &F::FrontendKey) -> Option<Frontend>;
    /// One slot of the set array.
    fn slot(&self, index: u32) -> Option<Slot>;
    /// One element of the endpoint array.
    fn endpoint(&self, index: u32) -> Option<F::Endpoint>;
    /// The `index`th frontend of the endpoint at this key.
    fn frontend_of(&self, key: &F::EndpointKey, index: usize) -> Option<(F::Addr, Port)>;

    /// Whether a source is in the ranges of a service port.
    fn is_in_ranges(&self, service: u32, source: F::Addr) -> bool;
    /// Who is inside; nobody if nothing is told. The reference must not be used after the map has
    /// changed.
    fn detector(&self) -> Option<&Detector>;

    /// What a client of a service port had last.
    fn affinity(&self, key: &F::AffinityKey) -> Option<Affinity>;
    /// Remembers that, under a key that must be new.
    fn remember(&mut self, key: &F::AffinityKey, affinity: &Affinity) -> Insert;
    /// Notes that the client has used it again.
    fn keep(&mut self, key: &F::AffinityKey, now: u32);
    /// Forgets what the client had.
    fn forget(&mut self, key: &F::AffinityKey);

    /// The flow half at a key. The reference must not be used after the map has changed.
    fn flow(&self, tier: Tier, key: &F::FlowKey) -> Option<&F::Flow>;
    /// One half of a flow.
    fn half(&self, tier: Tier, path: &Path<F>, kind: Kind) -> Option<&F::Flow>;
    /// Inserts one half of a flow under a key that must be new.
    fn insert(&mut self, tier: Tier, path: &Path<F>, kind: Kind, past: Past) -> Insert;
    /// Puts one half of a flow in place of whatever is there, as one whole element.
    fn replace(&mut self, tier: Tier, path: &Path<F>, kind: Kind, past: Past) -> bool;
    /// Removes one half of a flow.
    fn remove(&mut self, tier: Tier, path: &Path<F>, kind: Kind);
    /// Removes the half at a key.
    fn remove_key(&mut self, tier: Tier, key: &F::FlowKey);
    /// Applies `touch` to one half of a flow, in place; `false` if there is no such half.
    fn touch(&mut self, tier: Tier, path: &Path<F>, kind: Kind, touch: Touch) -> bool;

    /// Notes the way to the endpoint in the client's half at `key`, in place; `false` if there is no
    /// such half.
    fn set_hop(&mut self, tier: Tier, key: &F::FlowKey, hop: Hop) -> bool;

    /// What became of the first fragment of a datagram. The reference must not be used after the
    /// map has changed.
    fn fragment(&self, key: &F::FragmentKey) -> Option<&F::Fragment>;
    /// Notes that; if there is no room, the others will not find it.
    fn note_fragment(&mut self, key: &F::FragmentKey, fragment: &F::Fragment);
    /// Forgets it.
    fn forget_fragment(&mut self, key: &F::FragmentKey);

    /// A device that programs are attached to, by its index. The reference must not be used after
    /// the map has changed.
    fn device(&self, index: u32) -> Option<&Device>;

    /// Runs a slow part; see [`super::work`].
    fn part(&mut self, part: Part, work: &mut Work<F>) -> Step;

    /// Draws one of `n`, `n` > 0, by the lottery.
    fn pick(&mut self, n: u32) -> u32;
    /// Draws a source port for rewriting.
    fn pick_port(&mut self) -> Port;
    /// Counts a draw of this element of the set array.
    fn count_draw(&mut self, element: u32);
    /// Counts a new flow to this element of the endpoint array.
    fn picked(&mut self, endpoint: u32);
    /// Counts an event.
    fn count(&mut self, counter: Counter);
    /// What is listened for. The reference must not be used after the map has changed.
    fn watch(&self) -> Option<&Watch>;
    /// How much this CPU has told.
    fn meter(&mut self) -> Option<&mut Meter>;
    /// Has an event filled in, all of it, and tells it; `false` if there was no room.
    fn tell(&mut self, fill: impl FnOnce(&mut Event)) -> bool;
    /// The time in nanoseconds since the machine was started.
    fn nanos(&self) -> u64;
    /// The time in whole seconds since some moment.
    fn now(&self) -> u32;
    /// Whether a segment in the middle of an unknown connection opens a flow.
    fn is_tcp_loose(&self) -> bool;
    /// Whether a client that gets itself as endpoint is a hairpin wherever that endpoint is.
    fn is_hairpin_anywhere(&self) -> bool;
    /// Bits of a packet's mark that ask netfilter to masquerade it.
    fn masquerade_mark(&self) -> u32;
    /// Bits of a packet's mark that ask netfilter to reject it.
    fn reject_mark(&self) -> u32;
}

/// Looks a flow half up, established ones first.
#[inline(always)]
pub fn find<'a, F: Family, T: Tables<F>>(
    tables: &'a T,
    key: &F::FlowKey,
) -> Option<(Tier, &'a F::Flow)> {
    if let Some(flow) = tables.flow(Tier::Established, key) {
        return Some((Tier::Established, flow));
    }
    let flow = tables.flow(Tier::HalfOpen, key)?;
    Some((Tier::HalfOpen, flow))
}
