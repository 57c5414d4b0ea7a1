//! One table, as it was last seen.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Instant;

use tracing::{debug, info, warn};

use super::attribute::Count;
use super::change::{rebuild, replace};
use super::counter::{Counter, Counts};
use super::destination::Destination;
use super::elements::{ElementChange, Elements};
use super::found::{Found, Shape};
use super::kernel::{Refused, add, read, remove};
use super::message::Request;
use super::options::Options;
use super::socket::Connection;
use super::table::Table;
use super::wanted::wanted;
use crate::log::Bursts;
use crate::model::Family;

/// A table and what is known of it.
#[derive(Debug)]
pub(super) struct Kept {
    table: Table,
    pub(super) elements: Elements,
    /// How it was when it was last right.
    shape: Option<Shape>,
    /// Whether another one is wanted than that which was made.
    is_outdated: bool,
    /// What its counters last had: one that somebody deletes goes on from there.
    counts: BTreeMap<String, Count>,
    refused: Vec<Refused>,
    /// Why it is not as it should be.
    failure: Option<String>,
    bursts: Bursts,
    start: Instant,
}

impl Kept {
    pub(super) fn new(family: Family, options: &Options) -> Self {
        Self {
            table: wanted(family, options),
            elements: Elements::default(),
            shape: None,
            is_outdated: false,
            counts: BTreeMap::new(),
            refused: Vec::new(),
            failure: None,
            bursts: Bursts::default(),
            start: Instant::now(),
        }
    }

    /// Another table may be wanted from now on, with the same set.
    pub(super) fn want(&mut self, options: &Options) {
        let table = wanted(self.table.family, options);
        self.is_outdated |= table != self.table;
        self.table = table;
    }

    /// Whether another table is wanted than that which was made.
    pub(super) const fn is_outdated(&self) -> bool {
        self.is_outdated
    }

    /// Why the table is not as it should be.
    pub(super) fn trouble(&self) -> Option<String> {
        let family = self.table.family;
        if !self.is_used() {
            return None;
        }
        if let Some(failure) = &self.failure {
            return Some(format!("{family}: {failure}"));
        }
        let (destination, error) = self.refused.first()?;
        let (count, address) = (self.refused.len(), destination.address);
        Some(format!(
            "{family}: {count} elements refused, {address}: {error}"
        ))
    }

    /// Whether anything is declared: a family without Services misses nothing.
    pub(super) fn is_used(&self) -> bool {
        self.elements.is_used()
    }

    /// Whether it is not as it should be.
    pub(super) const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether something was refused.
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

    /// What it was last seen to have counted.
    pub(super) fn counts(&self) -> Counts {
        let all = Counter::ALL.into_iter();
        all.filter_map(|counter| Some((counter, *self.counts.get(counter.key())?)))
            .collect()
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
        if is_same && !self.is_outdated && change.is_empty() {
            self.refused.clear();
            return Ok(());
        }
        if !is_same || self.is_outdated {
            if !is_new && !is_same && self.bursts.admit("restored", self.start.elapsed()) {
                warn!(%family, "somebody has changed the nftables table, putting it right");
            }
            self.replace(connection, &found, &change.add)?;
            let found = read(connection, &self.table)?;
            self.note(&found);
            self.shape = Some(found.shape);
            self.is_outdated = false;
        }
        let change = self.elements.change();
        self.carry_out(connection, &change);
        if is_new {
            info!(%family, cluster_ips = self.served(), "nftables table in place");
        }
        Ok(())
    }

    /// Everything in one batch; if some element is refused, everything but the elements.
    fn replace(
        &self,
        connection: &mut Connection,
        found: &Found,
        missing: &[Destination],
    ) -> io::Result<()> {
        let requests = replace(&self.table, found, &self.counts);
        let mut all = requests.clone();
        all.extend(Request::add_elements(&self.table, missing));
        let Err(error) = connection.commit(&all) else {
            return Ok(());
        };
        debug!(%error, "not in one batch");
        connection.commit(&requests).or_else(|error| {
            debug!(%error, "making the table anew");
            connection.commit(&rebuild(&self.table, &self.counts))
        })
    }

    /// Takes over what has become of these.
    pub(super) fn update(&mut self, connection: &mut Connection, touched: &BTreeSet<Destination>) {
        // What could not be put right is not worth trying at every change.
        if self.failure.is_some() || self.shape.is_none() {
            return;
        }
        let family = self.table.family;
        let own = touched
            .iter()
            .filter(|own| Family::of(own.address) == family);
        let change = self.elements.change_of(&own.copied().collect());
        let before = std::mem::take(&mut self.refused);
        self.carry_out(connection, &change);
        let others = before.into_iter().filter(|(own, _)| !touched.contains(own));
        self.refused.extend(others);
    }

    fn carry_out(&mut self, connection: &mut Connection, change: &ElementChange) {
        let table = &self.table;
        // What goes makes room.
        let mut refused = remove(connection, table, &change.remove);
        refused.extend(add(connection, table, &change.add));
        let left: BTreeSet<_> = refused.iter().map(|(own, _)| *own).collect();
        let is_done = |own: &&Destination| !left.contains(*own);
        for destination in change.remove.iter().filter(is_done) {
            self.elements.note_removed(*destination);
        }
        for destination in change.add.iter().filter(is_done) {
            self.elements.note_added(*destination);
        }
        self.refused = refused;
    }

    fn note(&mut self, found: &Found) {
        let counts = found.counters.iter();
        self.counts
            .extend(counts.map(|(name, count)| (name.clone(), *count)));
        self.elements.note_held(found.elements.clone());
    }
}
