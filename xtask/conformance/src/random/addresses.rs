//! Who has which address.

use std::net::IpAddr;

/// Name of the node that is looked at.
pub(super) const NODE: &str = "node-a";
/// Names of others.
pub(super) const OTHERS: [&str; 2] = ["node-b", "node-c"];
/// Zones.
pub(super) const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// An address of either family by the same number.
pub(super) fn of(is_v6: bool, v4: [u8; 4], v6: [u16; 8]) -> IpAddr {
    if is_v6 { v6.into() } else { v4.into() }
}

const DOC: u16 = 0x2001;
const DB8: u16 = 0xdb8;

/// The node's `n`th address.
pub(super) fn node(is_v6: bool, n: u8) -> IpAddr {
    of(is_v6, [192, 168, n, 2], [DOC, DB8, n.into(), 0, 0, 0, 0, 2])
}

/// Another node.
pub(super) fn other_node(is_v6: bool) -> IpAddr {
    of(is_v6, [192, 168, 0, 3], [DOC, DB8, 0, 0, 0, 0, 0, 3])
}

/// The `n`th pod of the `of_node`th node.
pub(super) fn pod(is_v6: bool, of_node: u8, n: u8) -> IpAddr {
    let v6 = [0xfd00, 0x10, 0x180, of_node.into(), 0, 0, 0, n.into()];
    of(is_v6, [10, 180, of_node, n], v6)
}

/// A pod whose address is in no range that is told of.
pub(super) fn stray_pod(is_v6: bool) -> IpAddr {
    of(is_v6, [10, 99, 0, 5], [0xfd00, 0x99, 0, 0, 0, 0, 0, 5])
}

/// The `n`th client in the world.
pub(super) fn client(is_v6: bool, n: u8) -> IpAddr {
    let v4 = if n == 0 {
        [203, 0, 113, 2]
    } else {
        [198, 51, 100, 7]
    };
    of(is_v6, v4, [0x2600, 0x5300 + u16::from(n), 0, 0, 0, 0, 0, 7])
}

/// The `n`th cluster IP.
pub(super) fn cluster_ip(is_v6: bool, n: u8) -> IpAddr {
    let v6 = [0xfd00, 0x172, 0x30, 0, 0, 0, 0, n.into()];
    of(is_v6, [172, 30, 0, n], v6)
}

/// The `n`th address that is nobody's otherwise.
pub(super) fn vip(is_v6: bool, n: u8) -> IpAddr {
    of(
        is_v6,
        [192, 0, 2, n],
        [DOC, DB8, 0xee, 0, 0, 0, 0, n.into()],
    )
}
