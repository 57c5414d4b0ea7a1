//! What a controller has left in nftables.

use std::fmt;
use std::io;

use super::kernel::{delete, read};
use super::socket::Connection;
use super::table::Table;
use super::wanted::{TABLE, wanted};
use crate::model::Family;

/// A table that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leftover(Family);

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.0 {
            Family::V4 => "ip",
            Family::V6 => "ip6",
        };
        write!(f, "nftables table {family} {TABLE}")
    }
}

impl Leftover {
    /// Deletes it with all that is in it.
    pub fn remove(self) -> io::Result<()> {
        delete(&mut Connection::open()?, &table(self.0))
    }
}

/// The tables of ours in the network namespace that the thread is in.
pub fn leftovers() -> io::Result<Vec<Leftover>> {
    let mut connection = Connection::open()?;
    let mut all = Vec::new();
    for family in Family::ALL {
        // A kernel may do without IPv6.
        let found = read(&mut connection, &table(family));
        if found.is_ok_and(|found| found.is_there()) {
            all.push(Leftover(family));
        }
    }
    Ok(all)
}

/// Only what tells the table from others: nothing of what is in it.
fn table(family: Family) -> Table {
    Table {
        sets: Vec::new(),
        ..wanted(family)
    }
}
