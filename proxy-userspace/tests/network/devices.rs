//! Pods that come and go while the proxy runs.

use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::Service;
use xtask::lab::{Family, Host};

use super::world::{World, serve, wait_until};

#[test]
fn a_pod_created_after_the_proxy_started_is_served() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let (pods, _servers) = world.servers(1, 1);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&service);
    let client = world.lab.pod(1).unwrap();
    expect_served(&client, &service, &pods[0]);
}

#[test]
fn a_pod_created_after_the_proxy_started_serves() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let mut service = Service::new("web", 10);
    world.start_with(&service);
    let pod = world.lab.pod(1).unwrap();
    let _server = serve(&pod);
    service.endpoints = world.endpoints(1, std::slice::from_ref(&pod));
    world.manifests.write_service(&service).unwrap();
    for family in Family::ALL {
        wait_until("the endpoint is known", || {
            Connection::open(&client, service.target(family)).is_ok()
        });
    }
    expect_served(&client, &service, &pod);
    // Itself as well: for that its own device has to be known.
    expect_served(&pod, &service, &pod);
}

#[test]
fn a_pod_that_takes_the_place_of_another_is_served() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let (pods, _servers) = world.servers(1, 1);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    let client = world.lab.pods_at(1, &[100]).unwrap().remove(0);
    world.start_with(&service);
    for _ in 0..3 {
        expect_served(&client, &service, &pods[0]);
        world.lab.remove(&client).unwrap();
        world.lab.pods_at(1, &[100]).unwrap();
    }
    expect_served(&client, &service, &pods[0]);
}

// A device is found a moment after it came up. What is sent before then is lost, and no more than
// that: TCP sends again by itself.
fn expect_served(client: &Host, service: &Service, endpoint: &Host) {
    for family in Family::ALL {
        let target = service.target(family);
        let mut open = Connection::open(client, target).unwrap();
        open.echo("hello").unwrap();
        assert_eq!(endpoint.name, open.answer().name);
        open.close().unwrap();
        let flow = Datagrams::open(client, target).unwrap();
        assert_eq!(endpoint.name, flow.ask().unwrap().name);
    }
}
