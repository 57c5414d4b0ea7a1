//! External IPs that are somebody's already.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::Service;
use xtask::lab::server::Server;
use xtask::lab::{Addresses, Family, Host};

use super::echo::echoed;
use super::world::{World, wait_until};

fn external(service: Service, addresses: Addresses) -> Service {
    let Addresses { v4, v6 } = addresses;
    service.specified(&format!("externalIPs: [\"{v4}\", \"{v6}\"]"))
}

/// Of the address of a node a Service takes its own port, wherever it is asked for.
// B095
#[test]
fn a_service_at_the_address_of_a_node_leaves_everything_else_of_it_alone() {
    let Some(mut world) = World::new(2) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 1);
    let [near, far] = [1, 2].map(|number| world.lab.node(number));
    // At the port of the Service as well.
    let taken = Family::ALL.map(|family| SocketAddr::new(far.addresses.of(family), 80));
    let other = taken.map(|at| SocketAddr::new(at.ip(), 22));
    let _node = Server::start_at(&far, "itself", &[taken, other].concat()).unwrap();
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    world.start_with(&external(service, far.addresses));
    for from in [&client, &near, world.lab.outside()] {
        for target in other {
            let mut open = Connection::open(from, target).unwrap();
            assert_eq!("itself", open.answer().name);
            open.upload(100_000, 1).unwrap();
            open.close().unwrap();
            let flow = Datagrams::open(from, target).unwrap().ask().unwrap();
            assert_eq!("itself", flow.name);
            echoed(from, target.ip());
        }
    }
    for from in [&client, world.lab.outside()] {
        for target in taken {
            let open = Connection::open(from, target).unwrap();
            assert_eq!(pods[0].name, open.answer().name);
            let flow = Datagrams::open(from, target).unwrap().ask().unwrap();
            assert_eq!(pods[0].name, flow.name);
        }
    }
}

/// Whoever comes first has it, on every node, until it goes.
// B096
#[test]
fn one_of_two_services_at_one_external_ip_has_it_on_all_nodes_until_it_goes() {
    for first in [0, 1] {
        let Some(mut world) = World::new(2) else {
            return;
        };
        let clients = [1, 2].map(|node| world.lab.pod(node).unwrap());
        let (pods, _servers) = world.servers(1, 2);
        let services = [("one", 10), ("two", 11)];
        let services = services.iter().zip(&pods).map(|((name, number), pod)| {
            let endpoints = world.endpoints(1, std::slice::from_ref(pod));
            external(
                Service::new(name, *number).with(endpoints),
                Addresses::service(21),
            )
        });
        let services: Vec<_> = services.collect();
        world.start_with(&services[first]);
        world.manifests.write_service(&services[1 - first]).unwrap();
        wait_until("the other is known", || {
            let status = world.json(&["status"]);
            status["tables"]["services"] == 2
        });
        let who = |clients: &[Host; 2]| -> BTreeSet<String> {
            let all = clients.iter().flat_map(|client| {
                let targets = Family::ALL;
                targets.map(|family| {
                    let target = (Addresses::service(21).of(family), 80).into();
                    let open = Connection::open(client, target).unwrap();
                    open.answer().name.clone()
                })
            });
            all.collect()
        };
        let winner = BTreeSet::from([pods[first].name.clone()]);
        assert_eq!(winner, who(&clients));
        let status = world.look(&["status"]);
        assert!(
            status.text.contains(&services[1 - first].name),
            "{status:?}"
        );
        assert_eq!(1, status.code);

        // Also after one of the proxies, and no other, has been started anew.
        let log = {
            let proxy = world.spawn(&["--replace"]);
            let former = world.replace(proxy);
            former.log()
        };
        wait_until("it is ready", || world.look(&["status"]).code != 2);
        wait_until("it serves both", || {
            world.json(&["status"])["tables"]["services"] == 2
        });
        assert_eq!(winner, who(&clients), "{log}");
        // The cluster IP of the loser is its own.
        for family in Family::ALL {
            let open = Connection::open(&clients[0], services[1 - first].target(family));
            assert_eq!(pods[1 - first].name, open.unwrap().answer().name);
        }

        let name = &services[first].name;
        world.manifests.remove(&format!("service-{name}")).unwrap();
        let heir = BTreeSet::from([pods[1 - first].name.clone()]);
        wait_until("the other has it", || who(&clients) == heir);
        wait_until("all is well", || world.look(&["status"]).code == 0);
    }
}
