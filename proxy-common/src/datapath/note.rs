//! What a packet of a known flow changes in it.
//!
//! Nothing is written on the hot path: only a new state bit, a noted time that has grown old, and
//! the move to the established tier touch the maps, and then both halves.

use super::flow::Path;
use super::header::Transport;
use super::lifetime::{self, is_stale};
use super::tables::{Insert, Tables};
use crate::abi::flow::Flow;
use crate::abi::{Family, FlowState, Kind, State, Tier};
use crate::net::tcp::Flags;

/// Who sent the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The client: seen at ingress.
    Client,
    /// The endpoint: seen at egress.
    Endpoint,
}

/// What of a packet matters to the flow's state.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Who sent it.
    pub sender: Sender,
    /// Whether it is TCP.
    pub is_tcp: bool,
    /// TCP control bits.
    pub flags: Flags,
    /// TCP sequence number.
    pub seq: u32,
    /// TCP acknowledgment number.
    pub ack: u32,
    /// The time.
    pub now: u32,
}

impl Event {
    /// A packet with this transport header.
    #[inline(always)]
    pub const fn new(sender: Sender, transport: &Transport, now: u32) -> Self {
        Self {
            sender,
            is_tcp: transport.is_tcp,
            flags: transport.flags,
            seq: transport.seq,
            ack: transport.ack,
            now,
        }
    }

    const fn fin(&self) -> State {
        match self.sender {
            Sender::Client => State::FIN_CLIENT,
            Sender::Endpoint => State::FIN_ENDPOINT,
        }
    }

    const fn rst(&self) -> State {
        match self.sender {
            Sender::Client => State::RST_CLIENT,
            Sender::Endpoint => State::RST_ENDPOINT,
        }
    }

    /// The state bits that this packet sets and clears.
    #[inline(always)]
    const fn bits(&self, state: State) -> (State, State) {
        let mut set = State::NEW;
        let mut clear = State::NEW;
        if matches!(self.sender, Sender::Endpoint) && !self.flags.any(Flags::RST) {
            set = set.with(State::REPLIED);
        }
        if self.flags.any(Flags::FIN) {
            set = set.with(self.fin());
        }
        if self.flags.any(Flags::RST) {
            set = set.with(self.rst());
        } else {
            // Who sends on after its RST did not send that RST.
            clear = State(state.0 & self.rst().0);
        }
        (State(set.0 & !state.0), clear)
    }
}

/// Whether a packet leaves the flow as it is, so that nothing needs to be written.
#[inline(always)]
pub fn is_quiet(tier: Tier, flow: &FlowState, event: &Event) -> bool {
    let (set, clear) = event.bits(flow.marks.state());
    tier == Tier::Established
        && set.0 | clear.0 == 0
        && !is_stale(event.is_tcp, flow.last_seen, event.now)
}

/// Writes down what the packet with `key` changes in its flow, in both halves.
#[inline(never)]
pub fn note<F: Family, T: Tables<F>>(tables: &mut T, tier: Tier, key: &F::FlowKey, event: &Event) {
    let Some(flow) = tables.flow(tier, key) else {
        return;
    };
    let state = *flow.state();
    let path = match event.sender {
        Sender::Client => Path::<F>::of_forward(key, flow),
        Sender::Endpoint => Path::<F>::of_reverse(key, flow),
    };
    let (set, clear) = event.bits(state.marks.state());
    let changed = set.0 | clear.0 != 0;
    let after = State((state.marks.state().0 | set.0) & !clear.0);
    // The answer to the opening carries the number that the client must repeat.
    let answers = event.is_tcp
        && matches!(event.sender, Sender::Endpoint)
        && event.flags.0 & (Flags::SYN.0 | Flags::ACK.0) == Flags::SYN.0 | Flags::ACK.0;
    let proof = if answers {
        event.seq.wrapping_add(1)
    } else {
        state.proof
    };

    if tier == Tier::HalfOpen && is_proved(&state, event) {
        promote(tables, &path, after, proof, event.now);
        return;
    }
    if !changed && !is_stale(event.is_tcp, state.last_seen, event.now) {
        return;
    }
    let mut kind = Kind::DNAT;
    loop {
        let half = path.key(kind);
        if !touch(tables, &half, set, clear, event.now) {
            // The table has lost this half; a flow at its end is not worth rebuilding.
            if !after.is_closing() {
                let flow = path.half(kind, after, proof, event.now);
                tables.insert(tier, &half, &flow);
            }
        } else if answers && kind == Kind::DNAT {
            tables.prove(Tier::HalfOpen, &half, proof);
        }
        match next(kind, path.is_hairpin()) {
            Some(next) => kind = next,
            None => return,
        }
    }
}

/// The half after this one, in the order of [`Kind`]; two in all, or four in a hairpin.
#[inline(always)]
fn next(kind: Kind, is_hairpin: bool) -> Option<Kind> {
    match kind {
        Kind::DNAT => Some(Kind::UNDNAT),
        Kind::UNDNAT if is_hairpin => Some(Kind::SNAT),
        Kind::SNAT => Some(Kind::UNSNAT),
        _ => None,
    }
}

#[inline(always)]
fn touch<F: Family, T: Tables<F>>(
    tables: &mut T,
    key: &F::FlowKey,
    set: State,
    clear: State,
    now: u32,
) -> bool {
    tables.touch(Tier::Established, key, set, clear, now)
        || tables.touch(Tier::HalfOpen, key, set, clear, now)
}

/// Whether this packet shows that the client hears the answers.
///
/// TCP: the client repeats a number that only the answer told it, or the endpoint speaks beyond
/// its SYN, which its own stack allows only after that. UDP: as in conntrack, an answered flow
/// that goes on for two seconds.
#[inline(always)]
fn is_proved(flow: &FlowState, event: &Event) -> bool {
    let replied = flow.marks.state().any(State::REPLIED);
    if !event.is_tcp {
        return replied && event.now.saturating_sub(flow.proof) > lifetime::UDP_PROVED;
    }
    if event.flags.any(Flags::RST) || event.flags.any(Flags::SYN) {
        return false;
    }
    match event.sender {
        Sender::Client => replied && flow.proof != 0 && event.ack == flow.proof,
        Sender::Endpoint => true,
    }
}

/// Moves a flow to the established tier, with its new state.
///
/// The new entry is there before the old one goes, and lookups ask the established tier first:
/// no packet finds neither, except one that looked between the two and asks again
/// (`ingress::miss`).
#[inline(never)]
fn promote<F: Family, T: Tables<F>>(
    tables: &mut T,
    path: &Path<F>,
    state: State,
    proof: u32,
    now: u32,
) {
    let mut kind = Kind::DNAT;
    loop {
        let key = path.key(kind);
        let flow = path.half(kind, state, proof, now);
        // A full table refuses; the flow then stays where it is.
        if tables.insert(Tier::Established, &key, &flow) != Insert::Refused {
            tables.remove(Tier::HalfOpen, &key);
        }
        match next(kind, path.is_hairpin()) {
            Some(next) => kind = next,
            None => return,
        }
    }
}
