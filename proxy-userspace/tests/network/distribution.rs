//! Every endpoint gets its share: what users of other proxies have reported.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use xtask::lab::client::{Answer, Connection};
use xtask::lab::draw::{draw, draw_here};
use xtask::lab::manifest::Service;
use xtask::lab::server::Server;
use xtask::lab::{Family, Host, Protocol};

use super::world::{World, assert_even, is_long, wait_until};

/// Field report B001: some hundred endpoints over several slices.
#[test]
fn every_one_of_400_endpoints_in_four_slices_gets_its_share() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let pod = world.lab.pod(1).unwrap();
    world.lab.add_prefix(1, &pod, "10.244.200.0/23").unwrap();
    world
        .lab
        .add_prefix(1, &pod, "fd00:10:244:200::/64")
        .unwrap();
    let _server = Server::start_at(&pod, "all", &["[::]:8080".parse().unwrap()]).unwrap();
    let service = Service::new("web", 10);
    world
        .manifests
        .write("service-web", &service.yaml())
        .unwrap();
    for family in Family::ALL {
        let endpoints: Vec<_> = (1..=400).map(|n| (many(family, n), "node1")).collect();
        for (endpoints, number) in endpoints.chunks(100).zip(1..) {
            let name = format!("{}-{number}", service.slice_name(family));
            let yaml = service.slice_yaml(&name, family, endpoints);
            world.manifests.write(&name, &yaml).unwrap();
        }
    }
    world.start();
    for family in Family::ALL {
        let mut counts = Counts::new((1..=400).map(|n| many(family, n).to_string()));
        // 25 each: enough to miss one that is never drawn.
        let count = if is_long() { 40_000 } else { 10_000 };
        counts.draw_by(&client, &service, Protocol::Tcp, family, count, |answer| {
            answer.local.ip().to_string()
        });
        assert_even(&family.to_string(), &counts.sorted());
    }
    world.assert_unnoticed(&[&service]);
}

/// Field report B003, by Cluster IP.
#[test]
fn two_endpoints_get_half_each_of_one_clients_connections() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let outside = world.lab.outside().clone();
    let inside = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 2);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    for (client, family) in [(outside, Family::V4), (inside, Family::V6)] {
        let target = service.target(family);
        let first = client
            .namespace
            .enter(|| {
                let mut first = 0;
                // One after the other, on purpose: a rotation would be noticed by nobody else.
                for _ in 0..4000 {
                    let answer = draw_here(&client, Protocol::Tcp, target)?;
                    first += u64::from(answer.name == pods[0].name);
                }
                Ok(first)
            })
            .unwrap();
        assert!(
            (1800..=2200).contains(&first),
            "{first} of 4000 from {}",
            client.name
        );
    }
    world.assert_unnoticed(&[&service]);
}

/// Field report B004: connections that live long, and one more endpoint.
#[test]
fn a_new_endpoint_gets_its_share_of_new_connections_and_old_ones_stay() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 3);
    let mut service = Service::new("web", 10).with(world.endpoints(1, &pods[..2]));
    world.start_with(&service);
    let mut held: Vec<_> = (0..50)
        .map(|n| Connection::open(&client, service.target(Family::ALL[n % 2])).unwrap())
        .collect();
    service.endpoints = world.endpoints(1, &pods);
    world.manifests.write_service(&service).unwrap();
    for family in Family::ALL {
        for protocol in Protocol::ALL {
            wait_for(&client, &service, protocol, family, &pods[2]);
            let mut counts = Counts::of(&pods);
            counts.draw(&client, &service, protocol, family, 3000);
            assert_even(&format!("{protocol} {family}"), &counts.sorted());
        }
    }
    for open in &mut held {
        open.echo("still there?").unwrap();
    }
    for open in held {
        open.close().unwrap();
    }
    world.assert_unnoticed(&[&service]);
}

/// Field report B005: an endpoint that comes and goes all the time.
#[test]
fn shares_are_even_after_an_endpoint_has_come_and_gone_many_times() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 4);
    let mut service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let (time, pause) = if is_long() {
        (Duration::from_mins(1), Duration::from_secs(1))
    } else {
        (Duration::from_secs(3), Duration::from_millis(30))
    };

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for protocol in Protocol::ALL {
            for family in Family::ALL {
                let (client, service, pods, stop) = (&client, service.clone(), &pods, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        // Everybody who answers has to be one of them, and nothing may fail.
                        Counts::of(pods).draw(client, &service, protocol, family, 50);
                    }
                });
            }
        }
        let end = Instant::now() + time;
        while Instant::now() < end {
            for endpoints in [&pods[..3], &pods[..]] {
                service.endpoints = world.endpoints(1, endpoints);
                for family in Family::ALL {
                    world.manifests.write_slice(&service, family).unwrap();
                }
                std::thread::sleep(pause);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });

    for family in Family::ALL {
        for protocol in Protocol::ALL {
            wait_for(&client, &service, protocol, family, &pods[3]);
            let mut counts = Counts::of(&pods);
            let count = if is_long() { 10_000 } else { 2_500 };
            counts.draw(&client, &service, protocol, family, count);
            assert_even(&format!("{protocol} {family}"), &counts.sorted());
        }
    }
    world.assert_unnoticed(&[&service]);
}

// Addresses in the prefixes of the one pod that serves them all.
fn many(family: Family, n: u16) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 244, 200 + (n >> 8) as u8, n as u8).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 0x10, 0x244, 0x200, 0, 0, 0, n).into(),
    }
}

fn wait_for(client: &Host, service: &Service, protocol: Protocol, family: Family, pod: &Host) {
    wait_until("new connections reach the new endpoint", || {
        let mut counts = Counts::new([]);
        counts.strangers = true;
        counts.draw(client, service, protocol, family, 16);
        counts.counts.contains_key(&pod.name)
    });
}

/// Who answered how often.
struct Counts {
    counts: BTreeMap<String, u64>,
    strangers: bool,
}

impl Counts {
    fn new(names: impl IntoIterator<Item = String>) -> Self {
        let counts = names.into_iter().map(|name| (name, 0)).collect();
        Self {
            counts,
            strangers: false,
        }
    }

    fn of(pods: &[Host]) -> Self {
        Self::new(pods.iter().map(|pod| pod.name.clone()))
    }

    fn draw(
        &mut self,
        client: &Host,
        service: &Service,
        protocol: Protocol,
        family: Family,
        count: u64,
    ) {
        let name = |answer: &Answer| answer.name.clone();
        self.draw_by(client, service, protocol, family, count, name);
    }

    fn draw_by(
        &mut self,
        client: &Host,
        service: &Service,
        protocol: Protocol,
        family: Family,
        count: u64,
        name: impl Fn(&Answer) -> String + Sync,
    ) {
        let answers = Mutex::new(Vec::new());
        let each = |answer: &Answer| answers.lock().unwrap().push(name(answer));
        draw(client, protocol, service.target(family), count, &each).unwrap();
        for name in answers.into_inner().unwrap() {
            let known = self.strangers || self.counts.contains_key(&name);
            assert!(known, "{name} answered and is no endpoint");
            *self.counts.entry(name).or_default() += 1;
        }
    }

    fn sorted(&self) -> Vec<(String, u64)> {
        self.counts
            .iter()
            .map(|(name, count)| (name.clone(), *count))
            .collect()
    }
}
