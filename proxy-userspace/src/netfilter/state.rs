//! How the tables are.

/// How the tables are, both families together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// `ClusterIP`s for which the drop is in force.
    pub cluster_ips: usize,
    /// Why it is not in force for all of them.
    pub trouble: Option<String>,
    /// Packets that it was last seen to have dropped.
    pub dropped: u64,
}
