//! The slow parts of the data path: what a flow's first packet needs, and its last, and repair.
//!
//! Each part works on a [`Work`] and answers with a [`Step`]. On the host a part is a plain call.
//! In the kernel it is a global function that is verified once and on its own, whatever the state
//! of the program that calls it, and its `Work` lies in per-CPU memory: so neither the verifier's
//! effort nor the stack multiplies along the chain of calls.

use super::flow::{Path, destination_of};
use super::icmp::Sums;
use super::note::{Event, Sender};
use super::rewrite::Change;
use super::tables::{Past, Tables, Touch};
use super::verdict::Step;
use super::{
    choose, claim, direct, fragment, frontend, icmp, ingress, miss, note, open, own, repair,
    report, sweep,
};
use crate::abi::flow::{Flow as _, FlowKey as _};
use crate::abi::{EndpointFlags, EndpointSet, Family, FlowFlags, Hop, Kind, Tier, What};
use crate::net::tcp::Flags;
use crate::net::{Piece, Proto};
use bytemuck::Zeroable as _;

/// What a part works on.
#[derive(Clone, Copy, Debug)]
pub struct Work<F: Family> {
    /// The packet's key.
    pub key: F::FlowKey,
    /// The key of another half, from which the packet's may be rebuilt; or the addresses of a rare
    /// packet as it came.
    pub answer: F::FlowKey,
    /// Index of the device that it came in by.
    pub device: u32,
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
    /// What was decided of its flow.
    pub flags: FlowFlags,
    /// Its way from a bridge port to the endpoint, as far as the flow knows it.
    pub hop: Hop,
    /// Whether the flow is to ask for that way anew.
    pub asks: bool,
    /// The service port of the frontend that it is for.
    pub service: u32,
    /// That one's endpoints for packets of its origin.
    pub set: EndpointSet,
    /// The property that endpoints have which are in that set.
    pub listed: EndpointFlags,
    /// For how long a client keeps its endpoint, in seconds; 0 for not at all.
    pub affinity_timeout: u32,
    /// Which endpoint is asked for a lost half, by its place in the set; or which one is chosen, by
    /// its slot.
    pub index: u32,
    /// The half that is worked on.
    pub kind: Kind,
    /// Whether the flow moves to the established tier.
    pub moves: bool,
    /// Which piece of a datagram the packet is, if it is to be noted what becomes of it.
    pub piece: Piece,
    /// The datagram that the packet is a fragment of.
    pub datagram: F::FragmentKey,
    /// What became of its first one.
    pub fragment: F::Fragment,
    /// What is decided of a first fragment.
    pub step: Step,
    /// Whether the client's half may be there already and is to be replaced.
    pub replaces: bool,
    /// The checksums of the packet that an ICMP error quotes.
    pub sums: Sums,
    /// What is told of it.
    pub what: What,
}

/// Where a packet's [`Work`] lies: on the stack, or in the kernel's per-CPU memory.
pub trait Room<F: Family> {
    /// The work; what was in it is of an earlier packet.
    fn work(&mut self) -> Option<&mut Work<F>>;
}

