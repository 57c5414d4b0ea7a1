//! Removes halves of flows that are over.
//!
//! Without it the flow tables are always full of what has ended, and each new flow pushes out
//! another one, by age and not by whether it still lives. Userspace looks for candidates, because
//! walking a large map takes long; this program then looks at each of them once more and removes
//! it at once, because meanwhile the flow may have begun anew.

use bytemuck::{Pod, Zeroable};

use super::lifetime::may_go;
use super::packet::Packet;
use super::report::tell_swept;
use super::tables::Tables;
use super::verdict::Step;
use super::work::{Part, Room, Work};
use crate::abi::flow::{Flow as _, FlowKey as _};
use crate::abi::{Family, FlowState, Kind, Tier, V4, V6, What};
use crate::net::{Proto, eth};

/// Most keys that one run looks at.
pub const AT_ONCE: usize = 16;

/// What a run is told, as the payload of an Ethernet frame; keys of the frame's family follow, up
/// to [`AT_ONCE`] of them or to the end of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Order {
    /// The map that the keys are of: 0 the established one, 1 the half-open one.
    pub tier: u32,
    /// 1: room is short, see [`may_go`].
    pub hurry: u32,
}

impl Order {
    /// For keys of this tier.
    pub const fn new(tier: Tier, hurry: bool) -> Self {
        Self {
            tier: match tier {
                Tier::Established => 0,
                Tier::HalfOpen | Tier::Renewal => 1,
            },
            hurry: hurry as u32,
        }
    }

    const fn tier(self) -> Tier {
        match self.tier {
            0 => Tier::Established,
            _ => Tier::HalfOpen,
        }
    }
}

/// Removes those of the halves named by `packet` that are over; returns how many.
#[inline(always)]
pub fn sweep<P, T, R>(packet: &P, tables: &mut T, room: &mut R) -> u32
where
    P: Packet,
    T: Tables<V4> + Tables<V6>,
    R: Room<V4> + Room<V6>,
{
    match packet.protocol() {
        eth::IPV4 => of_family::<V4, P, T, R>(packet, tables, room),
        eth::IPV6 => of_family::<V6, P, T, R>(packet, tables, room),
        _ => 0,
    }
}

#[inline(always)]
fn of_family<F: Family, P: Packet, T: Tables<F>, R: Room<F>>(
    packet: &P,
    tables: &mut T,
    room: &mut R,
) -> u32 {
    let (Some(order), Some(work)) = (packet.load::<Order>(eth::LEN), room.work()) else {
        return 0;
    };
    work.tier = order.tier();
    work.asks = order.hurry != 0;
    let mut removed = 0;
    let mut index = 0;
    while index < AT_ONCE {
        let offset = eth::LEN + size_of::<Order>() + index * size_of::<F::FlowKey>();
        let Some(key) = packet.load::<F::FlowKey>(offset) else {
            return removed;
        };
        work.key = key;
        if tables.part(Part::Sweep, work) == Step::TAKEN {
            removed += 1;
        }
        index += 1;
    }
    removed
}

/// Removes the half at `work.key` if it is over, or only seems to be where `work.asks` for room:
/// taken away then.
#[inline(always)]
pub fn sweep_one<F: Family, T: Tables<F>>(tables: &mut T, work: &mut Work<F>) -> Step {
    let (tier, now) = (work.tier, tables.now());
    let Some(flow) = tables.flow(tier, &work.key) else {
        return Step::NONE;
    };
    let proto = work.key.proto();
    if !may_go(proto, tier, flow.state(), now, work.asks) {
        return Step::NONE;
    }
    let what = told_of(proto, tier, flow.state(), now);
    work.path.read_forward(&work.key, flow);
    tables.remove_key(tier, &work.key);
    if let Some(what) = what {
        tell_swept(tables, &work.path, what);
    }
    Step::TAKEN
}

/// What is told of a flow that goes; nothing if it was told already when the flow was closed, or if
/// this is not the half that stands for it.
#[inline(always)]
fn told_of(proto: Proto, tier: Tier, half: &FlowState, now: u32) -> Option<What> {
    if half.marks.kind() != Kind::DNAT || half.service == 0 {
        None
    } else if !may_go(proto, tier, half, now, false) {
        Some(What::HURRIED)
    } else if proto == Proto::UDP || !half.marks.state().is_closed() {
        Some(What::EXPIRED)
    } else {
        None
    }
}
