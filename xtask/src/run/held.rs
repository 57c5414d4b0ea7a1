//! Connections that stay open while endpoints come and go.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};

use crate::lab::client::{Connection, Datagrams};
use crate::lab::{Family, Host};

/// Open TCP connections and UDP sockets.
#[derive(Debug)]
pub(super) struct Held {
    connections: Vec<Connection>,
    flows: Vec<Datagrams>,
}

impl Held {
    /// Opens `each` of both kinds from every client in every family.
    pub(super) fn open(
        clients: &[Host],
        target: impl Fn(Family) -> SocketAddr,
        each: usize,
    ) -> Result<Self> {
        let mut held = Self {
            connections: Vec::new(),
            flows: Vec::new(),
        };
        for client in clients {
            for family in Family::ALL {
                for _ in 0..each {
                    held.connections
                        .push(Connection::open(client, target(family))?);
                    held.flows.push(Datagrams::open(client, target(family))?);
                }
            }
        }
        Ok(held)
    }

    /// How many there are of each kind.
    pub(super) const fn len(&self) -> usize {
        self.connections.len()
    }

    /// Sends something through every TCP connection and waits for it to come back; returns how
    /// many of them lead to the named endpoint.
    pub(super) fn exchange(&mut self, endpoint: &str) -> Result<usize> {
        for connection in &mut self.connections {
            connection
                .echo("still there?")
                .with_context(|| format!("an open connection died: {}", connection.answer()))?;
        }
        let names = self.connections.iter().map(|open| &open.answer().name);
        Ok(names.filter(|name| *name == endpoint).count())
    }

    /// Sends a datagram through every UDP socket; returns how many the named endpoint answered.
    pub(super) fn ask(&self, endpoint: &str) -> Result<usize> {
        let mut found = 0;
        for flow in &self.flows {
            found += usize::from(flow.ask()?.name == endpoint);
        }
        Ok(found)
    }

    /// Closes every TCP connection in good order.
    pub(super) fn close(self) -> Result<()> {
        ensure!(!self.connections.is_empty(), "nothing was held open");
        self.connections.into_iter().try_for_each(Connection::close)
    }
}
