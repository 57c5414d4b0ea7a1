//! What a table should look like, without any I/O.

use ipnet::IpNet;

use super::counter::Counter;
use crate::model::Family;

/// A table of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) family: Family,
    /// Its only set. What is in it is not told here.
    pub(super) set: Set,
    pub(super) counters: Vec<Counter>,
    pub(super) chains: Vec<Chain>,
}

/// A set of destinations of the table's family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) name: &'static str,
    pub(super) key: Key,
}

/// What a set goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// Addresses.
    Address,
    /// Addresses, each with a protocol and a port.
    Port,
}

/// A base chain that lets pass what no rule drops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) hook: Hook,
    /// Chains of a hook run in the order of their priorities, the lowest first.
    pub(super) priority: i32,
    pub(super) rules: Vec<Rule>,
}

/// Which packets meet a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// All.
    Filter,
    /// The first of each connection.
    Nat,
}

/// Where packets meet a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// What comes in by any device, before it is routed.
    Prerouting,
    /// What this host takes in itself.
    Input,
    /// What comes in by a device and goes out by one.
    Forward,
    /// What this host sends itself.
    Output,
    /// What goes out by any device.
    Postrouting,
}

/// Statements, each of which is met only if all before it let the packet go on.
pub(super) type Rule = Vec<Statement>;

/// A part of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// Goes on if the destination is in a set.
    DestinationIn(Set),
    /// Goes on if the destination is in a range.
    DestinationWithin(IpNet),
    /// Goes on if the destination is no address of this host.
    DestinationElsewhere,
    /// Goes on if the mark has any of these bits.
    Marked(u32),
    /// Goes on if the mark has none of these bits.
    Unmarked(u32),
    /// Goes on if conntrack says so.
    In(State),
    /// Takes these bits out of the mark.
    ClearMark(u32),
    /// Counts the packet.
    Count(Counter),
    /// Gives the connection the address of the device that it leaves by and a random port, and ends
    /// the chain.
    Masquerade,
    /// Drops the packet and answers with ICMP, port unreachable.
    Reject,
    /// Drops the packet.
    Drop,
}

/// What conntrack calls a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The first of a connection.
    New,
    /// Of no connection, and not able to open one.
    Invalid,
}
