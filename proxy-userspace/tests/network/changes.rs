//! Endpoints come and go under open connections.

use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::Service;
use xtask::lab::{Family, Host};

use super::world::{World, wait_until};

#[test]
fn a_udp_flow_leaves_a_removed_endpoint_at_its_next_packet_while_tcp_goes_on() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    let mut service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let [gone, stays] = &pods[..] else { panic!() };

    let mut open: Vec<_> = Family::ALL
        .iter()
        .map(|family| Open::new(&client, &service, *family, gone))
        .collect();
    service.endpoints.remove(0);
    for family in Family::ALL {
        world.manifests.write_slice(&service, family).unwrap();
    }
    for open in &mut open {
        open.expect_flows_at(stays);
        open.expect_connections_at(gone);
    }
    // It comes back: nothing that is open follows it.
    service.endpoints = world.endpoints(1, &pods);
    for family in Family::ALL {
        world.manifests.write_slice(&service, family).unwrap();
        wait_until("new flows reach it again", || {
            let flow = Datagrams::open(&client, service.target(family)).unwrap();
            flow.ask().unwrap().name == gone.name
        });
    }
    for open in &mut open {
        open.expect_flows_at(stays);
        open.expect_connections_at(gone);
    }
    world.assert_unnoticed(&[&service]);
}

/// UDP flows and TCP connections that lead to one endpoint.
struct Open {
    flows: Vec<Datagrams>,
    connections: Vec<Connection>,
}

impl Open {
    fn new(client: &Host, service: &Service, family: Family, endpoint: &Host) -> Self {
        let target = service.target(family);
        let mut open = Self {
            flows: Vec::new(),
            connections: Vec::new(),
        };
        while open.flows.len() < EACH {
            let flow = Datagrams::open(client, target).unwrap();
            if flow.ask().unwrap().name == endpoint.name {
                open.flows.push(flow);
            }
        }
        while open.connections.len() < EACH {
            let connection = Connection::open(client, target).unwrap();
            if connection.answer().name == endpoint.name {
                open.connections.push(connection);
            }
        }
        open
    }

    // The first flow tells when the change is in; the others have sent nothing since before it.
    fn expect_flows_at(&self, endpoint: &Host) {
        let [first, rest @ ..] = &self.flows[..] else {
            panic!()
        };
        wait_until("the change is in", || {
            first.ask().unwrap().name == endpoint.name
        });
        for flow in rest {
            assert_eq!(endpoint.name, flow.ask().unwrap().name);
        }
    }

    fn expect_connections_at(&mut self, endpoint: &Host) {
        for connection in &mut self.connections {
            connection.echo("still there?").unwrap();
            connection.upload(100_000, 3).unwrap();
            assert_eq!(endpoint.name, connection.answer().name);
        }
    }
}

const EACH: usize = 10;
