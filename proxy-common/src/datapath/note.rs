//! What a packet of a known flow changes in it.
//!
//! Nothing is written on the hot path: only a new state bit, a noted time that has grown old, and
//! the move to the established tier touch the maps, and then both halves.

use super::direct::leave_trace;
use super::header::Transport;
use super::lifetime::{self, is_stale};
use super::report::report;
use super::tables::{Insert, Past, Tables, Touch};
use super::verdict::Step;
use super::work::{Part, Work};
use crate::abi::flow::Flow as _;
use crate::abi::{Family, FlowState, Kind, State, Tier, What};
use crate::net::Proto;
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
    /// Its protocol.
    pub proto: Proto,
    /// TCP control bits, or what stands for them: see [`Transport`].
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
            proto: transport.proto,
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
    pub(super) const fn bits(&self, state: State) -> (State, State) {
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
        && !is_stale(event.proto, flow.last_seen, event.now)
}

/// Writes down what a packet changes in its flow, in both halves.
#[inline(always)]
pub fn note<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    // By reference: copies would take stack at the deepest place there is.
    let (tier, event) = (work.tier, &work.event);
    let Some(flow) = tables.flow(tier, &work.key) else {
        return Step::NONE;
    };
    let state = flow.state();
    let before = state.marks.state();
    match event.sender {
        Sender::Client => work.path.read_forward(&work.key, flow),
        Sender::Endpoint => work.path.read_reverse(&work.key, flow),
    }
    let (set, clear) = event.bits(before);
    let after = State((before.0 | set.0) & !clear.0);
    // The answer to the opening carries the number that the client must repeat.
    let answers = event.proto.connects()
        && matches!(event.sender, Sender::Endpoint)
        && event.flags.0 & (Flags::SYN.0 | Flags::ACK.0) == Flags::SYN.0 | Flags::ACK.0;
    let proof = if answers {
        event.seq.wrapping_add(1)
    } else {
        0
    };
    work.past = Past {
        state: after,
        proof: if answers { proof } else { state.proof },
        now: event.now,
    };
    work.touch = Touch {
        set,
        clear,
        proof,
        now: event.now,
    };
    // What ends stays where it is: the move would write again what the table has lost of it.
    let moves = tier == Tier::HalfOpen && !after.is_closing() && is_proved(state, event);
    if !moves && set.0 | clear.0 == 0 && !is_stale(event.proto, state.last_seen, event.now) {
        return Step::NONE;
    }
    work.moves = moves;
    leave_trace(tables, work, moves || tier == Tier::Established);
    work.kind = Kind::DNAT;
    tables.part(Part::NoteHalf, work);
    work.kind = Kind::UNDNAT;
    tables.part(Part::NoteHalf, work);
    if work.path.is_hairpin() {
        work.kind = Kind::SNAT;
        tables.part(Part::NoteHalf, work);
        work.kind = Kind::UNSNAT;
        tables.part(Part::NoteHalf, work);
    }
    if after.is_closed() && !before.is_closed() && !work.path.is_direct() {
        let what = if after.is_finished() {
            What::FINISHED
        } else {
            What::RESET
        };
        report(tables, work, what);
    }
    Step::NONE
}

/// Writes the new state into one half, or moves it to the established tier.
///
/// The new entry is there before the old one goes, and lookups ask the established tier first:
/// no packet finds neither, except one that looked between the two and asks again
/// ([`super::miss::miss`]).
#[inline(always)]
pub fn note_half<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let (path, past, kind) = (&work.path, work.past, work.kind);
    if work.moves {
        // A full table refuses; the half then stays where it is.
        if tables.insert(Tier::Established, path, kind, past) != Insert::Refused {
            tables.remove(Tier::HalfOpen, path, kind);
        }
        return Step::NONE;
    }
    let found = tables.touch(Tier::Established, path, kind, work.touch)
        || tables.touch(Tier::HalfOpen, path, kind, work.touch);
    // What the table has lost is written again, except of a flow that is over.
    if !found && !past.state.is_closed() {
        let entered = tables.insert(work.tier, path, kind, past);
        // Or it was not lost, but moved up between the two looks.
        if work.tier == Tier::HalfOpen
            && tables
                .half(Tier::Established, path, kind)
                .is_some_and(|moved| path.is_half(kind, moved))
        {
            tables.remove(Tier::HalfOpen, path, kind);
        } else if entered == Insert::Done && !path.is_direct() {
            report(tables, work, What::REBUILT);
        }
    }
    Step::NONE
}

/// Whether this packet shows that the client hears the answers.
///
/// TCP, and SCTP in its own terms: the client repeats a number that only the answer told it, or the endpoint speaks beyond
/// its SYN, which its own stack allows only after that. UDP: as in conntrack, an answered flow
/// that goes on for two seconds.
#[inline(always)]
const fn is_proved(flow: &FlowState, event: &Event) -> bool {
    let replied = flow.marks.state().any(State::REPLIED);
    if !event.proto.connects() {
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
