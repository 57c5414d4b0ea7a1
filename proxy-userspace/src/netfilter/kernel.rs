//! Reads tables and changes them.

use std::io;
use std::net::IpAddr;

pub use super::attribute::Count;
use super::found::Found;
use super::message::Request;
use super::socket::Connection;
use super::table::Table;
use super::wanted::{TABLE, UNTRANSLATED};
use crate::model::Family;

/// An address that the kernel did not put into a set or take out of it, and why.
pub(super) type Refused = (IpAddr, io::Error);

/// What the kernel has of a table, its sets of addresses included.
pub(super) fn read(connection: &mut Connection, table: &Table) -> io::Result<Found> {
    let (family, name) = (table.family, table.name);
    let mut found = Found::default();
    for attributes in connection.list(&Request::list_tables(family))? {
        found.note_table(name, attributes);
    }
    if !found.is_there() {
        return Ok(found);
    }
    for attributes in connection.list(&Request::list_chains(family))? {
        found.note_chain(name, attributes);
    }
    for attributes in connection.list(&Request::list_rules(family, name))? {
        found.note_rule(name, attributes);
    }
    for attributes in connection.list(&Request::list_sets(family, name))? {
        found.note_set(name, &attributes);
    }
    for attributes in connection.list(&Request::list_objects(family, name))? {
        found.note_object(name, &attributes);
    }
    for set in &table.sets {
        let is_there = found.shape.sets.iter().any(|found| found.name == *set);
        if is_there {
            let request = Request::list_elements(family, name, set);
            for attributes in connection.list(&request)? {
                found.note_elements(set, &attributes);
            }
        }
    }
    Ok(found)
}

/// Puts addresses into a set; those that are refused do not keep out the others.
pub(super) fn add(
    connection: &mut Connection,
    table: &Table,
    set: &str,
    addresses: &[IpAddr],
) -> Vec<Refused> {
    let mut refused = Vec::new();
    in_halves(
        &mut |requests| connection.commit(requests),
        &|addresses| Request::add_elements(table, set, addresses),
        addresses,
        &mut refused,
    );
    refused
}

/// Takes addresses out of a set. One that is not in it is out of it.
pub(super) fn remove(
    connection: &mut Connection,
    table: &Table,
    set: &str,
    addresses: &[IpAddr],
) -> Vec<Refused> {
    let mut refused = Vec::new();
    in_halves(
        &mut |requests| connection.commit(requests),
        &|addresses| Request::delete_elements(table, set, addresses),
        addresses,
        &mut refused,
    );
    refused.retain(|(_, error)| error.kind() != io::ErrorKind::NotFound);
    refused
}

/// Changes a set by as many addresses at once as the kernel takes: a batch that it refuses is cut
/// in half, down to the addresses that it refuses by themselves.
pub(super) fn in_halves(
    commit: &mut impl FnMut(&[Request]) -> io::Result<()>,
    make: &impl Fn(&[IpAddr]) -> Vec<Request>,
    addresses: &[IpAddr],
    refused: &mut Vec<Refused>,
) {
    match (commit(&make(addresses)), addresses) {
        (Ok(()), _) | (_, []) => {}
        (Err(error), [only]) => refused.push((*only, error)),
        (Err(_), several) => {
            let (one, other) = several.split_at(several.len() / 2);
            in_halves(commit, make, one, refused);
            in_halves(commit, make, other, refused);
        }
    }
}

/// What the drop has counted, both families together.
pub fn counts() -> io::Result<Count> {
    let mut connection = Connection::open()?;
    let [v4, v6] = Family::ALL.map(|family| count(&mut connection, family));
    // A kernel may do without one of them.
    match (v4, v6) {
        (Err(error), Err(_)) => Err(error),
        (v4, v6) => {
            let (v4, v6) = (v4.unwrap_or_default(), v6.unwrap_or_default());
            Ok(Count {
                packets: v4.packets + v6.packets,
                bytes: v4.bytes + v6.bytes,
            })
        }
    }
}

fn count(connection: &mut Connection, family: Family) -> io::Result<Count> {
    let mut found = Found::default();
    for attributes in connection.list(&Request::list_objects(family, TABLE))? {
        found.note_object(TABLE, &attributes);
    }
    Ok(found
        .counters
        .get(UNTRANSLATED)
        .copied()
        .unwrap_or_default())
}

/// Deletes a table with all that is in it.
pub(super) fn delete(connection: &mut Connection, table: &Table) -> io::Result<()> {
    connection.commit(&[Request::delete_table(table)])
}
