//! Who is inside: the detector of local traffic as the programs have it.

use bytemuck::Zeroable as _;
use ipnet::IpNet;
use proxy_common::abi::Detector;

use super::facts::Facts;
use crate::config::Detect;
use crate::model::Family;

/// The detector that is configured, on this node.
pub(super) fn detector(detect: &Detect, facts: &Facts) -> Detector {
    let ranges = match detect {
        Detect::ClusterCidr(ranges) => ranges,
        Detect::NodeCidr => &facts.pod_cidrs,
        Detect::BridgeInterface(_) | Detect::InterfaceNamePrefix(_) => {
            return Detector {
                by_device: 1,
                ..Detector::zeroed()
            };
        }
    };
    let mut detector = Detector::zeroed();
    // Only the first of each family counts.
    for range in ranges.iter().rev() {
        match range.trunc() {
            IpNet::V4(net) => {
                detector.has4 = 1;
                detector.addr4 = net.addr().into();
                detector.mask4 = net.netmask().into();
            }
            IpNet::V6(net) => {
                detector.has6 = 1;
                detector.addr6 = net.addr().into();
                detector.mask6 = net.netmask().into();
            }
        }
    }
    detector
}

/// Whether it tells anybody of this family from others.
pub(super) const fn detects(detector: &Detector, family: Family) -> bool {
    let by_source = match family {
        Family::V4 => detector.has4,
        Family::V6 => detector.has6,
    };
    detector.by_device != 0 || by_source != 0
}
