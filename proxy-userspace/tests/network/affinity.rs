//! Clients that come back to the endpoint that they had.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::draw::draw_here;
use xtask::lab::manifest::Service;
use xtask::lab::server::Server;
use xtask::lab::{Family, Host, Protocol};

use super::pinned::Live;
use super::scene::NODE_PORT;
use super::world::{World, wait_until};

const STICKY: &str = "sessionAffinity: ClientIP";
/// Chance that 60 choices of one in two are all the same: once in 10^18 times.
const TRIES: usize = 60;

fn timeout(seconds: u32) -> String {
    format!("sessionAffinityConfig: {{clientIP: {{timeoutSeconds: {seconds}}}}}")
}

/// A node with some endpoints of a sticky Service, and a client.
struct Stage {
    world: World,
    service: Service,
    pods: Vec<Host>,
    _servers: Vec<Server>,
    client: Host,
    live: Live,
}

impl Stage {
    fn new(endpoints: u8, shape: impl FnOnce(Service) -> Service) -> Option<Self> {
        let mut world = World::new(1)?;
        let (pods, servers) = world.servers(1, endpoints);
        let client = world.lab.pod(1).unwrap();
        let service = Service::new("web", 10).with(world.endpoints(1, &pods));
        let service = shape(service.specified(STICKY));
        world.start_with(&service);
        Some(Self {
            live: Live::open(&world.lab.node(1)),
            world,
            service,
            pods,
            _servers: servers,
            client,
        })
    }

    /// Who answers one new connection or flow.
    fn ask(&self, protocol: Protocol, family: Family) -> String {
        ask(&self.client, None, protocol, self.service.target(family))
    }

    /// Fails unless the client stays where it is, each time `seconds` after the last.
    fn assert_kept(&mut self, seconds: u32, way: Way) {
        let at = self.ask(way.0, way.1);
        for _ in 0..20 {
            self.live.age_clients(seconds);
            assert_eq!(at, self.ask(way.0, way.1), "{way:?} after {seconds} s");
        }
    }

    /// Fails unless the client comes to another endpoint in the end if each time these seconds have
    /// passed.
    fn assert_forgotten(&mut self, seconds: u32, way: Way) {
        let at = self.ask(way.0, way.1);
        let others = (0..TRIES).filter(|_| {
            self.live.age_clients(seconds);
            at != self.ask(way.0, way.1)
        });
        assert_eq!(1, others.take(1).count(), "{way:?} after {seconds} s");
    }

    /// Writes the Service anew with other lines, and waits until it is served so.
    fn specify(&mut self, lines: &[&str], is_so: impl Fn(&mut Self) -> bool) {
        self.service.spec = lines.iter().map(|line| (*line).to_owned()).collect();
        self.world.manifests.write_service(&self.service).unwrap();
        wait_until(&format!("it is {lines:?}"), || is_so(self));
    }
}

type Way = (Protocol, Family);

fn ways() -> impl Iterator<Item = Way> {
    let protocols = Protocol::ALL.into_iter();
    protocols.flat_map(|protocol| Family::ALL.map(|family| (protocol, family)))
}

fn ask(client: &Host, from: Option<IpAddr>, protocol: Protocol, target: SocketAddr) -> String {
    let ask = || {
        let Some(from) = from else {
            return Ok(draw_here(client, protocol, target)?.name);
        };
        let from = Some(SocketAddr::new(from, 0));
        Ok(match protocol {
            Protocol::Tcp => {
                let open = Connection::open_here(target, from)?;
                let name = open.answer().name.clone();
                open.reset()?;
                name
            }
            Protocol::Udp => Datagrams::open_here(target, from)?.ask()?.name,
        })
    };
    client.namespace.enter(ask).unwrap()
}

/// Every address of a client is a client of its own, and all ways to a service port are one.
// B020
#[test]
fn each_address_sticks_to_one_endpoint_by_whatever_way_it_comes() {
    let Some(stage) = Stage::new(4, |service| service.at_node_port(NODE_PORT).balanced(20)) else {
        return;
    };
    let lab = &stage.world.lab;
    lab.add_prefix(1, &stage.client, "10.244.1.192/28").unwrap();
    lab.add_prefix(1, &stage.client, "fd00:10:244:1::c0/124")
        .unwrap();
    // A prefix is none of a host's own addresses in IPv6.
    let setting = ("ipv6/ip_nonlocal_bind".to_owned(), "1");
    stage.client.namespace.set(&[setting]).unwrap();
    let node = lab.node(1).addresses;
    for (protocol, family) in ways() {
        let own = stage.service.target(family);
        let balancer = stage.service.balancer.unwrap().of(family);
        let doors = [
            own,
            (node.of(family), NODE_PORT).into(),
            (balancer, 80).into(),
        ];
        let prefix = match family {
            Family::V4 => "10.244.1.",
            Family::V6 => "fd00:10:244:1::",
        };
        let mut all = BTreeSet::new();
        for number in 192..208 {
            let last = match family {
                Family::V4 => number.to_string(),
                Family::V6 => format!("{number:x}"),
            };
            let from: IpAddr = format!("{prefix}{last}").parse().unwrap();
            let names = doors.iter().cycle().take(6);
            let names = names.map(|door| ask(&stage.client, Some(from), protocol, *door));
            let names: BTreeSet<_> = names.collect();
            assert_eq!(1, names.len(), "{from} {protocol}");
            all.extend(names);
        }
        assert!(all.len() > 1, "{all:?}");
    }
}

