//! ICMP errors about packets of a flow.
//!
//! ```text
//! egress   from anybody to the client   about client:sport → ep:eport     as the stack has it
//!                              becomes  about client:cport → vip:vport
//! ingress  from anybody to vip          about vip:vport → client:cport    as the world has it
//!          becomes      to ep           about ep:eport → client:sport
//! ```
//!
//! The packet that an error quotes went the other way. So its reverse is the key of a half at the
//! same hook, and what that half makes of its packets, read backwards, becomes of the quote.
//! Hairpins have two halves more and are no special case. Of a masqueraded flow netfilter does its
//! own part between the hooks: there, errors are about the flow that conntrack knows.
//!
//! An endpoint that sends an error speaks as the Service, too; a router stays who it is. As in
//! conntrack, an error opens no flow and lets none live longer.

use super::flow::{destination_of, source_of};
use super::header::{Network, Wire};
use super::ingress::drop;
use super::lifetime::is_over;
use super::packet::Packet;
use super::quote::{Place, Ports};
use super::rewrite::word;
use super::tables::{Tables, find};
use super::verdict::{Step, Verdict};
use super::work::Work;
use crate::abi::flow::{Flow as _, FlowKey as _};
use crate::abi::{Counter, Family, Hook, Kind, Tier};
use crate::net::checksum::Difference;
use crate::net::{Address as _, Piece, Proto, icmp, ipv4};

/// The checksums of a quoted packet: as they are, then as they have to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// The one of an IPv4 header.
    pub header: u16,
    /// The one of the transport header, if there is one.
    pub transport: u16,
    /// Whether there is: the quote is long enough, and it is a sum.
    pub has_transport: bool,
    /// What the ICMP message's own changes by.
    pub difference: Difference,
}

/// Whether a packet is an ICMP error. Nobody cuts those.
#[inline(always)]
pub(super) fn is_error<F: Wire, P: Packet>(packet: &P, network: &Network<F>) -> bool {
    let is_message = network.proto == F::ICMP && network.piece == Piece::Whole;
    is_message && packet.read(network.payload).is_some_and(F::is_error)
}

/// Looks at an ICMP error between the addresses in `work.answer`: nothing to say before
/// [`super::work::Part::Quote`] is asked for the flow of what it quotes, whose answer is for
/// [`translate`].
///
/// Whoever calls asks in between, so that the three do not take room on the stack together.
#[inline(always)]
pub(super) fn inspect<F: Wire, P: Packet, T: Tables<F>>(
    packet: &P,
    tables: &mut T,
    work: &mut Work<F>,
    network: &Network<F>,
    hook: Hook,
) -> Option<Verdict> {
    let Some(quoted) = F::quoted(packet, network.payload + icmp::LEN) else {
        return Some(Verdict::Pass);
    };
    // An error goes to whom it quotes.
    if quoted.src != work.answer.dst()
        || (hook == Hook::EGRESS && !tables.may_be_endpoint(quoted.dst))
    {
        return Some(Verdict::Pass);
    }
    let Some((place, ports)) = quoted.place(packet, network.end()) else {
        if quoted.may_be_translated() {
            tables.count(Counter::PassIcmpError);
        }
        return Some(Verdict::Pass);
    };
    work.key.fill(
        (&quoted.dst, &quoted.src),
        (ports.dport, ports.sport),
        quoted.proto,
        hook,
    );
    work.event.now = tables.now();
    let transport = sum(packet, &place, quoted.proto);
    work.sums.header = quoted.check;
    work.sums.transport = transport.unwrap_or(0);
    work.sums.has_transport = transport.is_some();
    None
}

/// Translates an ICMP error whose flow was found.
#[inline(always)]
pub(super) fn translate<F: Wire, P: Packet, T: Tables<F>>(
    packet: &mut P,
    tables: &mut T,
    work: &mut Work<F>,
    network: &Network<F>,
    hook: Hook,
) -> Verdict {
    let quoted = F::quoted(packet, network.payload + icmp::LEN);
    let place = quoted.and_then(|quoted| quoted.place(packet, network.end()));
    match place.and_then(|(place, _)| rewrite(packet, work, network, &place, hook)) {
        Some(()) => Verdict::Rewritten,
        None if hook == Hook::EGRESS => drop(tables, work, Counter::DropRewriteOut),
        None => drop(tables, work, Counter::DropRewrite),
    }
}

