//! Packets that come in and are of no known flow.

use super::direct;
use super::frontend::frontend_for;
use super::lifetime;
use super::note::Event;
use super::tables::Tables;
use super::verdict::Step;
use super::work::{Part, Work};
use crate::abi::flow::{Flow as _, FlowKey as _};
use crate::abi::{Counter, Family, FrontendFlags, Kind, Tier, trace_of};
use crate::net::Proto;
use crate::net::tcp::Flags;

/// A packet of no known flow.
#[inline(always)]
pub fn miss<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let event = work.event;
    // A flow on its way between the tiers was in neither place when it was looked for.
    if let Some(flow) = tables.flow(Tier::Established, &work.key) {
        if flow.state().marks.kind() == Kind::OWN {
            return Step::PASS;
        }
        work.goes_by(flow);
        return Step::REWRITE;
    }
    work.replaces = false;
    let Some(frontend) = frontend_for(tables, work) else {
        return no_frontend(tables, work);
    };
    let is_own = frontend.flags.has(FrontendFlags::OWN_ADDRESS);
    if is_own {
        let step = tables.part(Part::Arrives, work);
        if step != Step::NONE {
            return step;
        }
    }
    if event.proto.connects() && !event.flags.opens() {
        if tables.part(Part::RepairForward, work) == Step::REWRITE {
            return Step::REWRITE;
        }
        if is_own {
            return tables.part(Part::GoesOn, work);
        }
        if !is_middle(&event) {
            return Step::drop(Counter::DropInvalid);
        }
        if !tables.is_tcp_loose() {
            return Step::drop(Counter::DropMidFlow);
        }
        tables.count(Counter::Loose);
    }
    if !event.proto.connects()
        && is_searched(tables, work)
        && tables.part(Part::RepairForward, work) == Step::REWRITE
    {
        return Step::REWRITE;
    }
    Step::OPEN
}

/// Whether a datagram of no known flow may belong to one that has lost its client's half.
#[inline(always)]
fn is_searched<F: Family, T: Tables<F>>(tables: &T, work: &Work<F>) -> bool {
    let key = &work.key;
    let trace = trace_of(
        (key.src(), key.dst()),
        (key.sport(), key.dport()),
        key.proto(),
    );
    direct::is_fresh(tables.trace(trace), work.event.now, lifetime::UDP_REPLIED)
}

/// Whether a packet that does not open a connection may begin a flow as one of its middle. Of what
/// it does not know, conntrack calls all INVALID but a plain ACK of TCP.
#[inline(always)]
const fn is_middle(event: &Event) -> bool {
    let sync = Flags::SYN.with(Flags::RST).with(Flags::FIN);
    matches!(event.proto, Proto::TCP) && !event.flags.any(sync) && event.flags.any(Flags::ACK)
}

/// A packet for an address and port where there is no Service.
#[inline(always)]
fn no_frontend<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let key = &work.key;
    if tables.may_be_endpoint(key.dst())
        && tables.may_be_served(key.dst(), key.dport(), key.proto())
    {
        let goes_on = work.event.proto.connects() && !work.event.flags.opens();
        return if goes_on { Step::PASS } else { Step::DIRECT };
    }
    if tables.may_be_frontend(key.dst()) {
        if tables.part(Part::RepairHairpin, work) == Step::REWRITE {
            return Step::REWRITE;
        }
        let event = &work.event;
        let begins = !event.proto.connects()
            || event.flags.opens()
            || (is_middle(event) && tables.is_tcp_loose());
        if begins {
            let step = tables.part(Part::Whole, work);
            if step != Step::NONE {
                return step;
            }
        }
        tables.count(Counter::PassNoFrontend);
    }
    Step::PASS
}
