//! One table, as it was last seen.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::time::Instant;

use tracing::{debug, info, warn};

use super::attribute::Count;
use super::change::{rebuild, replace};
use super::elements::{ElementChange, Elements};
use super::found::{Found, Shape};
use super::kernel::{Refused, add, read, remove};
use super::message::Request;
use super::socket::Connection;
use super::table::Table;
use super::wanted::{CLUSTER_IPS, wanted};
use crate::log::Bursts;
use crate::model::Family;

/// A table and what is known of it.
#[derive(Debug)]
pub(super) struct Kept {
    table: Table,
    pub(super) elements: Elements,
    /// How it was when it was last right.
    shape: Option<Shape>,
    /// What its counters last had: one that somebody deletes goes on from there.
    counts: BTreeMap<String, Count>,
    refused: Vec<Refused>,
    /// Why it is not as it should be.
    failure: Option<String>,
    bursts: Bursts,
    start: Instant,
}

impl Kept {
    pub(super) fn new(family: Family) -> Self {
        Self {
            table: wanted(family),
            elements: Elements::default(),
            shape: None,
            counts: BTreeMap::new(),
            refused: Vec::new(),
            failure: None,
            bursts: Bursts::default(),
            start: Instant::now(),
        }
    }

    /// Why packets to some `ClusterIP` are not dropped. A family without any misses nothing.
    pub(super) fn trouble(&self) -> Option<String> {
        let family = self.table.family;
        if !self.elements.is_used() {
            return None;
        }
        if let Some(failure) = &self.failure {
            return Some(format!("{family}: {failure}"));
        }
        let (address, error) = self.refused.first()?;
        let count = self.refused.len();
        Some(format!(
            "{family}: {count} ClusterIPs refused, {address}: {error}"
        ))
    }

    /// Whether it is not as it should be.
    pub(super) const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether some address was refused.
    pub(super) const fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// `ClusterIP`s for which the drop is in force.
    pub(super) fn served(&self) -> usize {
        match self.failure {
            Some(_) => 0,
            None => self.elements.served(),
        }
    }

    /// Packets that it was last seen to have dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.counts.values().map(|count| count.packets).sum()
    }

    /// It cannot even be looked at.
    pub(super) fn fail(&mut self, error: &io::Error) {
        self.failure = Some(error.to_string());
    }

    /// Looks at the table and puts right what is wrong.
    pub(super) fn look(&mut self, connection: &mut Connection) -> io::Result<()> {
        let result = self.put_right(connection);
        self.failure = result.as_ref().err().map(ToString::to_string);
        result
    }

    fn put_right(&mut self, connection: &mut Connection) -> io::Result<()> {
        let family = self.table.family;
        let found = read(connection, &self.table)?;
        let is_same = self.shape.as_ref() == Some(&found.shape);
        let is_new = self.shape.is_none();
        self.note(&found);
        let change = self.elements.change();
        if is_same && change.is_empty() {
            self.refused.clear();
            return Ok(());
        }
        if !is_same {
            if !is_new && self.bursts.admit("restored", self.start.elapsed()) {
                warn!(%family, "somebody has changed the nftables table, putting it right");
            }
            self.replace(connection, &found, &change.add)?;
            let found = read(connection, &self.table)?;
            self.note(&found);
            self.shape = Some(found.shape);
        }
        let change = self.elements.change();
        self.carry_out(connection, &change);
        if is_new {
            let dropped = self.dropped();
            info!(%family, cluster_ips = self.served(), dropped, "nftables table in place");
        }
        Ok(())
    }

    /// Everything in one batch; if some address is refused, everything but the addresses.
    fn replace(
        &self,
        connection: &mut Connection,
        found: &Found,
        missing: &[IpAddr],
    ) -> io::Result<()> {
        let requests = replace(&self.table, found, &self.counts);
        let mut all = requests.clone();
        all.extend(Request::add_elements(&self.table, CLUSTER_IPS, missing));
        let Err(error) = connection.commit(&all) else {
            return Ok(());
        };
        debug!(%error, "not in one batch");
        connection.commit(&requests).or_else(|error| {
            debug!(%error, "making the table anew");
            connection.commit(&rebuild(&self.table, &self.counts))
        })
    }

    /// Takes over what has become of these addresses.
    pub(super) fn update(&mut self, connection: &mut Connection, touched: &BTreeSet<IpAddr>) {
        // What could not be put right is not worth trying at every change.
        if self.failure.is_some() || self.shape.is_none() {
            return;
        }
        let family = self.table.family;
        let own = touched
            .iter()
            .filter(|address| Family::of(**address) == family);
        let change = self.elements.change_of(&own.copied().collect());
        let before = std::mem::take(&mut self.refused);
        self.carry_out(connection, &change);
        let others = before
            .into_iter()
            .filter(|(address, _)| !touched.contains(address));
        self.refused.extend(others);
    }

    fn carry_out(&mut self, connection: &mut Connection, change: &ElementChange) {
        let table = &self.table;
        // What goes makes room.
        let mut refused = remove(connection, table, CLUSTER_IPS, &change.remove);
        refused.extend(add(connection, table, CLUSTER_IPS, &change.add));
        let left: BTreeSet<_> = refused.iter().map(|(address, _)| *address).collect();
        let is_done = |address: &&IpAddr| !left.contains(*address);
        for address in change.remove.iter().filter(is_done) {
            self.elements.note_removed(*address);
        }
        for address in change.add.iter().filter(is_done) {
            self.elements.note_added(*address);
        }
        self.refused = refused;
    }

    fn note(&mut self, found: &Found) {
        let counts = found.counters.iter();
        self.counts
            .extend(counts.map(|(name, count)| (name.clone(), *count)));
        let held = found.elements.get(CLUSTER_IPS).cloned();
        self.elements.note_held(held.unwrap_or_default());
    }
}
