//! Where a packet comes from, as far as that decides on its way.

use super::tables::Tables;
use super::work::Work;
use crate::abi::flow::FlowKey as _;
use crate::abi::{Family, Origin};

/// The origin of a packet that came in. The node's own are not seen here.
#[inline(always)]
pub fn origin_of<F: Family, T: Tables<F>>(tables: &T, work: &Work<F>) -> Origin {
    let is_inside = tables.detector().is_some_and(|detector| {
        if detector.by_device == 0 {
            F::is_detected(detector, work.key.src())
        } else {
            let device = tables.device(work.device);
            device.is_some_and(|device| device.inside != 0)
        }
    });
    if is_inside {
        Origin::Inside
    } else {
        Origin::Outside
    }
}

/// The origin of a process of the node. Where addresses decide, those of the node are no
/// exception; by no device has its packet come in.
#[inline(always)]
pub fn host_origin<F: Family, T: Tables<F>>(
    tables: &T,
    work: &Work<F>,
    has_source: bool,
) -> Origin {
    let is_inside = has_source
        && tables.detector().is_some_and(|detector| {
            detector.by_device == 0 && F::is_detected(detector, work.key.src())
        });
    if is_inside {
        Origin::Inside
    } else {
        Origin::Host
    }
}