/// The checksum of a quoted transport header, if the quote has it and it is a sum.
#[inline(always)]
fn sum<P: Packet>(packet: &P, place: &Place, proto: Proto) -> Option<u16> {
    if !place.has_check || place.is_crc {
        return None;
    }
    let sum = packet.read(place.check)?;
    // In UDP, zero says that there is none.
    (sum != 0 || proto != Proto::UDP).then_some(sum)
}

/// An error is about a packet whose reverse has this key: looks for its flow, and says what becomes
/// of the quote.
#[inline(always)]
pub fn quote<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let key = &work.key;
    // A flow on its way between the tiers may be in neither place when it is looked for.
    let found = find(tables, key)
        .or_else(|| Some((Tier::Established, tables.flow(Tier::Established, key)?)));
    let Some((tier, flow)) = found else {
        if tables.frontend(&work.frontend_key()).is_some() {
            tables.count(Counter::PassIcmpError);
        }
        return Step::NONE;
    };
    let state = flow.state();
    let (from, change) = match state.marks.kind() {
        Kind::DNAT | Kind::UNSNAT => (key.dst(), destination_of(flow)),
        Kind::UNDNAT | Kind::SNAT => (key.src(), source_of(flow)),
        _ => return Step::PASS,
    };
    // Of a flow that is over somebody else's packets may have the addresses.
    if is_over(key.proto(), tier, state, work.event.now) {
        return Step::PASS;
    }
    work.hop = state.hop;
    work.change = change;
    let addr = from.difference(change.addr);
    let ports = key
        .sport()
        .difference(change.sport)
        .and(key.dport().difference(change.dport));
    let sums = &mut work.sums;
    sums.difference = ports;
    if F::IS_V6 {
        sums.difference = ports.and(addr);
    } else {
        // To the sum of what is quoted, this makes up for the address.
        sums.header = addr.apply(sums.header);
    }
    if sums.has_transport {
        let before = sums.transport;
        let after = addr.and(ports).apply(before);
        // In UDP, zero would say that there is none.
        let is_none = after == 0 && key.proto() == Proto::UDP;
        let after = if is_none { 0xffff } else { after };
        sums.transport = after;
        sums.difference = sums.difference.replace(before.into(), after.into());
    }
    tables.count(Counter::IcmpError);
    Step::REWRITE
}

/// Writes what was decided; `None` if the kernel refused.
#[inline(always)]
fn rewrite<F: Wire, P: Packet>(
    packet: &mut P,
    work: &Work<F>,
    network: &Network<F>,
    place: &Place,
    hook: Hook,
) -> Option<()> {
    let (key, change, sums) = (&work.key, &work.change, &work.sums);
    let is_in = hook == Hook::INGRESS;
    let (quoted_at, own_at) = if is_in {
        (F::SRC, F::DST)
    } else {
        (F::DST, F::SRC)
    };
    packet.store(place.network + quoted_at, change.addr)?;
    if !F::IS_V6 {
        packet.store(place.network + ipv4::CHECK, sums.header)?;
    }
    let ports = Ports {
        sport: change.dport,
        dport: change.sport,
    };
    packet.store(place.transport, ports)?;
    if sums.has_transport {
        packet.store(place.check, sums.transport)?;
    }
    let check = network.payload + icmp::CHECK;
    packet.fix_checksum(check, sums.difference)?;
    if place.is_crc && place.has_check {
        fix_crc(packet, work, place, check)?;
    }
    let ((src, dst), (own_src, own_dst)) = (key.addrs(), work.answer.addrs());
    let (own, from) = if is_in {
        (own_dst, dst)
    } else {
        (own_src, src)
    };
    if own != from {
        return Some(());
    }
    F::readdress(packet, network.offset, check, from, &change.addr)?;
    F::store_address(packet, network.offset + own_at, &change.addr)
}

/// Corrects the checksum of a quoted SCTP packet for its ports, and for that the ICMP message's own
/// at `own`.
#[inline(always)]
fn fix_crc<F: Wire, P: Packet>(
    packet: &mut P,
    work: &Work<F>,
    place: &Place,
    own: usize,
) -> Option<()> {
    let (key, change) = (&work.key, &work.change);
    let before: u32 = packet.read(place.check)?;
    let difference = word((key.dport(), key.sport())) ^ word((change.dport, change.sport));
    // A device was to fill it in.
    if before == 0 || difference == 0 {
        return Some(());
    }
    let after = before ^ packet.crc_change(difference, place.len).to_le();
    packet.store(place.check, after)?;
    packet.fix_checksum(own, Difference::NONE.replace(before, after))
}
