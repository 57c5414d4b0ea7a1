//! Services and endpoints with what was counted of them.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use super::api;
use crate::dataplane::{ReadError, Reader};
use crate::model::{Family, ObjectName};
use crate::plan::{EndpointView, PortView, ServiceView};

/// Which Services are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Of this namespace only.
    pub namespace: Option<String>,
    /// Of this name only.
    pub name: Option<String>,
    /// Whether the flow tables are worth reading.
    pub flows: bool,
}

impl Scope {
    /// What the query part of an address says; what is not known there is left alone.
    pub fn from_query(query: &str) -> Self {
        let mut scope = Self::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "namespace" => scope.namespace = Some(value.to_owned()),
                "name" => scope.name = Some(value.to_owned()),
                "flows" => scope.flows = value == "true",
                _ => {}
            }
        }
        scope
    }

    /// As the query part of an address. Names of Kubernetes need no escaping.
    pub fn to_query(&self) -> String {
        let mut query = Vec::new();
        query.extend(
            self.namespace
                .as_ref()
                .map(|text| format!("namespace={text}")),
        );
        query.extend(self.name.as_ref().map(|text| format!("name={text}")));
        query.extend(self.flows.then(|| "flows=true".to_owned()));
        query.join("&")
    }

    /// Whether a Service is meant.
    pub fn includes(&self, name: &ObjectName) -> bool {
        let is = |wanted: &Option<String>, text: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == text)
        };
        is(&self.namespace, name.namespace()) && is(&self.name, name.name())
    }
}

/// New flows by slot, of IPv4 and IPv6.
#[derive(Debug, Default)]
pub(super) struct Picks([Vec<u64>; 2]);

impl Picks {
    pub(super) fn read(reader: &Reader) -> Result<Self, ReadError> {
        Ok(Self([reader.picks(Family::V4)?, reader.picks(Family::V6)?]))
    }

    /// What came since an earlier reading. A slot that counts anew has changed hands: all of it came
    /// since.
    pub(super) fn since(mut self, before: &Self) -> Self {
        for (own, earlier) in self.0.iter_mut().zip(&before.0) {
            for (count, earlier) in own.iter_mut().zip(earlier) {
                *count = count.checked_sub(*earlier).unwrap_or(*count);
            }
        }
        self
    }
}

/// What was counted of endpoints.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    picks: Picks,
    /// Live flows by service port number and where the endpoint listens.
    flows: HashMap<(u32, SocketAddr), u64>,
}

impl Counts {
    pub(crate) fn read(reader: &Reader, now: u32) -> Result<Self, ReadError> {
        Ok(Self::of(
            Picks::read(reader)?,
            reader.flows(now)?.by_endpoint,
        ))
    }

    pub(super) const fn of(picks: Picks, flows: HashMap<(u32, SocketAddr), u64>) -> Self {
        Self { picks, flows }
    }

    pub(super) fn picks(&self, endpoint: &EndpointView) -> u64 {
        let Picks([v4, v6]) = &self.picks;
        let picks = match endpoint.addr {
            IpAddr::V4(_) => v4,
            IpAddr::V6(_) => v6,
        };
        let slot = endpoint.slot.and_then(|slot| picks.get(slot as usize));
        slot.copied().unwrap_or_default()
    }

    pub(super) fn flows(&self, port: &PortView, endpoint: &EndpointView) -> u64 {
        let at = SocketAddr::new(endpoint.addr, endpoint.port);
        let known = port.number.and_then(|number| self.flows.get(&(number, at)));
        known.copied().unwrap_or_default()
    }
}

pub(crate) fn services(views: &[ServiceView], counts: &Counts) -> Vec<api::Service> {
    let service = |view: &ServiceView| api::Service {
        namespace: view.name.namespace().to_owned(),
        name: view.name.name().to_owned(),
        notices: view.notices.clone(),
        ports: view.ports.iter().map(|own| port(own, counts)).collect(),
    };
    views.iter().map(service).collect()
}

fn port(port: &PortView, counts: &Counts) -> api::Port {
    let all = || port.endpoints.iter();
    api::Port {
        name: port.name.to_string(),
        protocol: port.protocol.to_string(),
        family: port.family.to_string(),
        number: port.number,
        frontends: port
            .frontends
            .iter()
            .map(|own| api::Frontend {
                address: SocketAddr::new(own.at.addr, own.at.port).to_string(),
                kind: own.kind.map(|kind| kind.name().to_owned()),
            })
            .collect(),
        ready: all().filter(|endpoint| endpoint.is_listed).count(),
        total: port.endpoints.len(),
        local: all().filter(|endpoint| endpoint.is_local).count(),
        picks: all().map(|endpoint| counts.picks(endpoint)).sum(),
        flows: all().map(|endpoint| counts.flows(port, endpoint)).sum(),
    }
}

pub(crate) fn endpoints(views: &[ServiceView], counts: &Counts) -> Vec<api::Endpoint> {
    let mut all = Vec::new();
    for view in views {
        for port in &view.ports {
            let picks: Vec<_> = port
                .endpoints
                .iter()
                .map(|endpoint| counts.picks(endpoint))
                .collect();
            let sum = picks.iter().sum();
            let found = port.endpoints.iter().zip(picks);
            all.extend(found.map(|(own, picks)| api::Endpoint {
                namespace: view.name.namespace().to_owned(),
                service: view.name.name().to_owned(),
                port: port.name.to_string(),
                protocol: port.protocol.to_string(),
                family: port.family.to_string(),
                address: own.addr.to_string(),
                target_port: own.port,
                state: own.condition.name().to_owned(),
                listed: own.is_listed,
                lists: own.lists.iter().map(ToString::to_string).collect(),
                local: own.is_local,
                node: own.node.as_deref().map(str::to_owned),
                slice: own.slice.as_ref().map(|slice| slice.name().to_owned()),
                slot: own.slot,
                picks,
                share: share(picks, sum),
                flows: counts.flows(port, own),
            }));
        }
    }
    all
}

#[expect(clippy::cast_precision_loss, reason = "a part of a whole")]
fn share(picks: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| picks as f64 / of as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_comes_back_from_its_query() {
        let scope = Scope {
            namespace: Some("shop".into()),
            name: Some("web".into()),
            flows: true,
        };
        assert_eq!(scope, Scope::from_query(&scope.to_query()));
        assert_eq!(Scope::default(), Scope::from_query("x=y&&z"));
        assert!(scope.includes(&ObjectName::new("shop", "web")));
        assert!(!scope.includes(&ObjectName::new("other", "web")));
        assert!(!scope.includes(&ObjectName::new("shop", "cart")));
        assert!(Scope::default().includes(&ObjectName::new("shop", "web")));
    }
}
