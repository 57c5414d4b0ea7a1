//! What a table should look like, without any I/O.

use crate::model::Family;

/// A table of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) family: Family,
    /// Sets of addresses of the table's family. What is in them is not told here.
    pub(super) sets: Vec<&'static str>,
    pub(super) counters: Vec<&'static str>,
    pub(super) chains: Vec<Chain>,
}

/// A base chain of type filter that lets pass what no rule drops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) name: &'static str,
    pub(super) hook: Hook,
    /// Chains of a hook run in the order of their priorities, the lowest first.
    pub(super) priority: i32,
    pub(super) rules: Vec<Rule>,
}

/// Where packets meet a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// What comes in by any device, before it is routed.
    Prerouting,
    /// What this host sends itself.
    Output,
}

/// Statements, each of which is met only if all before it let the packet go on.
pub(super) type Rule = Vec<Statement>;

/// A part of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// Goes on if the destination is in a set.
    DestinationIn(&'static str),
    /// Goes on if the destination is no address of this host.
    DestinationElsewhere,
    /// Counts the packet.
    Count(&'static str),
    /// Drops the packet.
    Drop,
}
