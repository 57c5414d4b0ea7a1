//! External IPs that are somebody's already.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::{Manifests, Service};
use xtask::lab::server::Server;
use xtask::lab::{Addresses, Family, Host};

use super::echo::echoed;
use super::world::{World, binary, wait_until};

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
        let write = |manifests: &Manifests, nth: usize, created: u8| {
            let service = &services[nth];
            manifests.write_service(service).unwrap();
            let name = format!("name: {}, namespace", service.name);
            let dated = format!("creationTimestamp: \"2026-01-0{created}T00:00:00Z\", {name}");
            let yaml = service.yaml().replace(&name, &dated);
            assert_eq!(1, yaml.matches("creationTimestamp").count());
            manifests
                .write(&format!("service-{}", service.name), &yaml)
                .unwrap();
        };
        write(&world.manifests, first, 1);
        world.start();
        write(&world.manifests, 1 - first, 2);
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

        // Also after one of the nodes, and no other, has begun with nothing, and sees both at once.
        let node = world.lab.node(1);
        let mut cleanup = node.namespace.command(binary().to_str().unwrap());
        world.kill();
        assert!(cleanup.arg("cleanup").output().unwrap().status.success());
        world.start();
        assert_eq!(winner, who(&clients));
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
