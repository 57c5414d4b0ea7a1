//! Which flows are asked for.

use std::fmt::{Display, Write as _};
use std::str::FromStr;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use thiserror::Error;

use super::Ends;
use crate::control::api::FlowState;
use crate::control::listing::Scope;
use crate::control::names::Names;
use crate::control::peer::Peer;
use crate::model::{ObjectName, Protocol};

/// Which flows are asked for, in what order, and how many at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowQuery {
    /// Of whom.
    pub selection: Selection,
    /// Only in this state; in any but [`FlowState::Expired`] if not given.
    pub state: Option<FlowState>,
    /// Whether notes of traffic that is no Service's count as flows.
    pub notes: bool,
    /// Most flows; 0 for all.
    pub limit: usize,
    /// The order.
    pub order: FlowOrder,
}

/// Whose flows, or whose events, are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of these Services.
    pub scope: Scope,
    /// Of these clients.
    pub client: Option<Peer>,
    /// To these frontends.
    pub frontend: Option<Peer>,
    /// To these endpoints.
    pub endpoint: Option<Peer>,
    /// Of this protocol.
    pub protocol: Option<Protocol>,
}

/// In what order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FlowOrder {
    /// By namespace, name and port of the Service.
    #[default]
    Service,
    /// By address and port of the client.
    Client,
    /// By address and port of the endpoint.
    #[value(alias("backend"))]
    Endpoint,
    /// By state.
    State,
    /// The last used first.
    Idle,
    /// The first to go first.
    Expires,
}

/// A question that makes no sense.
#[derive(Debug, Error)]
pub enum BadQuery {
    /// Not a value.
    #[error("{name}={value} makes no sense here")]
    Value {
        /// Of what.
        name: String,
        /// What it is.
        value: String,
    },
    /// Not a name.
    #[error("nothing is known of {0}")]
    Name(String),
}

impl BadQuery {
    pub(crate) fn value(name: &str, value: &str) -> Self {
        Self::Value {
            name: name.to_owned(),
            value: value.to_owned(),
        }
    }
}

impl Selection {
    /// Whether a flow with these ends is one of them.
    pub(crate) fn includes(&self, names: &Names, service: u32, ends: &Ends) -> bool {
        self.client.is_none_or(|peer| peer.includes(ends.client))
            && self
                .frontend
                .is_none_or(|peer| ends.frontend.is_some_and(|at| peer.includes(at)))
            && self
                .endpoint
                .is_none_or(|peer| ends.endpoint.is_some_and(|at| peer.includes(at)))
            && self
                .protocol
                .is_none_or(|protocol| ends.proto == protocol.into())
            && self.includes_service(names, service)
    }

    fn includes_service(&self, names: &Names, service: u32) -> bool {
        if self.scope.namespace.is_none() && self.scope.name.is_none() {
            return true;
        }
        match (service, names.port(service)) {
            (0, _) => false,
            (_, Some(name)) => self.scope.includes(&name.service),
            (_, None) => self
                .scope
                .includes(&ObjectName::new("-", &format!("#{service}"))),
        }
    }

    /// Takes a pair of a query; whether it was one of this.
    pub(crate) fn take(&mut self, name: &str, value: &str) -> Result<bool, BadQuery> {
        match name {
            "namespace" => self.scope.namespace = Some(value.to_owned()),
            "name" => self.scope.name = Some(value.to_owned()),
            "client" => self.client = Some(parsed(name, value)?),
            "frontend" => self.frontend = Some(parsed(name, value)?),
            "endpoint" => self.endpoint = Some(parsed(name, value)?),
            "protocol" => {
                let all = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
                let mut all = all.into_iter();
                let found = all.find(|own| own.to_string().eq_ignore_ascii_case(value));
                self.protocol = Some(found.ok_or_else(|| BadQuery::value(name, value))?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// As the query part of an address.
    pub(crate) fn to_query(&self) -> String {
        let mut query = self.scope.to_query();
        put(&mut query, "client", self.client);
        put(&mut query, "frontend", self.frontend);
        put(&mut query, "endpoint", self.endpoint);
        put(&mut query, "protocol", self.protocol);
        query
    }
}

impl FlowQuery {
    /// What the query part of an address says.
    pub fn from_query(query: &str) -> Result<Self, BadQuery> {
        let mut all = Self::default();
        for (name, value) in pairs(query) {
            if all.selection.take(name, value)? {
                continue;
            }
            match name {
                "state" => all.state = Some(word(name, value)?),
                "notes" => all.notes = parsed(name, value)?,
                "limit" => all.limit = parsed(name, value)?,
                "sort" => all.order = word(name, value)?,
                _ => return Err(BadQuery::Name(name.to_owned())),
            }
        }
        Ok(all)
    }

    /// As the query part of an address. What it is made of needs no escaping there.
    pub fn to_query(&self) -> String {
        let mut query = self.selection.to_query();
        put(&mut query, "state", self.state);
        put(&mut query, "notes", self.notes.then_some(true));
        put(&mut query, "limit", (self.limit > 0).then_some(self.limit));
        let order = self.order.to_possible_value();
        put(
            &mut query,
            "sort",
            order.as_ref().map(PossibleValue::get_name),
        );
        query
    }
}

/// The pairs of a query.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let all = query.split('&').filter(|pair| !pair.is_empty());
    all.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Adds a pair to a query.
pub(crate) fn put(query: &mut String, name: &str, value: Option<impl Display>) {
    if let Some(value) = value {
        let and = if query.is_empty() { "" } else { "&" };
        // Writing to a string does not fail.
        write!(query, "{and}{name}={value}").ok();
    }
}

pub(crate) fn parsed<T: FromStr>(name: &str, value: &str) -> Result<T, BadQuery> {
    value
        .parse()
        .map_err(|_unread| BadQuery::value(name, value))
}

fn word<T: ValueEnum>(name: &str, value: &str) -> Result<T, BadQuery> {
    T::from_str(value, true).map_err(|_unread| BadQuery::value(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_comes_back_from_its_query() {
        let full = FlowQuery {
            selection: Selection {
                scope: Scope {
                    namespace: Some("shop".into()),
                    name: Some("web".into()),
                    flows: false,
                },
                client: Some("10.0.0.0/8:7".parse().unwrap()),
                frontend: Some(":80".parse().unwrap()),
                endpoint: Some("[fd00::1]:8080".parse().unwrap()),
                protocol: Some(Protocol::Udp),
            },
            state: Some(FlowState::HalfOpen),
            notes: true,
            limit: 7,
            order: FlowOrder::Expires,
        };
        for query in [full, FlowQuery::default()] {
            assert_eq!(query, FlowQuery::from_query(&query.to_query()).unwrap());
        }
        for bad in [
            "client=x",
            "state=open",
            "protocol=icmp",
            "limit=-1",
            "x=y",
            "sort",
        ] {
            assert!(FlowQuery::from_query(bad).is_err(), "{bad}");
        }
    }
}