// B012
#[test]
fn a_client_is_forgotten_when_its_time_is_over_and_not_before() {
    let Some(mut stage) = Stage::new(2, |service| service.specified(&timeout(600))) else {
        return;
    };
    for way in ways() {
        // Longer than the time altogether: each new connection begins it anew.
        stage.assert_kept(400, way);
        stage.assert_forgotten(601, way);
        stage.assert_kept(400, way);
    }
}

// B010
#[test]
fn the_time_is_three_hours_if_nothing_is_said_of_it() {
    let Some(mut stage) = Stage::new(2, |service| service) else {
        return;
    };
    for way in ways() {
        stage.assert_kept(10_700, way);
        stage.assert_forgotten(10_801, way);
    }
}

// B014
#[test]
fn packets_of_old_connections_do_not_keep_a_client() {
    let Some(mut stage) = Stage::new(2, |service| service.specified(&timeout(600))) else {
        return;
    };
    for family in Family::ALL {
        let target = stage.service.target(family);
        stage.assert_kept(400, (Protocol::Tcp, family));
        let mut open = Connection::open(&stage.client, target).unwrap();
        let at = open.answer().name.clone();
        let others = (0..TRIES).filter(|_| {
            stage.live.age_clients(400);
            open.echo("still there?").unwrap();
            stage.live.age_clients(400);
            let name = stage.ask(Protocol::Tcp, family);
            open.echo("still there?").unwrap();
            name != at
        });
        assert_eq!(1, others.take(1).count());
    }
}

// B014, B016
#[test]
fn affinity_that_is_changed_on_a_live_service_is_in_force_for_the_next_connections() {
    let Some(mut stage) = Stage::new(2, |service| service.specified(&timeout(600))) else {
        return;
    };
    let way = (Protocol::Tcp, Family::V4);
    let mut held = Connection::open(&stage.client, stage.service.target(way.1)).unwrap();
    stage.assert_kept(400, way);
    let short = timeout(300);
    // In force as soon as 400 seconds are too long.
    stage.specify(&[STICKY, &short], |stage| {
        let at = stage.ask(way.0, way.1);
        stage.live.age_clients(400);
        at != stage.ask(way.0, way.1)
    });
    for way in ways() {
        stage.assert_kept(200, way);
        stage.assert_forgotten(400, way);
    }
    stage.specify(&[], |stage| {
        let names: BTreeSet<_> = (0..10).map(|_| stage.ask(way.0, way.1)).collect();
        names.len() == 2
    });
    for way in ways() {
        stage.assert_forgotten(0, way);
    }
    // What it was before it was switched off is of no account when it is switched on.
    wait_until("all clients are forgotten", || stage.live.clients() == 0);
    stage.specify(&[STICKY], |stage| {
        let names: BTreeSet<_> = (0..40).map(|_| stage.ask(way.0, way.1)).collect();
        names.len() == 1
    });
    for way in ways() {
        stage.assert_kept(10_700, way);
    }
    held.echo("still there?").unwrap();
    held.upload(100_000, 1).unwrap();
}

/// Whether it leaves or is only not ready any more. Its clients do not return with it.
// B007, B009
#[test]
fn a_client_whose_endpoint_goes_moves_to_another_and_stays_there() {
    let Some(mut stage) = Stage::new(2, |service| service) else {
        return;
    };
    let full = stage.service.clone();
    for (protocol, family) in ways() {
        for leaves in [true, false] {
            let name = stage.ask(protocol, family);
            let at = stage.pods.iter().position(|pod| pod.name == name).unwrap();
            if leaves {
                stage.service.endpoints.remove(at);
                let manifests = &stage.world.manifests;
                manifests.write_slice(&stage.service, family).unwrap();
            } else {
                let slice = full.slice_name(family);
                let all = full.endpoints.iter();
                let all = all.map(|own| (own.addresses.of(family), own.node.as_str()));
                let yaml = full.slice_yaml(&slice, family, &all.collect::<Vec<_>>());
                let parts: Vec<_> = yaml.split("- addresses").collect();
                let mut parts = parts
                    .iter()
                    .map(|part| (*part).to_owned())
                    .collect::<Vec<_>>();
                parts[at + 1] = parts[at + 1].replace("ready: true", "ready: false");
                let yaml = parts.join("- addresses").replace(", serving: true", "");
                stage.world.manifests.write(&slice, &yaml).unwrap();
            }
            let other = stage.pods[1 - at].name.clone();
            wait_until("the client has moved", || {
                stage.ask(protocol, family) == other
            });
            stage.service = full.clone();
            stage.world.manifests.write_slice(&full, family).unwrap();
            wait_until("both endpoints are there", || {
                let port = full.target(family);
                let proto = match protocol {
                    Protocol::Tcp => proxy_common::net::Proto::TCP,
                    Protocol::Udp => proxy_common::net::Proto::UDP,
                };
                let known = stage.live.endpoints(port, proto);
                known.is_some_and(|known| known.len() == 2)
            });
            stage.assert_kept(0, (protocol, family));
            assert_eq!(other, stage.ask(protocol, family));
        }
    }
    stage.world.assert_unnoticed(&[&full]);
}
