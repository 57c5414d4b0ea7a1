//! Where a process of the node gets to that speaks to a Service: decided at its socket, before
//! there is a packet.

use super::choose::choose_for;
use super::frontend::whole_for;
use super::origin::host_origin;
use super::tables::Tables;
use super::verdict::Step;
use super::work::Work;
use crate::abi::flow::FlowKey as _;
use crate::abi::{Counter, Family, FlowFlags, Hook};
use crate::net::{Address as _, Port, Proto};
use bytemuck::Zeroable as _;

/// What a process asks for.
#[derive(Clone, Copy, Debug)]
pub struct Call<A> {
    /// The address that it will send from, if that is known already. Without one, source ranges
    /// are not held against it, all processes share what session affinity remembers, and nothing
    /// is a hairpin.
    pub source: Option<A>,
    /// The address that it wants to reach.
    pub dst: A,
    /// The port there.
    pub port: Port,
    /// Transport protocol.
    pub proto: Proto,
}

/// What it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<A> {
    /// What it asks for.
    Pass,
    /// An endpoint.
    Rewrite {
        /// Its address.
        addr: A,
        /// Its port.
        port: Port,
        /// Its index.
        slot: u32,
        /// Whether the node's packets to it are to be masqueraded.
        masquerade: bool,
    },
    /// An error, as from a port where nobody listens.
    Reject,
    /// Nothing, for this reason.
    Drop(Counter),
}

/// Decides on a call. Nothing but session affinity takes notice of it; the caller counts.
#[inline(always)]
pub fn connect<F: Family, T: Tables<F>>(
    tables: &mut T,
    work: &mut Work<F>,
    call: &Call<F::Addr>,
) -> Answer<F::Addr> {
    // All addresses of the loopback network lead to the same Services.
    let dst = call.dst.unique();
    let src = call.source.unwrap_or_else(F::Addr::zeroed);
    let ports = (Port::zeroed(), call.port);
    work.key
        .fill((&src, &dst), ports, call.proto, Hook::INGRESS);
    work.event.now = tables.now();
    let origin = host_origin(tables, work, call.source.is_some());
    let frontend = tables.frontend(&work.frontend_key());
    let step = match frontend {
        Some(_) => choose_for(tables, work, origin, call.source.is_some()),
        None => Step::PASS,
    };
    // As if there were no frontend.
    let step = if step == Step::PASS {
        whole_for(tables, work, origin)
    } else if step == Step::NONE {
        let path = &work.path;
        return Answer::Rewrite {
            addr: path.endpoint,
            port: path.endpoint_port,
            slot: path.slot,
            masquerade: path.flags != FlowFlags::NONE,
        };
    } else {
        step
    };
    match step.dropped() {
        Some(reason) => Answer::Drop(reason),
        None if step == Step::REJECT => Answer::Reject,
        None => Answer::Pass,
    }
}
