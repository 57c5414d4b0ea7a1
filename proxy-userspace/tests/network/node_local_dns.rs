//! A cache of the node at the address of a Service, as `NodeLocal` `DNSCache` has it.

use xtask::lab::Family;
use xtask::lab::client::Connection;
use xtask::lab::manifest::Service;
use xtask::lab::server::Server;

use super::scene::new_flow;
use super::world::{World, ip, wait_until};

/// At the very port of the Service: it comes to serve pods at once, and goes without a gap.
#[test]
fn a_cache_at_the_address_and_port_of_a_service_serves_pods_while_it_is_there() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let (pods, _servers) = world.servers(1, 1);
    let client = world.lab.pod(1).unwrap();
    let mut service = Service::new("dns", 10).with(world.endpoints(1, &pods));
    service.port = 53;
    world.start_with(&service);
    let node = world.lab.node(1);
    let ask = || {
        let targets = Family::ALL.map(|family| service.target(family));
        targets.map(|target| {
            let open = Connection::open(&client, target).unwrap();
            let connected = open.answer().name.clone();
            open.close().unwrap();
            [connected, new_flow(&client, target).name]
        })
    };
    assert_eq!([[pods[0].name.as_str(); 2]; 2], ask());
    for _ in 0..2 {
        let targets = Family::ALL.map(|family| service.target(family));
        for target in targets {
            world.lab.add_address(&node, target.ip()).unwrap();
        }
        let mut cache = None;
        wait_until("the former cache has let go of the port", || {
            cache = Server::start_at(&node, "cache", &targets).ok();
            cache.is_some()
        });
        let cache = cache.unwrap();
        wait_until("the cache serves", || {
            ask().concat().iter().all(|name| name == "cache")
        });
        let (accepted, datagrams) = (cache.accepted(), cache.datagrams());
        for _ in 0..20 {
            assert_eq!([["cache"; 2]; 2], ask());
        }
        assert_eq!(accepted + 40, cache.accepted());
        assert_eq!(datagrams + 40, cache.datagrams());
        // What is open at the cache goes on, whatever else is going on.
        let mut open = Connection::open(&client, targets[0]).unwrap();
        assert_eq!("cache", open.answer().name);
        world.manifests.write_service(&service).unwrap();
        open.upload(1_000_000, 1).unwrap();
        open.close().unwrap();

        let addresses = targets.map(|target| format!("address del {} dev lo", target.ip()));
        ip(&node, &addresses);
        drop(cache);
        wait_until("the endpoint serves", || {
            let mut all = targets.iter().map(|target| {
                let connected = Connection::open(&client, *target);
                connected.is_ok_and(|open| open.answer().name == pods[0].name)
            });
            all.all(|is_so| is_so)
        });
        assert_eq!([[pods[0].name.as_str(); 2]; 2], ask());
    }
}
