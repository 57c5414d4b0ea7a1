//! The frontend that a packet is for: one of a port, or one of a whole address.

use super::choose::{is_kept_out, nowhere};
use super::origin::origin_of;
use super::tables::Tables;
use super::verdict::Step;
use super::work::Work;
use crate::abi::flow::FlowKey as _;
use crate::abi::{Family, Frontend, Origin};
use crate::net::{Port, Proto};
use bytemuck::Zeroable as _;

/// The frontend that a packet is for, unless packets of its origin are not to notice it.
#[inline(always)]
pub(super) fn frontend_for<F: Family, T: Tables<F>>(
    tables: &T,
    work: &Work<F>,
) -> Option<Frontend> {
    let frontend = tables.frontend(&work.frontend_key())?;
    // Most have endpoints for everybody; of those it does not matter who asks.
    let is_empty = frontend.inside.count() == 0 || frontend.outside.count() == 0;
    let is_unnoticed = is_empty
        && frontend.passes(origin_of(tables, work))
        && !is_kept_out(tables, work, &frontend);
    (!is_unnoticed).then_some(frontend)
}

/// A packet for an address of Services, but for none of them: nothing to say if it is none of our
/// business.
#[inline(always)]
pub fn whole<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let origin = origin_of(tables, work);
    whole_for(tables, work, origin)
}

/// The same for a packet of this origin.
#[inline(always)]
pub(super) fn whole_for<F: Family, T: Tables<F>>(
    tables: &T,
    work: &Work<F>,
    origin: Origin,
) -> Step {
    let key = F::frontend_key(work.key.dst(), Port::zeroed(), Proto::ANY);
    let Some(frontend) = tables.frontend(&key) else {
        return Step::NONE;
    };
    let step = nowhere(frontend.flags.empty(origin));
    if step == Step::PASS { Step::NONE } else { step }
}
