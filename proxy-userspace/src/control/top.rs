//! Who is busiest: two readings of the counts, some time apart.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::answer::{AnswerError, Answers, Ask, blocking, flow_maps};
use super::api::{Kind, Top, TopRow};
use super::listing::{Counts, Picks, Scope};
use crate::dataplane::reader::now;
use crate::dataplane::{ReadError, Reader};
use crate::plan::ServiceView;

/// The longest time between two readings.
const LONGEST: Duration = Duration::from_mins(1);

/// What rows are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TopBy {
    /// Services, by new flows a second.
    #[default]
    Services,
    /// Endpoints of service ports, by new flows a second.
    Endpoints,
    /// Clients, by live flows.
    Clients,
}

impl TopBy {
    /// As one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::Endpoints => "endpoints",
            Self::Clients => "clients",
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopQuery {
    /// What rows are of.
    pub by: TopBy,
    /// Time between the two readings, whole milliseconds.
    pub interval: Duration,
    /// So many rows at most.
    pub limit: usize,
}

/// Why that cannot be told.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum BadTop {
    /// Rows of what?
    #[error("by is services, endpoints or clients")]
    By,
    /// How long?
    #[error("interval is a number of milliseconds from 1 to 60000")]
    Interval,
    /// How many?
    #[error("limit is a number")]
    Limit,
}

impl TopQuery {
    /// What the query part of an address says; what is not known there is left alone.
    pub fn from_query(query: &str) -> Result<Self, BadTop> {
        let mut own = Self {
            by: TopBy::default(),
            interval: Duration::from_secs(1),
            limit: usize::MAX,
        };
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "by" => {
                    let all = [TopBy::Services, TopBy::Endpoints, TopBy::Clients];
                    let found = all.into_iter().find(|by| by.name() == value);
                    own.by = found.ok_or(BadTop::By)?;
                }
                "interval" => {
                    let millis = value.parse().map_err(|_none| BadTop::Interval)?;
                    own.interval = Duration::from_millis(millis);
                }
                "limit" => own.limit = value.parse().map_err(|_none| BadTop::Limit)?,
                _ => {}
            }
        }
        if own.interval.is_zero() || own.interval > LONGEST {
            return Err(BadTop::Interval);
        }
        Ok(own)
    }

    /// As the query part of an address.
    pub fn to_query(&self) -> String {
        format!(
            "by={}&interval={}&limit={}",
            self.by.name(),
            self.interval.as_millis(),
            self.limit
        )
    }
}

impl Answers {
    pub(super) async fn top(&self, scope: Scope, query: TopQuery) -> Result<Top, AnswerError> {
        let (rows, time, sum, entries) = match query.by {
            TopBy::Clients => self.clients(scope, query.interval).await?,
            by => self.served(scope, by, query.interval).await?,
        };
        let tables = flow_maps(&self.facts.capacities, Some(entries));
        Ok(table(rows, query, time, sum, tables))
    }

    /// Services or endpoints: what was counted of them, twice, and their flows.
    async fn served(
        &self,
        scope: Scope,
        by: TopBy,
        interval: Duration,
    ) -> Result<Readings, AnswerError> {
        let reader = Arc::clone(&self.reader);
        let (before, began) = blocking(move || Ok((Picks::read(&reader)?, Instant::now()))).await?;
        tokio::time::sleep(interval).await;
        let reader = Arc::clone(&self.reader);
        let (after, ended) = blocking(move || Ok((Picks::read(&reader)?, Instant::now()))).await?;
        let views = self.ask(|answer| Ask::Services(scope, answer)).await?;
        let (hz, reader) = (self.facts.hz, Arc::clone(&self.reader));
        let flows = blocking(move || reader.flows(now(hz))).await?;
        let (sum, entries) = (flows.by_endpoint.values().sum(), flows.entries);
        let counts = Counts::of(after.since(&before), flows.by_endpoint);
        let rows = served(&views, &counts, by);
        Ok((rows, ended - began, sum, entries))
    }

    /// Clients: those that the flow table knows, and which of their flows it did not know before.
    async fn clients(&self, scope: Scope, interval: Duration) -> Result<Readings, AnswerError> {
        let is_all = scope.namespace.is_none() && scope.name.is_none();
        let views = self.ask(|answer| Ask::Services(scope, answer)).await?;
        let ports = views.iter().flat_map(|view| &view.ports);
        let numbers: HashSet<u32> = ports.filter_map(|port| port.number).collect();
        let wanted = (!is_all).then_some(numbers);
        let (hz, reader) = (self.facts.hz, Arc::clone(&self.reader));
        let (known, began) = blocking(move || {
            let began = Instant::now();
            Ok((Known::read(&reader, now(hz))?, began))
        })
        .await?;
        tokio::time::sleep(interval).await;
        let reader = Arc::clone(&self.reader);
        blocking(move || {
            let began_again = Instant::now();
            let mut all = HashMap::new();
            let sum = known.compare(&reader, now(hz), wanted.as_ref(), &mut all)?;
            let rows = all.into_iter().map(|(client, (flows, new_flows))| TopRow {
                address: Some(client.to_string()),
                new_flows,
                flows,
                ..TopRow::default()
            });
            let entries = reader.flows(now(hz))?.entries;
            Ok((rows.collect(), began_again - began, sum, entries))
        })
        .await
    }
}

/// Rows, the time that their new flows are of, all live flows, and how full the tables are.
type Readings = (Vec<TopRow>, Duration, u64, [(u64, u64); 2]);

/// Flows that are known, each as a number: it is enough that hardly two have the same.
struct Known {
    hasher: RandomState,
    flows: HashSet<u64>,
}

