//! Datagrams in fragments, of which only the first has ports.
//!
//! What becomes of the first one is noted, under what all have in common: addresses,
//! identification, protocol, and the hook. The others do as it did, but only an address is replaced
//! in them, and no checksum is theirs but the IPv4 header's.
//!
//! Conntrack puts datagrams together between the hooks where it is in use, and the stack takes them
//! apart again. So each hook has its own notes: what leaves need not be the fragments that came.
//!
//! One that comes before its datagram's first, or of which nothing came, is dropped if it is for a
//! Service: it would follow the default route. But what is for an address of the node, or comes from
//! an endpoint, passes: it may have nothing to do with a Service. There, a first fragment that is
//! left alone leaves no note, and removes that of an earlier datagram.

use super::extension::is_passed_over;
use super::header::{Network, Wire};
use super::packet::Packet;
use super::tables::Tables;
use super::verdict::Step;
use super::work::{Part, Work};
use crate::abi::flow::FlowKey as _;
use crate::abi::fragment::{Fragment as _, FragmentKey as _, FragmentState};
use crate::abi::{Counter, Family, FlowFlags, Hook, Hop};
use crate::net::{Piece, Proto};
use bytemuck::Zeroable as _;

/// How long a first fragment counts, in seconds: as long as the kernel waits for the others
/// (`net.ipv4.ipfrag_time`, `net.ipv6.ip6frag_time`).
pub const fn lifetime<F: Family>() -> u32 {
    if F::IS_V6 { 60 } else { 30 }
}

/// Whether a fragment that is not the first may be of a protocol that is translated.
#[inline(always)]
pub(super) const fn may_be_translated<F: Family>(network: &Network<F>) -> bool {
    match network.proto {
        Proto::TCP | Proto::UDP | Proto::SCTP => true,
        proto => F::IS_V6 && is_passed_over(proto),
    }
}

/// Says in `work` which datagram a packet with `work.key` is the first fragment of, if it is one
/// that `matters`.
#[inline(always)]
pub(super) fn meet<F: Wire, P: Packet>(
    packet: &P,
    work: &mut Work<F>,
    network: &Network<F>,
    (hook, matters): (Hook, bool),
) {
    work.piece = Piece::Whole;
    if network.piece != Piece::First || !matters {
        return;
    }
    if let Some((id, proto)) = F::datagram(packet, network) {
        work.datagram.fill(work.key.addrs(), id, proto, hook);
        work.piece = Piece::First;
    }
}

/// Notes what becomes of a first fragment, which may be something else in the end: one that cannot
/// be translated is dropped for the reason `otherwise`.
#[inline(always)]
pub(super) fn begin<F: Family, T: Tables<F>>(
    tables: &mut T,
    work: &mut Work<F>,
    step: Step,
    otherwise: Counter,
) -> Step {
    work.step = step;
    let ports = (work.key.sport(), work.key.dport());
    // The checksum covers the whole datagram, and how it changes depends on the length of that.
    if step == Step::REWRITE
        && work.key.proto() == Proto::SCTP
        && ports != (work.change.sport, work.change.dport)
    {
        work.step = Step::drop(otherwise);
    }
    tables.part(Part::NoteFragment, work);
    work.step
}

/// Forgets what became of another datagram like one of which nothing need be known.
#[inline(always)]
pub(super) fn forget<F: Wire, P: Packet, T: Tables<F>>(
    packet: &P,
    tables: &mut T,
    work: &mut Work<F>,
    network: &Network<F>,
    hook: Hook,
) {
    if fill_key(packet, work, network, hook).is_some() {
        work.step = Step::PASS;
        tables.part(Part::NoteFragment, work);
    }
}

/// What becomes of a fragment that is not the first: nothing to say if that was not seen.
#[inline(always)]
pub(super) fn follow<F: Wire, P: Packet, T: Tables<F>>(
    packet: &P,
    tables: &mut T,
    work: &mut Work<F>,
    network: &Network<F>,
    hook: Hook,
) -> Step {
    if fill_key(packet, work, network, hook).is_none() {
        return Step::NONE;
    }
    recall(tables, work)
}

/// Fills in `work.datagram` for a packet between the addresses in `work.answer`.
#[inline(always)]
fn fill_key<F: Wire, P: Packet>(
    packet: &P,
    work: &mut Work<F>,
    network: &Network<F>,
    hook: Hook,
) -> Option<()> {
    let (id, proto) = F::datagram(packet, network)?;
    work.datagram.fill(work.answer.addrs(), id, proto, hook);
    Some(())
}

/// Notes that `work.step` becomes of the first fragment of `work.datagram`.
#[inline(always)]
pub fn note<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let is_ingress = work.datagram.hook() == Hook::INGRESS;
    if work.step == Step::PASS && !(is_ingress && is_for_service(tables, work.datagram.dst())) {
        tables.forget_fragment(&work.datagram);
        return Step::NONE;
    }
    let is_rewritten = work.step == Step::REWRITE;
    let (flags, hop) = if is_rewritten && is_ingress {
        (work.flags, work.hop)
    } else {
        (FlowFlags::NONE, Hop::UNKNOWN)
    };
    let addr = if is_rewritten {
        work.change.addr
    } else {
        F::Addr::zeroed()
    };
    let state = FragmentState {
        step: work.step.word(),
        seen: tables.now(),
        hop,
    };
    work.fragment.fill(&addr, flags, state);
    tables.note_fragment(&work.datagram, &work.fragment);
    Step::NONE
}

/// Whether what comes in for an address that may be a Service's can be for nobody else.
#[inline(always)]
pub(super) fn is_for_service<F: Family, T: Tables<F>>(tables: &T, addr: F::Addr) -> bool {
    // The node's own addresses are endpoints as well where they are frontends.
    !tables.may_be_endpoint(addr)
}

/// What became of the first fragment of `work.datagram`: nothing to say if that is not known, or
/// was too long ago to be of the same one.
#[inline(always)]
fn recall<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let Some(first) = tables.fragment(&work.datagram) else {
        return Step::NONE;
    };
    let state = *first.state();
    work.change.addr = first.addr();
    work.flags = first.flags();
    work.hop = state.hop;
    if tables.now().saturating_sub(state.seen) > lifetime::<F>() {
        return Step::NONE;
    }
    Step::of_word(state.step)
}
