//! The slow parts of the data path: what a flow's first packet needs, and its last, and repair.
//!
//! Each part works on a [`Work`] and answers with a [`Step`]. On the host a part is a plain call.
//! In the kernel it is a global function that is verified once and on its own, whatever the state
//! of the program that calls it, and its `Work` lies in per-CPU memory: so neither the verifier's
//! effort nor the stack multiplies along the chain of calls.

use super::flow::Path;
use super::note::{Event, Sender};
use super::rewrite::Change;
use super::tables::{Past, Tables, Touch};
use super::verdict::Step;
use super::{claim, direct, ingress, note, open, repair};
use crate::abi::flow::FlowKey as _;
use crate::abi::{Family, Frontend, Hop, Kind, Tier};
use crate::net::tcp::Flags;
use bytemuck::Zeroable as _;

/// What a part works on.
#[derive(Clone, Copy, Debug)]
pub struct Work<F: Family> {
    /// The packet's key.
    pub key: F::FlowKey,
    /// The key of another half, from which the packet's may be rebuilt.
    pub answer: F::FlowKey,
    /// Where its flow was found, if it was.
    pub tier: Tier,
    /// What of the packet matters.
    pub event: Event,
    /// The flow, as soon as one is chosen.
    pub path: Path<F>,
    /// The flow as it was before it chose again.
    pub old: Path<F>,
    /// What the flow has been through, this packet included.
    pub past: Past,
    /// What this packet changes in it.
    pub touch: Touch,
    /// What becomes of the packet.
    pub change: Change<F::Addr>,
    /// Its way from a bridge port to the endpoint, as far as the flow knows it.
    pub hop: Hop,
    /// Whether the flow is to ask for that way anew.
    pub asks: bool,
    /// The frontend whose endpoints are asked for a lost half.
    pub frontend: Frontend,
    /// Which of them is asked.
    pub index: u32,
    /// The half that is worked on.
    pub kind: Kind,
    /// Whether the flow moves to the established tier.
    pub moves: bool,
    /// Whether the client's half may be there already and is to be replaced.
    pub replaces: bool,
}

/// Where a packet's [`Work`] lies: on the stack, or in the kernel's per-CPU memory.
pub trait Room<F: Family> {
    /// The work; what was in it is of an earlier packet.
    fn work(&mut self) -> Option<&mut Work<F>>;
}

/// The parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A packet of no known flow came in: [`ingress::miss`].
    Miss,
    /// A known flow may choose again: [`ingress::renew`].
    Renew,
    /// A packet changes its flow's state: [`note::note`].
    Note,
    /// An endpoint's packet has no entry: [`repair::repair_reply`].
    RepairReply,
    /// The client's half is lost: [`repair::repair_forward`].
    RepairForward,
    /// A hairpin's way back is lost: [`repair::repair_hairpin`].
    RepairHairpin,
    /// One endpoint is asked for it: [`repair::probe`].
    Probe,
    /// The endpoint is drawn: [`open::choose`].
    Choose,
    /// The endpoint's side is claimed: [`claim::claim`].
    Claim,
    /// One half of that: [`claim::claim_half`].
    ClaimHalf,
    /// The client's half is entered: [`open::enter`].
    Enter,
    /// A packet goes straight to an endpoint: [`direct::direct`].
    Direct,
    /// An endpoint's packet changes the note of its direct flow: [`direct::note_direct`].
    NoteDirect,
    /// One half takes down the flow's new state: [`note::note_half`].
    NoteHalf,
}

/// Runs a part.
#[inline(always)]
pub fn run<F: Family, T: Tables<F>>(tables: &mut T, part: Part, work: &mut Work<F>) -> Step {
    match part {
        Part::Miss => ingress::miss(tables, work),
        Part::Renew => ingress::renew(tables, work),
        Part::Note => note::note(tables, work),
        Part::RepairReply => repair::repair_reply(tables, work),
        Part::RepairForward => repair::repair_forward(tables, work),
        Part::RepairHairpin => repair::repair_hairpin(tables, work),
        Part::Probe => repair::probe(tables, work),
        Part::Choose => open::choose(tables, work),
        Part::Claim => claim::claim(tables, work),
        Part::ClaimHalf => claim::claim_half(tables, work),
        Part::Enter => open::enter(tables, work),
        Part::Direct => direct::direct(tables, work),
        Part::NoteDirect => direct::note_direct(tables, work),
        Part::NoteHalf => note::note_half(tables, work),
    }
}

impl<F: Family> Work<F> {
    /// No work yet.
    pub fn empty() -> Self {
        let key = F::FlowKey::zeroed();
        let change = Change {
            addr: key.src(),
            sport: key.sport(),
            dport: key.dport(),
        };
        Self {
            key,
            answer: key,
            tier: Tier::HalfOpen,
            event: Event {
                sender: Sender::Client,
                is_tcp: false,
                flags: Flags::NONE,
                seq: 0,
                ack: 0,
                now: 0,
            },
            path: Path::empty(),
            old: Path::empty(),
            past: Past::default(),
            touch: Touch::default(),
            change,
            hop: Hop::UNKNOWN,
            asks: false,
            frontend: Frontend::zeroed(),
            index: 0,
            kind: Kind::DNAT,
            moves: false,
            replaces: false,
        }
    }

    /// The frontend that the packet is for.
    #[inline(always)]
    pub fn frontend_key(&self) -> F::FrontendKey {
        F::frontend_key(self.key.dst(), self.key.dport(), self.key.proto())
    }
}
