//! From a table that was found to the one that is wanted.

use std::collections::BTreeMap;

use super::attribute::Count;
use super::found::Found;
use super::message::Request;
use super::table::Table;

/// What leads from the table that was found to the one that is wanted, a set that fits and counters
/// as they are. A counter that is missing begins with what it last had, if that is known.
///
/// Rules refer to chains, sets and counters, so they go first and come last.
pub(super) fn replace(
    table: &Table,
    found: &Found,
    counts: &BTreeMap<String, Count>,
) -> Vec<Request> {
    if !found.shape.others.is_empty() {
        return rebuild(table, counts);
    }
    let mut all = vec![Request::new_table(table)];
    let shape = &found.shape;
    if !shape.rules.is_empty() {
        all.push(Request::delete_rules(table));
    }
    let chains = shape.chains.iter();
    all.extend(chains.map(|(name, _)| Request::delete_chain(table, name)));
    let (kept, gone): (Vec<_>, Vec<_>) = shape
        .sets
        .iter()
        .partition(|set| set.is(table.set, table.family));
    let gone = gone.into_iter().filter(|set| !set.is_anonymous());
    all.extend(gone.map(|set| Request::delete_set(table, &set.name)));
    let is_wanted = |name: &str| table.counters.iter().any(|counter| counter.key() == name);
    let counters = shape.counters.iter().filter(|name| !is_wanted(name));
    all.extend(counters.map(|name| Request::delete_counter(table, name)));
    all.extend(fill(table, kept.is_empty(), counts));
    all
}

/// Deletes all that there is and makes it anew: what helps where somebody has put things into the
/// table that [`replace`] knows nothing of.
pub(super) fn rebuild(table: &Table, counts: &BTreeMap<String, Count>) -> Vec<Request> {
    // Deleting a table that is not there would be an error.
    let mut all = vec![
        Request::new_table(table),
        Request::delete_table(table.family, table.name),
        Request::new_table(table),
    ];
    all.extend(fill(table, true, counts));
    all
}

/// Makes everything in a table, its set only if that is missing.
fn fill(table: &Table, is_missing: bool, counts: &BTreeMap<String, Count>) -> Vec<Request> {
    let mut all = Vec::new();
    if is_missing {
        all.push(Request::new_set(table, table.set, 1));
    }
    for counter in &table.counters {
        let from = counts.get(counter.key()).copied().unwrap_or_default();
        all.push(Request::new_counter(table, *counter, from));
    }
    for chain in &table.chains {
        all.push(Request::new_chain(table, chain));
        let rules = chain.rules.iter();
        all.extend(rules.map(|rule| Request::new_rule(table, chain, rule)));
    }
    all
}
