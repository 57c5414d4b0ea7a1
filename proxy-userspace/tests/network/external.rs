//! Services at addresses that clients outside use: node ports, load balancers, external IPs.

use std::net::{IpAddr, SocketAddr};

use xtask::lab::client::{Answer, Connection, Datagrams};
use xtask::lab::manifest::{Endpoint, Service};
use xtask::lab::observe;
use xtask::lab::server::Server;
use xtask::lab::{Addresses, Family, Host};

use super::world::{World, serve, wait_until};

const NODE_PORT: u16 = 30_080;
/// 60 draws miss one of two once in 10^18 times.
const DRAWS: usize = 60;

/// Two nodes, an endpoint on each, and a Service of both with a node port.
struct Scene {
    world: World,
    service: Service,
    pods: [Host; 2],
    _servers: Vec<Server>,
}

impl Scene {
    fn new(policy: &str) -> Option<Self> {
        let mut world = World::new(2)?;
        let pods = [1, 2].map(|node| world.lab.pod(node).unwrap());
        let servers = pods.iter().map(serve).collect();
        let places = [1, 2].map(|node| world.lab.node(node));
        let endpoints = pods.iter().zip(&places);
        let service =
            Service::new("web", 10).with(endpoints.map(|(pod, node)| Endpoint::new(pod, node)));
        world.manifests.write_service(&service).unwrap();
        let yaml = service.yaml().replace(
            "  type: ClusterIP\n",
            &format!("  type: NodePort\n  externalTrafficPolicy: {policy}\n"),
        );
        let yaml = yaml.replace(
            "targetPort: 8080}",
            &format!("targetPort: 8080, nodePort: {NODE_PORT}}}"),
        );
        assert_eq!(2, yaml.matches("nodePort").count());
        world.manifests.write("service-web", &yaml).unwrap();
        world.start();
        Some(Self {
            world,
            service,
            pods,
            _servers: servers,
        })
    }

    /// The node port of a node.
    fn door(&self, node: u8, family: Family) -> SocketAddr {
        (self.world.lab.node(node).addresses.of(family), NODE_PORT).into()
    }

    /// Fails if endpoints saw anybody but this node.
    fn assert_masqueraded(&self, answers: &[Answer], node: u8, family: Family) {
        let own = self.world.lab.node(node).addresses.of(family);
        let stranger = answers.iter().find(|answer| answer.peer.ip() != own);
        assert!(stranger.is_none(), "{stranger:?}");
    }

    /// Fails if the host stack of any node saw the Service, at one of these addresses as well, or
    /// its node port.
    fn assert_unnoticed(&self, vips: &[IpAddr]) {
        self.world.assert_unnoticed(&[&self.service]);
        let mut complaints = observe::complaints(&self.world.lab, vips).unwrap();
        let node_port = format!("dport={NODE_PORT} ");
        for node in self.world.lab.nodes() {
            let entries = observe::conntrack(&node.namespace).unwrap();
            complaints.extend(
                entries
                    .into_iter()
                    .filter(|entry| entry.contains(&node_port)),
            );
        }
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }
}

/// Who answers to new connections and to new flows, and whom they see.
fn answers(client: &Host, target: SocketAddr) -> [Vec<Answer>; 2] {
    let connections = (0..DRAWS).map(|_| {
        let mut open = Connection::open(client, target).unwrap();
        open.echo("hello").unwrap();
        let answer = open.answer().clone();
        open.close().unwrap();
        answer
    });
    let connections = connections.collect();
    let flows = (0..DRAWS).map(|_| Datagrams::open(client, target).unwrap().ask().unwrap());
    [connections, flows.collect()]
}