/// The parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A packet of no known flow came in: [`miss::miss`].
    Miss,
    /// A packet is for an address of Services and none of these: [`frontend::whole`].
    Whole,
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
    /// The endpoint is chosen: [`choose::choose`].
    Choose,
    /// The client may have had one before: [`choose::recall`].
    Recall,
    /// It is to have the same one again: [`choose::remember`].
    Remember,
    /// The endpoint's side is claimed: [`claim::claim`].
    Claim,
    /// One half of that: [`claim::claim_half`].
    ClaimHalf,
    /// The client's half is entered: [`open::enter`].
    Enter,
    /// A packet leaves that is no flow's: [`own::leaves`].
    Leaves,
    /// A packet came in for one of the node's addresses: [`own::arrives`].
    Arrives,
    /// The same in the middle of a connection: [`own::goes_on`].
    GoesOn,
    /// A packet came in that a note was left for: [`own::answers`].
    Answers,
    /// A packet goes straight to an endpoint: [`direct::direct`].
    Direct,
    /// An endpoint's packet changes the note of its direct flow: [`direct::note_direct`].
    NoteDirect,
    /// One half takes down the flow's new state: [`note::note_half`].
    NoteHalf,
    /// What becomes of a first fragment is noted: [`fragment::note`].
    NoteFragment,
    /// An ICMP error quotes a packet, of which this is the reverse: [`icmp::quote`].
    Quote,
    /// A half may be over: [`sweep::sweep_one`]. Its work lies elsewhere than that of packets, which
    /// may come in between.
    Sweep,
    /// Somebody listens to flows: [`report::tell`].
    Report,
    /// A packet goes nowhere: [`report::count_out`].
    CountOut,
}

/// Runs a part.
#[inline(always)]
pub fn run<F: Family, T: Tables<F>>(tables: &mut T, part: Part, work: &mut Work<F>) -> Step {
    match part {
        Part::Miss => miss::miss(tables, work),
        Part::Whole => frontend::whole(tables, work),
        Part::Renew => ingress::renew(tables, work),
        Part::Note => note::note(tables, work),
        Part::RepairReply => repair::repair_reply(tables, work),
        Part::RepairForward => repair::repair_forward(tables, work),
        Part::RepairHairpin => repair::repair_hairpin(tables, work),
        Part::Probe => repair::probe(tables, work),
        Part::Choose => choose::choose(tables, work),
        Part::Recall => choose::recall(tables, work),
        Part::Remember => choose::remember(tables, work),
        Part::Claim => claim::claim(tables, work),
        Part::ClaimHalf => claim::claim_half(tables, work),
        Part::Enter => open::enter(tables, work),
        Part::Leaves => own::leaves(tables, work),
        Part::Arrives => own::arrives(tables, work),
        Part::GoesOn => own::goes_on(tables, work),
        Part::Answers => own::answers(tables, work),
        Part::Direct => direct::direct(tables, work),
        Part::NoteDirect => direct::note_direct(tables, work),
        Part::NoteHalf => note::note_half(tables, work),
        Part::NoteFragment => fragment::note(tables, work),
        Part::Quote => icmp::quote(tables, work),
        Part::Sweep => sweep::sweep_one(tables, work),
        Part::Report => report::tell(tables, work),
        Part::CountOut => report::count_out(tables, work),
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
            device: 0,
            tier: Tier::HalfOpen,
            event: Event {
                sender: Sender::Client,
                proto: Proto::UDP,
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
            flags: FlowFlags::NONE,
            hop: Hop::UNKNOWN,
            asks: false,
            service: 0,
            set: EndpointSet::EMPTY,
            listed: EndpointFlags::NONE,
            affinity_timeout: 0,
            index: 0,
            kind: Kind::DNAT,
            moves: false,
            piece: Piece::Whole,
            datagram: F::FragmentKey::zeroed(),
            fragment: F::Fragment::zeroed(),
            step: Step::PASS,
            replaces: false,
            sums: Sums::default(),
            what: What::NOTHING,
        }
    }

    /// The packet follows its flow, of which this is the client's half.
    #[inline(always)]
    pub fn goes_by(&mut self, flow: &F::Flow) {
        let state = flow.state();
        self.change = destination_of(flow);
        self.flags = state.marks.flags();
        self.hop = state.hop;
    }

    /// The packet follows `path`.
    #[inline(always)]
    pub const fn goes_by_path(&mut self) {
        self.change = self.path.towards_endpoint();
        self.flags = self.path.flags;
        self.hop = self.path.hop;
    }

    /// The frontend that the packet is for.
    #[inline(always)]
    pub fn frontend_key(&self) -> F::FrontendKey {
        F::frontend_key(self.key.dst(), self.key.dport(), self.key.proto())
    }
}
