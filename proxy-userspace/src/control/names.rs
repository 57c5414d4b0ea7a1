//! What stands behind the numbers and addresses of the tables.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::model::ObjectName;
use crate::plan::ServiceView;

/// Names of service ports and nodes, as they are known at one moment.
#[derive(Debug, Default)]
pub(crate) struct Names {
    ports: HashMap<u32, PortName>,
    nodes: HashMap<SocketAddr, Arc<str>>,
}

/// The name of a service port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortName {
    /// Its Service.
    pub(crate) service: ObjectName,
    /// Its own.
    pub(crate) port: Arc<str>,
}

impl Names {
    pub(crate) fn of(views: &[ServiceView]) -> Self {
        let mut names = Self::default();
        for view in views {
            for port in &view.ports {
                for endpoint in &port.endpoints {
                    if let Some(node) = &endpoint.node {
                        let at = SocketAddr::new(endpoint.addr, endpoint.port);
                        names.nodes.insert(at, Arc::clone(node));
                    }
                }
                let Some(number) = port.number else { continue };
                let name = PortName {
                    service: view.name.clone(),
                    port: Arc::clone(&port.name),
                };
                names.ports.insert(number, name);
            }
        }
        names
    }

    /// The service port of this number.
    pub(crate) fn port(&self, number: u32) -> Option<&PortName> {
        self.ports.get(&number)
    }

    /// The node that an endpoint runs on.
    pub(crate) fn node(&self, endpoint: SocketAddr) -> Option<&str> {
        self.nodes.get(&endpoint).map(|node| &**node)
    }
}
