//! What a controller has left in nftables.

use std::fmt;
use std::io;

use super::accepts;
use super::found::Found;
use super::message::Request;
use super::socket::Connection;
use super::wanted::TABLE;
use crate::model::Family;

/// Something that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// The table of a family.
    Table(Family),
    /// Rules in somebody else's chain.
    Accepts(Family),
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |family| match family {
            Family::V4 => "ip",
            Family::V6 => "ip6",
        };
        match *self {
            Self::Table(family) => write!(f, "nftables table {} {TABLE}", word(family)),
            Self::Accepts(family) => {
                let (family, table, chain) = (word(family), accepts::TABLE, accepts::CHAIN);
                write!(f, "nftables rules of {TABLE} in {family} {table} {chain}")
            }
        }
    }
}

impl Leftover {
    /// Deletes it with all that is in it.
    pub fn remove(self) -> io::Result<()> {
        let mut connection = Connection::open()?;
        match self {
            Self::Table(family) => connection.commit(&[Request::delete_table(family, TABLE)]),
            Self::Accepts(family) => accepts::remove(&mut connection, family),
        }
    }
}

/// What is ours in the network namespace that the thread is in.
pub fn leftovers() -> io::Result<Vec<Leftover>> {
    let mut connection = Connection::open()?;
    let mut all = Vec::new();
    for family in Family::ALL {
        // A kernel may do without IPv6.
        if has_table(&mut connection, family).unwrap_or(false) {
            all.push(Leftover::Table(family));
        }
        if accepts::is_left(&mut connection, family).unwrap_or(false) {
            all.push(Leftover::Accepts(family));
        }
    }
    Ok(all)
}

fn has_table(connection: &mut Connection, family: Family) -> io::Result<bool> {
    let mut found = Found::default();
    for attributes in connection.list(&Request::list_tables(family))? {
        found.note_table(TABLE, attributes);
    }
    Ok(found.is_there())
}
