//! What the data path needs of the maps.

use crate::abi::flow::Flow;
use crate::abi::{Counter, Family, Frontend, Slot, State, Tier};
use crate::net::Port;

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

/// The maps of one family, and the few things from outside that a decision depends on.
pub trait Tables<F: Family> {
    /// Whether packets to this address can be for a Service: see [`crate::abi::bits`].
    fn may_be_frontend(&self, addr: F::Addr) -> bool;
    /// Whether packets from this address can be an endpoint's.
    fn may_be_endpoint(&self, addr: F::Addr) -> bool;
    /// The frontend at this key.
    fn frontend(&self, key: &F::FrontendKey) -> Option<Frontend>;
    /// One slot of the set array.
    fn slot(&self, index: u32) -> Option<Slot>;
    /// One element of the endpoint array.
    fn endpoint(&self, index: u32) -> Option<F::Endpoint>;
    /// The `index`th frontend of the endpoint at this key.
    fn frontend_of(&self, key: &F::EndpointKey, index: usize) -> Option<(F::Addr, Port)>;

    /// A flow half. The reference must not be used after the map has changed.
    fn flow(&self, tier: Tier, key: &F::FlowKey) -> Option<&F::Flow>;
    /// Inserts a flow half under a key that must be new.
    fn insert(&mut self, tier: Tier, key: &F::FlowKey, flow: &F::Flow) -> Insert;
    /// Puts a flow half in place of whatever is there, as one whole element.
    fn replace(&mut self, tier: Tier, key: &F::FlowKey, flow: &F::Flow) -> bool;
    /// Removes a flow half.
    fn remove(&mut self, tier: Tier, key: &F::FlowKey);
    /// Sets and clears state bits and notes the time, in place; `false` if there is no such half.
    fn touch(&mut self, tier: Tier, key: &F::FlowKey, set: State, clear: State, now: u32) -> bool;
    /// Writes the endpoint's proof into a half, in place.
    fn prove(&mut self, tier: Tier, key: &F::FlowKey, proof: u32);

    /// Draws one of `n`, `n` > 0, by the lottery.
    fn pick(&mut self, n: u32) -> u32;
    /// Draws a source port for rewriting.
    fn pick_port(&mut self) -> Port;
    /// Counts a new flow to this element of the endpoint array.
    fn picked(&mut self, endpoint: u32);
    /// Counts an event.
    fn count(&mut self, counter: Counter);
    /// The time in whole seconds since some moment.
    fn now(&self) -> u32;
    /// Whether a segment in the middle of an unknown connection opens a flow.
    fn is_tcp_loose(&self) -> bool;
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

/// The state bits of a half.
#[inline(always)]
pub fn state_of<L: Flow>(flow: &L) -> State {
    flow.state().marks.state()
}
