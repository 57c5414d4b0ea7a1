//! How the tables are.

use super::counter::Counts;
use crate::model::Family;

/// How the tables are, both families together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// `ClusterIP`s for which the drop is in force, at some port at least.
    pub cluster_ips: usize,
    /// Why not all rules are in force.
    pub trouble: Option<String>,
    /// What the tables were last seen to have counted.
    pub counts: Counts,
    /// Families whose `filter FORWARD` has the accepts of kube-proxy's iptables mode.
    pub accepts: Vec<Family>,
}
