//! Passes on what the programs tell, to everybody who listens.
//!
//! The ring buffer is emptied here and nowhere else, whether anybody reads what becomes of it or
//! not: each listener has a queue of its own, and what does not fit is lost to that one and counted.

mod hub;
mod line;
mod queue;

use hyper::body::Bytes;
use proxy_common::abi::EventKind;
use tokio::sync::mpsc;

use super::api::Line;
use super::flows::{BadQuery, Selection, pairs};

pub(super) use hub::Hub;

fn written(line: &Line) -> Bytes {
    // Strings and numbers always have a JSON form.
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text.into()
}

/// Who listens, and for what.
pub(super) struct Listener {
    /// For these events.
    pub(super) wanted: Wanted,
    /// Where they go.
    pub(super) queue: mpsc::Sender<Bytes>,
}

/// Which events are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Of whom.
    pub selection: Selection,
    /// Of these kinds, a bit each.
    pub kinds: u32,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            selection: Selection::default(),
            kinds: EventKind::ALL.iter().map(|kind| kind.bit()).sum(),
        }
    }
}

impl Wanted {
    /// Events of some kinds; of all if none is named.
    pub fn new(selection: Selection, kinds: &[EventKind]) -> Self {
        let all = Self::default().kinds;
        let kinds = kinds.iter().fold(0, |bits, kind| bits | kind.bit());
        Self {
            selection,
            kinds: if kinds == 0 { all } else { kinds },
        }
    }

    /// What the query part of an address says.
    pub fn from_query(query: &str) -> Result<Self, BadQuery> {
        let (mut selection, mut kinds) = (Selection::default(), Vec::new());
        for (name, value) in pairs(query) {
            if selection.take(name, value)? {
                continue;
            }
            if name != "kinds" {
                return Err(BadQuery::Name(name.to_owned()));
            }
            for word in value.split(',') {
                let mut all = EventKind::ALL.into_iter();
                let found = all.find(|kind| kind.name() == word);
                kinds.push(found.ok_or_else(|| BadQuery::value(name, value))?);
            }
        }
        Ok(Self::new(selection, &kinds))
    }

    /// As the query part of an address.
    pub fn to_query(&self) -> String {
        let kinds = EventKind::ALL.into_iter();
        let kinds = kinds.filter(|kind| self.kinds & kind.bit() != 0);
        let kinds: Vec<_> = kinds.map(EventKind::name).collect();
        let mut query = self.selection.to_query();
        super::flows::put(&mut query, "kinds", Some(kinds.join(",")));
        query
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_comes_back_from_its_query() {
        let selection = Selection {
            client: Some("10.0.0.0/8".parse().unwrap()),
            ..Selection::default()
        };
        let some = Wanted::new(selection, &[EventKind::New, EventKind::Dropped]);
        for wanted in [some, Wanted::default()] {
            assert_eq!(wanted, Wanted::from_query(&wanted.to_query()).unwrap());
        }
        assert_eq!(Wanted::default(), Wanted::from_query("").unwrap());
        for bad in ["kinds=x", "kinds=new,x", "kinds", "limit=3", "client=x"] {
            assert!(Wanted::from_query(bad).is_err(), "{bad}");
        }
    }
}
