//! Path MTU discovery of a pod that reaches itself through a Service. Its way leads to the node and
//! back, so what the node says of that is for the pod in both of its roles: as the client of a Service,
//! and as an endpoint whose client it takes the Service for.

use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::{Endpoint, Service};
use xtask::lab::network::Network;
use xtask::lab::{Family, Host, observe};

use super::world::{World, ip, serve};

/// MTU of the way from the node to the pod, in bytes; the pod's device has a larger one.
const NARROW: u16 = 1280;
/// Bytes; enough for windows to open and for segments of the largest size.
const TRANSFER: usize = 5_000_000;

/// Who sends large packets, and so is told.
#[derive(Clone, Copy, Debug)]
enum Sender {
    Client,
    Endpoint,
}

/// Has the node's way to the pod take only small packets, as those of a tunnel do.
fn narrow(world: &World, pod: &Host) {
    let node = world.lab.node(1);
    for family in Family::ALL {
        let addr = pod.addresses.of(family);
        let get = format!("route get {addr}");
        let output = node.namespace.command("ip").args(get.split(' ')).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let mut words = text.split_whitespace().skip_while(|word| *word != "dev");
        let device = words.nth(1).unwrap().to_owned();
        ip(
            &node,
            &[format!(
                "route replace {addr} dev {device} mtu lock {NARROW}"
            )],
        );
    }
}

fn learns(world: &World, pod: &Host, service: &Service, sender: Sender) {
    for family in Family::ALL {
        let target = service.target(family);
        let what = format!("{target}, {sender:?}");
        // Client and endpoint both speak to this address, and are one host.
        let learned = || observe::path_mtu(&pod.namespace, target.ip()).unwrap();
        assert_eq!(None, learned(), "{what}");
        let mut open = Connection::open(pod, target).expect(&what);
        assert_eq!(pod.name, open.answer().name, "{what}");
        match sender {
            Sender::Client => open.upload(TRANSFER, 1),
            Sender::Endpoint => open.download(TRANSFER, 2),
        }
        .expect(&what);
        open.close().expect(&what);
        assert_eq!(Some(NARROW), learned(), "{what}");
        let flow = Datagrams::open(pod, target).expect(&what);
        flow.ask_with(&[0x5a; 8192]).expect(&what);
    }
    world.assert_unnoticed(&[service]);
}

#[test]
fn a_pod_that_reaches_itself_learns_how_large_its_packets_may_be() {
    for network in [Network::default(), Network::bridged(true)] {
        let Some(mut world) = World::on(1, network) else {
            return;
        };
        let pod = world.lab.pod(1).unwrap();
        let _server = serve(&pod);
        // What was learned of one Service is not known of the other.
        let services = [("asked", 10), ("answering", 11)].map(|(name, number)| {
            let at = Endpoint::new(&pod, &world.lab.node(1));
            Service::new(name, number).with([at])
        });
        world.manifests.write_service(&services[1]).unwrap();
        narrow(&world, &pod);
        world.start_with(&services[0]);
        for (service, sender) in services.iter().zip([Sender::Client, Sender::Endpoint]) {
            learns(&world, &pod, service, sender);
        }
    }
}
