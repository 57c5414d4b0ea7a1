//! Reads tables and changes them.

use std::io;

use super::counter::{Counter, Counts, sum};
use super::destination::Destination;
use super::found::Found;
use super::message::Request;
use super::socket::Connection;
use super::table::Table;
use super::wanted::TABLE;
use crate::model::Family;

/// What the kernel did not put into a set or take out of it, and why.
pub(super) type Refused = (Destination, io::Error);

/// What the kernel has of a table, what is in its set included.
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
    let set = table.set;
    if found.shape.sets.iter().any(|found| found.is(set, family)) {
        let request = Request::list_elements(family, name, set.name);
        for attributes in connection.list(&request)? {
            found.note_elements(&attributes);
        }
    }
    Ok(found)
}

/// Puts destinations into the set; those that are refused do not keep out the others.
pub(super) fn add(connection: &mut Connection, table: &Table, all: &[Destination]) -> Vec<Refused> {
    let mut refused = Vec::new();
    in_halves(
        &mut |requests| connection.commit(requests),
        &|some| Request::add_elements(table, some),
        all,
        &mut refused,
    );
    refused
}

/// Takes destinations out of the set. One that is not in it is out of it.
pub(super) fn remove(
    connection: &mut Connection,
    table: &Table,
    all: &[Destination],
) -> Vec<Refused> {
    let mut refused = Vec::new();
    in_halves(
        &mut |requests| connection.commit(requests),
        &|some| Request::delete_elements(table, some),
        all,
        &mut refused,
    );
    refused.retain(|(_, error)| error.kind() != io::ErrorKind::NotFound);
    refused
}

/// Changes a set by as much at once as the kernel takes: a batch that it refuses is cut in half,
/// down to what it refuses by itself.
pub(super) fn in_halves(
    commit: &mut impl FnMut(&[Request]) -> io::Result<()>,
    make: &impl Fn(&[Destination]) -> Vec<Request>,
    all: &[Destination],
    refused: &mut Vec<Refused>,
) {
    match (commit(&make(all)), all) {
        (Ok(()), _) | (_, []) => {}
        (Err(error), [only]) => refused.push((*only, error)),
        (Err(_), several) => {
            let (one, other) = several.split_at(several.len() / 2);
            in_halves(commit, make, one, refused);
            in_halves(commit, make, other, refused);
        }
    }
}

/// What the tables have counted.
pub fn counts() -> io::Result<Counts> {
    let mut connection = Connection::open()?;
    let [v4, v6] = Family::ALL.map(|family| counts_of(&mut connection, family));
    // A kernel may do without one of them.
    match (v4, v6) {
        (Err(error), Err(_)) => Err(error),
        (v4, v6) => Ok(sum([v4, v6].into_iter().flatten())),
    }
}

fn counts_of(connection: &mut Connection, family: Family) -> io::Result<Counts> {
    let mut found = Found::default();
    for attributes in connection.list(&Request::list_objects(family, TABLE))? {
        found.note_object(TABLE, &attributes);
    }
    let all = Counter::ALL.into_iter();
    Ok(all
        .filter_map(|counter| Some((counter, *found.counters.get(counter.key())?)))
        .collect())
}
