//! What the plan knows of one address and port, for those who ask where packets to it go.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use proxy_common::abi::{FrontendFlags, Origin};

use super::op::Socket;
use super::policy::{Judged, Standing};
use super::wanted::{FrontendKind, List, PortKey, WantedFrontend};
use super::{Condition, Plan};
use crate::model::{EndpointSlice, IpNet, ObjectName, Protocol, Service, ServicePort};

/// A service port that has a frontend, or would have it if no other came first.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The Service.
    pub service: ObjectName,
    /// Name of the port.
    pub port: Arc<str>,
    /// What the frontend is to it.
    pub kind: FrontendKind,
    /// Whether it has no endpoint for the frontend.
    pub is_empty: bool,
    /// When the Service was made, in seconds since 1970, if that is known.
    pub created: Option<i64>,
}

/// A frontend as it is planned, with all that decides on packets to it.
#[derive(Clone, Debug)]
pub struct Account {
    /// Where it is.
    pub at: Socket,
    /// Who wants it; the first has it.
    pub claims: Vec<Claimed>,
    /// The service port that has it; none of a whole address, which leads nowhere.
    pub port: Option<PortAccount>,
}

/// The service port that has a frontend.
#[derive(Clone, Debug)]
pub struct PortAccount {
    /// Its Service.
    pub service: Arc<Service>,
    /// It.
    pub port: ServicePort,
    /// Its number in the tables.
    pub number: u32,
    /// What the frontend is to it.
    pub kind: FrontendKind,
    /// What the frontend does.
    pub flags: FrontendFlags,
    /// Where packets from inside go, and the node's own.
    pub inside: List,
    /// Where packets from outside go.
    pub outside: List,
    /// Its endpoints in order of address and port.
    pub endpoints: Vec<EndpointAccount>,
    /// Who may use the frontend, if it is filtered.
    pub sources: Vec<IpNet>,
    /// What of the Service is not served.
    pub notices: Vec<String>,
}

impl PortAccount {
    /// The list of endpoints for packets of an origin.
    pub const fn list(&self, origin: Origin) -> List {
        match origin {
            Origin::Inside | Origin::Host => self.inside,
            Origin::Outside => self.outside,
        }
    }
}

/// An endpoint, with the lists that it is in and why.
#[derive(Clone, Debug)]
pub struct EndpointAccount {
    /// Address.
    pub addr: IpAddr,
    /// Port.
    pub port: u16,
    /// Whether it runs on this node.
    pub is_local: bool,
    /// The node it runs on.
    pub node: Option<Arc<str>>,
    /// What its slice says of it.
    pub condition: Condition,
    /// Zones that its hints name.
    pub for_zones: Vec<Arc<str>>,
    /// Nodes that its hints name.
    pub for_nodes: Vec<Arc<str>>,
    /// In the list for the policy `Cluster`, or why not.
    pub cluster: Standing,
    /// In the list for the policy `Local`, or why not.
    pub local: Standing,
}

impl EndpointAccount {
    /// Its place in a list; none in that of nobody.
    pub const fn standing(&self, list: List) -> Option<Standing> {
        match list {
            List::Nobody => None,
            List::Cluster => Some(self.cluster),
            List::Local => Some(self.local),
        }
    }
}

impl From<Judged<'_>> for EndpointAccount {
    fn from(judged: Judged<'_>) -> Self {
        let Judged {
            addr,
            port,
            is_local,
            cluster,
            local,
            endpoint,
            ..
        } = judged;
        Self {
            addr,
            port,
            is_local,
            node: endpoint.node.clone(),
            condition: Condition::of(endpoint),
            for_zones: endpoint.for_zones.clone(),
            for_nodes: endpoint.for_nodes.clone(),
            cluster,
            local,
        }
    }
}

impl Plan {
    /// What is planned for a frontend; nothing if no Service wants it.
    pub fn account(&self, at: Socket) -> Option<Account> {
        let claims = self.ports.claims(at);
        let first = claims.first()?;
        Some(Account {
            at,
            port: self.port_account(at, first.service(), first.key()),
            claims: claims
                .iter()
                .map(|claim| Claimed {
                    service: claim.service().clone(),
                    port: Arc::clone(&claim.key().name),
                    kind: claim.kind(),
                    is_empty: claim.is_empty(),
                    created: self.service(claim.service()).and_then(|own| own.created),
                })
                .collect(),
        })
    }

    /// Services, declared or not, of which an endpoint listens there.
    pub fn services_of_endpoint(
        &self,
        at: SocketAddr,
        protocol: Protocol,
    ) -> impl Iterator<Item = &ObjectName> {
        let has = move |slice: &EndpointSlice| {
            let mut ports = slice.ports.iter();
            ports.any(|own| own.port == at.port() && own.protocol == protocol)
                && slice.endpoints.iter().any(|own| own.address == at.ip())
        };
        let slices = self.slices.values().filter(move |slice| has(slice));
        slices.map(|slice| &slice.service)
    }

    /// A Service that is declared.
    pub fn service(&self, name: &ObjectName) -> Option<&Arc<Service>> {
        self.entries.get(name)?.service.as_ref()
    }

    fn port_account(&self, at: Socket, name: &ObjectName, key: &PortKey) -> Option<PortAccount> {
        let entry = self.entries.get(name)?;
        let service = entry.service.as_ref()?;
        let mut ports = service.ports.iter();
        let port = ports.find(|port| port.name == key.name && at.proto == port.protocol.into())?;
        let (number, frontends, _) = self.ports.planned(name, key)?;
        let frontend: &WantedFrontend = frontends.iter().find(|own| own.at == at)?;
        let judged = self.policy.judged(port, key.family, &entry.slices);
        let wanted = self.policy.wanted(service, &entry.slices);
        let mut wanted = wanted.into_iter().filter(|wanted| wanted.key == *key);
        Some(PortAccount {
            service: Arc::clone(service),
            port: port.clone(),
            number,
            kind: frontend.kind,
            flags: frontend.flags,
            inside: frontend.inside,
            outside: frontend.outside,
            endpoints: judged.into_iter().map(EndpointAccount::from).collect(),
            sources: wanted.next().map(|own| own.sources).unwrap_or_default(),
            notices: entry.notices.iter().map(ToString::to_string).collect(),
        })
    }
}
