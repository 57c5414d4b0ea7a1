//! The table that is wanted.

use super::table::{Chain, Hook, Statement, Table};
use crate::model::Family;

/// Name of the table, the same for each family.
pub const TABLE: &str = "kube-lottery";

/// The set of all `ClusterIP`s.
pub(super) const CLUSTER_IPS: &str = "cluster-ips";

/// The counter of packets that nobody translated.
pub(super) const UNTRANSLATED: &str = "untranslated";

/// What that counter is called beside those of the programs.
pub const DROP_UNTRANSLATED: &str = "drop-untranslated";

/// One line that says what it counts.
pub const MEANING: &str = "dropped: to a ClusterIP and translated by nobody: no program serves its \
    device yet, or no Service has the port";

/// Behind every DNAT: that is done at -100, and whatever else a host has at the hook stands before
/// 200 as well.
const LATE: i32 = 200;

/// What the table of a family should be.
pub(super) fn wanted(family: Family) -> Table {
    let drop_untranslated = vec![
        Statement::DestinationIn(CLUSTER_IPS),
        Statement::DestinationElsewhere,
        Statement::Count(UNTRANSLATED),
        Statement::Drop,
    ];
    let chain = |name, hook| Chain {
        name,
        hook,
        priority: LATE,
        rules: vec![drop_untranslated.clone()],
    };
    Table {
        name: TABLE,
        family,
        sets: vec![CLUSTER_IPS],
        counters: vec![UNTRANSLATED],
        chains: vec![
            chain("prerouting", Hook::Prerouting),
            chain("output", Hook::Output),
        ],
    }
}
