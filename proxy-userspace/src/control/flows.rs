//! The flow table with names.

mod answer;
mod query;

use std::cmp::Ordering;

use proxy_common::abi::{FlowFlags, Kind, State, Tier};
use proxy_common::net::Proto;

use super::api::{self, Flow, FlowList, FlowState};
use super::names::Names;
use crate::dataplane::{FlowRow, ReadError, Reader};
use crate::model::Family;

pub(super) use answer::pieces;
pub use query::{BadQuery, FlowOrder, FlowQuery, Selection};
pub(super) use query::{pairs, put};

/// The flows that were asked for, in order, and how many more there are.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) matched: u64,
    pub(crate) rows: Vec<FlowRow>,
}

/// Looks for flows in the tables; `now` is the time by the programs' clock. Of more than the limit,
/// the first in the order that is asked for are kept.
pub(crate) fn find(
    reader: &Reader,
    now: u32,
    query: &FlowQuery,
    names: &Names,
) -> Result<Found, ReadError> {
    let mut best = Best::new(query, names);
    reader.each_flow(
        now,
        |row| is_wanted(query, names, row),
        |row| best.push(row),
    )?;
    Ok(best.finish())
}

/// Flows as the tables alone tell of them: the numbers of service ports stand for their names.
pub fn unnamed_flows(reader: &Reader, now: u32, query: &FlowQuery) -> Result<FlowList, ReadError> {
    let names = Names::default();
    let found = find(reader, now, query, &names)?;
    Ok(FlowList {
        kind: api::Kind::new("FlowList"),
        matched: found.matched,
        items: found.rows.iter().map(|row| flow(row, &names)).collect(),
    })
}

/// The first so many rows, without ever keeping more than twice as many.
struct Best<'a> {
    query: &'a FlowQuery,
    names: &'a Names,
    found: Found,
}

impl<'a> Best<'a> {
    fn new(query: &'a FlowQuery, names: &'a Names) -> Self {
        Self {
            query,
            names,
            found: Found::default(),
        }
    }

    fn push(&mut self, row: FlowRow) {
        self.found.matched += 1;
        self.found.rows.push(row);
        let limit = self.query.limit;
        if limit > 0 && self.found.rows.len() >= 2 * limit {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let (limit, rows) = (self.query.limit, &mut self.found.rows);
        if limit > 0 && rows.len() > limit {
            rows.select_nth_unstable_by(limit, |a, b| compare(self.query, self.names, a, b));
            rows.truncate(limit);
        }
    }

    fn finish(mut self) -> Found {
        self.cut();
        let rows = &mut self.found.rows;
        rows.sort_unstable_by(|a, b| compare(self.query, self.names, a, b));
        self.found
    }
}

/// Whether a flow is asked for.
fn is_wanted(query: &FlowQuery, names: &Names, row: &FlowRow) -> bool {
    let state = state(row);
    (query.notes || !row.is_note())
        && match query.state {
            Some(wanted) => wanted == state,
            None => state != FlowState::Expired,
        }
        && query.selection.includes(names, row.service, &ends(row))
}

/// Where packets of a flow come from and go.
pub(crate) struct Ends {
    pub(crate) proto: Proto,
    pub(crate) client: std::net::SocketAddr,
    /// None where that is not known.
    pub(crate) frontend: Option<std::net::SocketAddr>,
    /// None where it goes nowhere.
    pub(crate) endpoint: Option<std::net::SocketAddr>,
}

const fn ends(row: &FlowRow) -> Ends {
    Ends {
        proto: row.proto,
        client: row.client,
        frontend: Some(row.frontend),
        endpoint: Some(row.endpoint),
    }
}

fn compare(query: &FlowQuery, names: &Names, a: &FlowRow, b: &FlowRow) -> Ordering {
    let service = |row: &FlowRow| {
        names
            .port(row.service)
            .map_or((true, None), |name| (false, Some(name)))
    };
    let first = match query.order {
        FlowOrder::Service => service(a)
            .cmp(&service(b))
            .then_with(|| a.service.cmp(&b.service)),
        FlowOrder::Client => Ordering::Equal,
        FlowOrder::Endpoint => a.endpoint.cmp(&b.endpoint),
        FlowOrder::State => state(a).cmp(&state(b)),
        FlowOrder::Idle => a.idle.cmp(&b.idle),
        FlowOrder::Expires => a.left.cmp(&b.left),
    };
    // So that the order is the same whatever the kernel's is.
    let key = |row: &FlowRow| (row.client, row.frontend, row.proto, row.kind.0);
    first.then_with(|| key(a).cmp(&key(b)))
}

/// How a flow is.
const fn state(row: &FlowRow) -> FlowState {
    let state = row.state;
    // Of a closed connection the ports stay taken, and of UDP nothing closes.
    if matches!(row.proto, Proto::UDP) || !state.is_closed() {
        if row.is_over {
            return FlowState::Expired;
        }
    } else if row.left == 0 {
        return FlowState::Expired;
    }
    if !matches!(row.proto, Proto::UDP) {
        if state.any(State::RST_CLIENT.with(State::RST_ENDPOINT)) {
            return FlowState::Reset;
        }
        if state.is_finished() {
            return FlowState::Closed;
        }
        if state.is_closing() {
            return FlowState::Closing;
        }
    }
    match row.tier {
        Tier::Established => FlowState::Established,
        Tier::HalfOpen | Tier::Renewal => FlowState::HalfOpen,
    }
}

/// A flow with its names.
pub(crate) fn flow(row: &FlowRow, names: &Names) -> Flow {
    let (namespace, service, port) = named(row.service, names);
    Flow {
        protocol: protocol(row.proto),
        family: Family::of(row.client.ip()).to_string(),
        client: row.client.to_string(),
        frontend: row.frontend.to_string(),
        endpoint: row.endpoint.to_string(),
        namespace,
        service,
        port,
        number: row.service,
        slot: row.slot,
        node: names.node(row.endpoint).map(str::to_owned),
        state: state(row),
        replied: row.state.any(State::REPLIED),
        masquerade: row.flags.has(FlowFlags::MASQUERADE),
        hairpin: row.flags.has(FlowFlags::HAIRPIN),
        source_port: (row.source_port != row.client.port()).then_some(row.source_port),
        halved: row.is_halved,
        note: match row.kind {
            Kind::PASS => Some("direct".to_owned()),
            Kind::OWN => Some("own".to_owned()),
            _ => None,
        },
        idle_seconds: row.idle,
        expires_seconds: row.left,
    }
}

/// Namespace, Service and port; of a number without a name, what can be said of it.
pub(crate) fn named(
    number: u32,
    names: &Names,
) -> (Option<String>, Option<String>, Option<String>) {
    match (number, names.port(number)) {
        (0, _) => (None, None, None),
        (_, Some(name)) => (
            Some(name.service.namespace().to_owned()),
            Some(name.service.name().to_owned()),
            Some(name.port.to_string()),
        ),
        (_, None) => (Some("-".to_owned()), Some(format!("#{number}")), None),
    }
}

pub(crate) fn protocol(proto: Proto) -> String {
    match proto {
        Proto::TCP => "TCP".to_owned(),
        Proto::UDP => "UDP".to_owned(),
        Proto::SCTP => "SCTP".to_owned(),
        Proto::ICMP => "ICMP".to_owned(),
        Proto::ICMPV6 => "ICMPv6".to_owned(),
        Proto(number) => number.to_string(),
    }
}

#[cfg(test)]
mod tests;