impl Known {
    fn read(reader: &Reader, now: u32) -> Result<Self, ReadError> {
        let hasher = RandomState::new();
        let mut flows = HashSet::new();
        reader.each_flow(
            now,
            |row| !row.is_note(),
            |row| {
                flows.insert(hasher.hash_one((row.proto, row.client, row.frontend)));
            },
        )?;
        Ok(Self { hasher, flows })
    }

    /// Counts the live flows of each client, and those of them that are new; returns how many there
    /// are, of ports that are not wanted as well.
    fn compare(
        &self,
        reader: &Reader,
        now: u32,
        wanted: Option<&HashSet<u32>>,
        all: &mut HashMap<IpAddr, (u64, u64)>,
    ) -> Result<u64, ReadError> {
        let mut sum = 0;
        reader.each_flow(
            now,
            |row| !row.is_note() && !row.is_over,
            |row| {
                sum += 1;
                if wanted.is_none_or(|numbers| numbers.contains(&row.service)) {
                    let flow = (row.proto, row.client, row.frontend);
                    let is_new = !self.flows.contains(&self.hasher.hash_one(flow));
                    let (flows, new) = all.entry(row.client.ip()).or_default();
                    *flows += 1;
                    *new += u64::from(is_new);
                }
            },
        )?;
        Ok(sum)
    }
}

fn served(views: &[ServiceView], counts: &Counts, by: TopBy) -> Vec<TopRow> {
    let mut rows = Vec::new();
    for view in views {
        let mut sum = TopRow {
            namespace: Some(view.name.namespace().to_owned()),
            service: Some(view.name.name().to_owned()),
            ..TopRow::default()
        };
        for port in &view.ports {
            for endpoint in &port.endpoints {
                let (new_flows, flows) = (counts.picks(endpoint), counts.flows(port, endpoint));
                sum.new_flows += new_flows;
                sum.flows += flows;
                if by == TopBy::Endpoints {
                    rows.push(TopRow {
                        namespace: sum.namespace.clone(),
                        service: sum.service.clone(),
                        port: Some(port.name.to_string()),
                        protocol: Some(port.protocol.to_string()),
                        address: Some(endpoint.addr.to_string()),
                        target_port: Some(endpoint.port),
                        new_flows,
                        flows,
                        ..TopRow::default()
                    });
                }
            }
        }
        if by == TopBy::Services {
            rows.push(sum);
        }
    }
    rows
}

#[expect(clippy::cast_precision_loss, reason = "rates and parts")]
fn table(
    mut rows: Vec<TopRow>,
    query: TopQuery,
    time: Duration,
    sum: u64,
    tables: Vec<super::api::Map>,
) -> Top {
    let seconds = time.as_secs_f64();
    for row in &mut rows {
        row.new_flows_per_second = row.new_flows as f64 / seconds;
        row.share = (sum > 0).then(|| row.flows as f64 / sum as f64);
    }
    rows.sort_by_cached_key(|row| {
        let (first, second) = match query.by {
            TopBy::Clients => (row.flows, row.new_flows),
            TopBy::Services | TopBy::Endpoints => (row.new_flows, row.flows),
        };
        let address: Option<IpAddr> = row.address.as_ref().and_then(|text| text.parse().ok());
        let at = address.map(|address| SocketAddr::new(address, row.target_port.unwrap_or(0)));
        let name = (row.namespace.clone(), row.service.clone(), row.port.clone());
        (u64::MAX - first, u64::MAX - second, name, at)
    });
    let new_flows: u64 = rows.iter().map(|row| row.new_flows).sum();
    let (flows, total) = (rows.iter().map(|row| row.flows).sum(), rows.len());
    rows.truncate(query.limit);
    Top {
        kind: Kind::new("Top"),
        by: query.by.name().to_owned(),
        seconds,
        new_flows_per_second: new_flows as f64 / seconds,
        flows,
        total,
        tables,
        items: rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_comes_back_and_nonsense_is_refused() {
        let query = TopQuery {
            by: TopBy::Clients,
            interval: Duration::from_millis(250),
            limit: 7,
        };
        assert_eq!(Ok(query), TopQuery::from_query(&query.to_query()));
        for (text, why) in [
            ("by=pods", BadTop::By),
            ("interval=0", BadTop::Interval),
            ("interval=60001", BadTop::Interval),
            ("interval=x", BadTop::Interval),
            ("limit=-1", BadTop::Limit),
        ] {
            assert_eq!(Err(why), TopQuery::from_query(text), "{text}");
        }
    }

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn the_busiest_come_first_and_what_is_left_out_counts() {
        let row = |name: &str, new_flows, flows| TopRow {
            service: Some(name.to_owned()),
            new_flows,
            flows,
            ..TopRow::default()
        };
        let rows = vec![
            row("c", 1, 5),
            row("b", 1, 5),
            row("a", 0, 90),
            row("d", 8, 0),
        ];
        let names = |by, limit| {
            let query = TopQuery {
                by,
                interval: Duration::from_secs(2),
                limit,
            };
            let top = table(rows.clone(), query, Duration::from_secs(2), 200, Vec::new());
            assert_eq!((4, 100), (top.total, top.flows));
            assert!((top.new_flows_per_second - 5.0).abs() < 1e-9);
            assert!(
                top.items
                    .iter()
                    .all(|row| row.share == Some(row.flows as f64 / 200.0))
            );
            let names: Vec<_> = top
                .items
                .into_iter()
                .filter_map(|row| row.service)
                .collect();
            names.concat()
        };
        assert_eq!("dbca", names(TopBy::Services, 9));
        assert_eq!("abcd", names(TopBy::Clients, 9));
        assert_eq!("db", names(TopBy::Endpoints, 2));
    }
}
