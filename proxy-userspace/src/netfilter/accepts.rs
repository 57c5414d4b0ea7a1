//! The two rules in somebody else's chain: what kube-proxy's iptables mode accepts in `FORWARD`.
//!
//! An accept in a table of ours ends nothing but its own chain, so where the policy of
//! `filter FORWARD` is to drop, as Docker sets it, packets of Services pass only if that very chain
//! accepts them. It is the one that `iptables-nft` makes; where there is none, as on a host with
//! legacy iptables only, nothing is done. As kube-proxy does, we put the rules at the head of the
//! chain when they are missing, and leave them where they are: others may insist on being first.

mod rules;

use std::io;
use std::time::Instant;

use tracing::{debug, info};

use super::attribute::{find, string};
use super::message::Request;
use super::socket::Connection;
use crate::log::Bursts;
use crate::model::Family;
#[cfg(test)]
pub(super) use rules::Found as FoundAccept;
use rules::{Accept, Form, Found};

/// The table of the chain; that of `iptables-nft` has this name in both families.
pub(super) const TABLE: &str = "filter";
/// The chain.
pub(super) const CHAIN: &str = "FORWARD";

const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_HOOK_HOOKNUM: u16 = 1;
/// `NF_INET_FORWARD`.
const FORWARD_HOOK: u32 = 2;

/// The accepts of a family.
#[derive(Debug)]
pub(super) struct Accepts {
    family: Family,
    wanted: Vec<Accept>,
    is_in_force: bool,
    failure: Option<String>,
    bursts: Bursts,
    start: Instant,
}

impl Accepts {
    /// Those of packets with any bit of this mark, and of connections that are established; or none.
    pub(super) fn new(family: Family, mark: Option<u32>) -> Self {
        let wanted = mark.map(|mark| vec![Accept::Marked(mark), Accept::Established]);
        Self {
            family,
            wanted: wanted.unwrap_or_default(),
            is_in_force: false,
            failure: None,
            bursts: Bursts::default(),
            start: Instant::now(),
        }
    }

    pub(super) const fn family(&self) -> Family {
        self.family
    }

    /// Whether the chain has them.
    pub(super) const fn is_in_force(&self) -> bool {
        self.is_in_force
    }

    /// Whether the chain is not as it should be.
    pub(super) const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Why the chain is not as it should be.
    pub(super) fn trouble(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        Some(format!("{} {TABLE} {CHAIN}: {failure}", self.family))
    }

    /// Looks at the chain and puts right what is wrong.
    pub(super) fn look(&mut self, connection: &mut Connection) -> io::Result<()> {
        let result = self.put_right(connection);
        self.failure = result.as_ref().err().map(ToString::to_string);
        self.is_in_force = *result.as_ref().unwrap_or(&false);
        result.map(drop)
    }

    fn put_right(&mut self, connection: &mut Connection) -> io::Result<bool> {
        let family = self.family;
        if !has_chain(connection, family)? {
            return Ok(false);
        }
        let found = found(connection, family)?;
        let is_in_force = !self.wanted.is_empty();
        if rules::fit(&found, &self.wanted) {
            return Ok(is_in_force);
        }
        insert(connection, family, &found, &self.wanted)?;
        if self.bursts.admit("changed", self.start.elapsed()) {
            let rules = self.wanted.len();
            info!(%family, rules, former = found.len(), "accepts in {TABLE} {CHAIN} in place");
        }
        Ok(is_in_force)
    }
}

/// Whether somebody has left accepts of ours in the chain of a family.
pub(super) fn is_left(connection: &mut Connection, family: Family) -> io::Result<bool> {
    Ok(has_chain(connection, family)? && !found(connection, family)?.is_empty())
}

/// Takes them out.
pub(super) fn remove(connection: &mut Connection, family: Family) -> io::Result<()> {
    let found = found(connection, family)?;
    insert(connection, family, &found, &[])
}

/// In place of the rules that were found, in one batch.
fn insert(
    connection: &mut Connection,
    family: Family,
    found: &[Found],
    wanted: &[Accept],
) -> io::Result<()> {
    let batch = |form| rules::replace(family, found, wanted, form);
    connection.commit(&batch(Form::Iptables)).or_else(|error| {
        // The extensions of iptables may be missing where nobody has used it yet.
        debug!(%error, "accepts as iptables has them");
        connection.commit(&batch(Form::Native))
    })
}

fn has_chain(connection: &mut Connection, family: Family) -> io::Result<bool> {
    let chains = connection.list(&Request::list_chains(family))?;
    Ok(chains.iter().any(|attributes| is_chain(attributes)))
}

fn is_chain(attributes: &[u8]) -> bool {
    let is = |kind, name| find(attributes, kind).is_some_and(|value| string(value) == name);
    let hook = find(attributes, NFTA_CHAIN_HOOK).and_then(|hook| find(hook, NFTA_HOOK_HOOKNUM));
    is(NFTA_CHAIN_TABLE, TABLE)
        && is(NFTA_CHAIN_NAME, CHAIN)
        && hook == Some(FORWARD_HOOK.to_be_bytes().as_slice())
}

fn found(connection: &mut Connection, family: Family) -> io::Result<Vec<Found>> {
    let rules = connection.list(&Request::list_rules_of_chain(family, TABLE, CHAIN))?;
    Ok(rules.iter().filter_map(|rule| Found::parse(rule)).collect())
}