fn names(answers: &[Answer]) -> Vec<&str> {
    let mut all: Vec<_> = answers.iter().map(|answer| answer.name.as_str()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn a_node_port_leads_to_all_endpoints_and_they_see_a_node() {
    let Some(scene) = Scene::new("Cluster") else {
        return;
    };
    let outside = scene.world.lab.outside().clone();
    let all: Vec<_> = scene.pods.iter().map(|pod| pod.name.as_str()).collect();
    for family in Family::ALL {
        for node in [1, 2] {
            for answers in answers(&outside, scene.door(node, family)) {
                assert_eq!(all, names(&answers), "{family}, node {node}");
                scene.assert_masqueraded(&answers, node, family);
            }
        }
    }
    scene.assert_unnoticed(&[]);
}

// B067
#[test]
fn with_the_local_policy_a_node_port_leads_to_the_nodes_own_endpoints_and_they_see_the_client() {
    let Some(scene) = Scene::new("Local") else {
        return;
    };
    let outside = scene.world.lab.outside().clone();
    for family in Family::ALL {
        for (node, pod) in [1, 2].into_iter().zip(&scene.pods) {
            for answers in answers(&outside, scene.door(node, family)) {
                assert_eq!([pod.name.as_str()], *names(&answers), "{family}");
                let own = outside.addresses.of(family);
                assert!(answers.iter().all(|answer| answer.peer.ip() == own));
            }
        }
    }
    scene.assert_unnoticed(&[]);
}

#[test]
fn a_pod_reaches_the_node_port_of_its_own_node() {
    let Some(mut scene) = Scene::new("Cluster") else {
        return;
    };
    let client = scene.world.lab.pod(1).unwrap();
    let all: Vec<_> = scene.pods.iter().map(|pod| pod.name.as_str()).collect();
    for family in Family::ALL {
        for answers in answers(&client, scene.door(1, family)) {
            assert_eq!(all, names(&answers), "{family}");
            scene.assert_masqueraded(&answers, 1, family);
        }
    }
    // An endpoint that gets itself is no stranger to itself.
    for family in Family::ALL {
        for answers in answers(&scene.pods[0], scene.door(1, family)) {
            assert_eq!(all, names(&answers), "{family}");
            scene.assert_masqueraded(&answers, 1, family);
        }
    }
    scene.assert_unnoticed(&[]);
}

#[test]
fn answers_to_the_node_itself_are_its_own_even_at_a_node_port() {
    let Some(scene) = Scene::new("Cluster") else {
        return;
    };
    let outside = scene.world.lab.outside().clone();
    let _server = serve(&outside);
    let node = scene.world.lab.node(1);
    for family in Family::ALL {
        let target: SocketAddr = (outside.addresses.of(family), 8080).into();
        let from = scene.door(1, family);
        let mut open = Connection::open_from(&node, from, target).unwrap();
        open.echo("hello").unwrap();
        assert_eq!(
            (outside.name.as_str(), from),
            (open.answer().name.as_str(), open.answer().peer)
        );
        open.upload(100_000, 1).unwrap();
        open.download(100_000, 2).unwrap();
        open.close().unwrap();
        let flow = Datagrams::open_from(&node, from, target).unwrap();
        for _ in 0..3 {
            let answer = flow.ask().unwrap();
            assert_eq!(
                (outside.name.as_str(), from),
                (answer.name.as_str(), answer.peer)
            );
        }
        drop(flow);
        // And the node port is served all the same.
        for answers in answers(&outside, from) {
            assert_eq!(2, names(&answers).len());
        }
    }
    scene.world.assert_unnoticed(&[&scene.service]);
}

// B067, B099
#[test]
fn load_balancer_addresses_and_external_ips_lead_as_the_external_policy_says() {
    for policy in ["Cluster", "Local"] {
        let Some(scene) = Scene::new(policy) else {
            return;
        };
        // Of the range that is routed to the first node.
        let [balancer, external] = [20, 21].map(Addresses::service);
        let manifests = &scene.world.manifests;
        let yaml = std::fs::read_to_string(manifests.folder().join("service-web.yaml")).unwrap();
        let yaml = yaml.replace(
            "  type: NodePort\n",
            &format!(
                "  type: LoadBalancer\n  externalIPs: [\"{}\", \"{}\"]\n",
                external.v4, external.v6
            ),
        );
        let yaml = format!(
            "{yaml}status: {{loadBalancer: {{ingress: [{{ip: \"{}\"}}, {{ip: \"{}\"}}]}}}}\n",
            balancer.v4, balancer.v6
        );
        manifests.write("service-web", &yaml).unwrap();
        let vips = [balancer, external]
            .map(|own| Family::ALL.map(|family| own.of(family)))
            .concat();
        wait_until("all of it is served", || {
            let all = scene.world.look(&["services", "-o", "json"]).text;
            vips.iter().all(|vip| all.contains(&vip.to_string()))
        });
        let outside = scene.world.lab.outside().clone();
        for family in Family::ALL {
            for vip in [balancer, external] {
                for answers in answers(&outside, (vip.of(family), 80).into()) {
                    if policy == "Cluster" {
                        assert_eq!(2, names(&answers).len());
                        scene.assert_masqueraded(&answers, 1, family);
                    } else {
                        assert_eq!([scene.pods[0].name.as_str()], *names(&answers));
                        let own = outside.addresses.of(family);
                        assert!(answers.iter().all(|answer| answer.peer.ip() == own));
                    }
                }
            }
        }
        scene.assert_unnoticed(&vips);
    }
}

/// What is sent to a Service that nobody serves is refused, and at once.
// B081, B153
#[test]
fn a_node_port_without_endpoints_is_refused() {
    let Some(mut scene) = Scene::new("Cluster") else {
        return;
    };
    // The kernel counts the redirects that it has sent to a client against its ICMP errors, and it
    // sends some: half of the endpoints are where the client could go by itself.
    let node = scene.world.lab.node(1).namespace;
    let limits = ["ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit"];
    node.set(&limits.map(|name| (name.to_owned(), "0")))
        .unwrap();
    let clients = [
        scene.world.lab.outside().clone(),
        scene.world.lab.pod(1).unwrap(),
    ];
    for family in Family::ALL {
        let target = scene.door(1, family);
        drop(answers(&clients[0], target));
        let slice = scene.service.slice_name(family);
        scene.world.manifests.remove(&slice).unwrap();
        for client in &clients {
            // The first that fails is refused: nobody has to wait.
            let mut refused = Vec::new();
            wait_until("connections fail", || {
                refused.extend(Connection::open(client, target).err());
                !refused.is_empty()
            });
            wait_until("datagrams fail", || {
                let flow = Datagrams::open(client, target).unwrap();
                refused.extend(flow.ask().err());
                refused.len() > 1
            });
            for error in refused {
                assert!(
                    format!("{error:#}").contains("Connection refused"),
                    "{}: {error:#}",
                    client.name
                );
            }
        }
    }
    scene.assert_unnoticed(&[]);
}
