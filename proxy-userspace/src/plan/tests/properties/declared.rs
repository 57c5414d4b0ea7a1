//! What is wanted, changed at random, and what that should lead to, kept in the simplest way.

use proxy_common::abi::{Empty, FrontendFlags};

use super::super::super::wanted::{
    FrontendKind, List, PortKey, Wanted, WantedEndpoint, WantedFrontend,
};
use super::*;
use crate::model::IpNet;

const NAMES: [&str; 4] = ["s0", "s1", "s2", "s3"];
const PORTS: [(&str, Proto, u16); 2] = [("a", Proto::TCP, 80), ("b", Proto::UDP, 53)];

/// What is asked of one Service: the same in both families, for both ports.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    /// Which endpoints the cluster IP leads to.
    internal: List,
    /// All frontends but the cluster IP.
    frontends: Vec<Door>,
    /// Last byte of the address and state.
    endpoints: Vec<(u8, u8)>,
    /// Bit 0: there is a port for TCP, bit 1: for UDP.
    ports: u8,
    has_whole_address: bool,
    affinity_timeout: u32,
    sources: Vec<u8>,
}

/// A frontend: which of a few addresses, so that Services collide, its lists and its properties.
#[derive(Clone, Copy, Debug)]
pub(super) struct Door {
    addr: u8,
    kind: FrontendKind,
    lists: [List; 2],
    is_own: bool,
    is_filtered: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Gone(usize),
    Frontends(usize, Vec<Door>),
    Endpoints(usize, Vec<(u8, u8)>),
    Ports(usize, u8, bool, List),
    Affinity(usize, u32),
    Sources(usize, Vec<u8>),
}

fn list() -> impl Strategy<Value = List> + Clone {
    prop::sample::select(vec![List::Nobody, List::Cluster, List::Local])
}

fn door() -> impl Strategy<Value = Door> {
    let list = list();
    let kind = prop::sample::select(vec![
        FrontendKind::ExternalIp,
        FrontendKind::LoadBalancer,
        FrontendKind::NodePort,
    ]);
    let lists = [list.clone(), list];
    (0u8..6, kind, lists, any::<bool>(), any::<bool>()).prop_map(
        |(addr, kind, lists, is_own, is_filtered)| Door {
            addr,
            kind,
            lists,
            is_own,
            is_filtered,
        },
    )
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    let doors = prop::collection::vec(door(), 0..5);
    let endpoints = prop::collection::vec((0u8..10, 0u8..6), 0..6);
    let sources = prop::collection::vec(0u8..4, 0..4);
    prop_oneof![
        1 => name.clone().prop_map(Step::Gone),
        3 => (name.clone(), doors).prop_map(|(name, doors)| Step::Frontends(name, doors)),
        5 => (name.clone(), endpoints).prop_map(|(name, all)| Step::Endpoints(name, all)),
        1 => (name.clone(), 0u8..4, any::<bool>(), list())
            .prop_map(|(name, ports, whole, internal)| Step::Ports(name, ports, whole, internal)),
        1 => (name.clone(), 0u32..3).prop_map(|(name, timeout)| Step::Affinity(name, timeout)),
        1 => (name, sources).prop_map(|(name, sources)| Step::Sources(name, sources)),
    ]
}

type Rank = (bool, FrontendKind, i64, ObjectName);
type Ranked = (Rank, (Seen, BTreeSet<IpNet>));

/// What a client finds at a frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The endpoints for those from inside, and from outside.
    pub(super) reachable: [Reachable; 2],
    pub(super) flags: FrontendFlags,
    pub(super) affinity_timeout: u32,
}

#[derive(Debug, Default)]
pub(super) struct Declared {
    specs: BTreeMap<ObjectName, Spec>,
}

impl Declared {
    /// Returns the Service that changes.
    pub(super) fn note(&mut self, step: Step) -> ObjectName {
        let (Step::Gone(name)
        | Step::Frontends(name, _)
        | Step::Endpoints(name, _)
        | Step::Ports(name, ..)
        | Step::Affinity(name, _)
        | Step::Sources(name, _)) = step;
        let name = ObjectName::new("default", NAMES[name]);
        let spec = self.specs.entry(name.clone()).or_insert_with(|| Spec {
            internal: List::Cluster,
            frontends: Vec::new(),
            endpoints: Vec::new(),
            ports: 3,
            has_whole_address: false,
            affinity_timeout: 0,
            sources: Vec::new(),
        });
        match step {
            Step::Gone(_) => {
                self.specs.remove(&name);
            }
            Step::Frontends(_, frontends) => spec.frontends = frontends,
            Step::Endpoints(_, endpoints) => spec.endpoints = endpoints,
            Step::Ports(_, ports, whole, internal) => {
                (spec.ports, spec.has_whole_address) = (ports, whole);
                spec.internal = internal;
            }
            Step::Affinity(_, timeout) => spec.affinity_timeout = timeout,
            Step::Sources(_, sources) => spec.sources = sources,
        }
        name
    }

    pub(super) fn names(&self) -> BTreeSet<ObjectName> {
        self.specs.keys().cloned().collect()
    }

    pub(super) fn of(&self, name: &ObjectName) -> Vec<Wanted> {
        let spec = self.specs.get(name);
        let cluster_ip = NAMES.iter().position(|other| *other == name.name());
        let cluster_ip = 100 + u8::try_from(cluster_ip.unwrap()).unwrap();
        spec.map_or_else(Vec::new, |spec| spec.wanted(cluster_ip))
    }

    pub(super) fn wanted(&self) -> Vec<Wanted> {
        self.names().iter().flat_map(|name| self.of(name)).collect()
    }

    /// For each frontend what clients should find there, and who may use it if it is filtered: as
    /// the best claim of all that are made now has it, whatever happened before.
    pub(super) fn seen(&self) -> HashMap<Socket, (Seen, BTreeSet<IpNet>)> {
        let mut all: HashMap<_, Vec<Ranked>> = HashMap::new();
        for name in self.names() {
            for port in self.of(&name) {
                let mut known = BTreeSet::new();
                for frontend in &port.frontends {
                    if !known.insert(frontend.at) {
                        continue;
                    }
                    let lists = [frontend.inside, frontend.outside];
                    let seen = Seen {
                        reachable: lists.map(|list| listed(&port, list)),
                        flags: frontend.flags,
                        affinity_timeout: port.affinity_timeout,
                    };
                    let is_empty = seen.reachable.iter().all(BTreeSet::is_empty);
                    let rank = (is_empty, frontend.kind, created(&name), name.clone());
                    let sources = port.sources.iter().copied().collect();
                    let claims = all.entry(frontend.at).or_default();
                    claims.push((rank, (seen, sources)));
                }
            }
        }
        let best = |(at, claims): (_, Vec<Ranked>)| {
            let best = claims
                .into_iter()
                .min_by(|(one, _), (other, _)| one.cmp(other));
            (at, best.unwrap().1)
        };
        all.into_iter().map(best).collect()
    }
}

/// When a Service was made: another order than that of the names, and two at once.
pub(super) fn created(name: &ObjectName) -> i64 {
    match name.name() {
        "s0" => 30,
        "s3" => 10,
        _ => 20,
    }
}

fn listed(port: &Wanted, list: List) -> Reachable {
    let is_in = |endpoint: &&WantedEndpoint| match list {
        List::Nobody => false,
        List::Cluster => endpoint.in_cluster,
        List::Local => endpoint.in_local,
    };
    let listed = port.endpoints.iter().filter(is_in);
    listed
        .map(|endpoint| (endpoint.addr, endpoint.port))
        .collect()
}

impl Spec {
    fn wanted(&self, cluster_ip: u8) -> Vec<Wanted> {
        let mut all = Vec::new();
        for family in Family::ALL {
            let ports = PORTS.iter().enumerate();
            let ports = ports.filter(|(bit, _)| self.ports & (1 << bit) != 0);
            all.extend(ports.map(|(_, port)| self.port(family, *port, cluster_ip)));
            if self.has_whole_address {
                all.push(whole(family, cluster_ip));
            }
        }
        all
    }

    fn port(
        &self,
        family: Family,
        (name, proto, port): (&str, Proto, u16),
        cluster_ip: u8,
    ) -> Wanted {
        let endpoints: BTreeMap<_, _> = self.endpoints.iter().copied().collect();
        let addr = |last| address(family, 1, last);
        let able = endpoints.iter().filter(|(_, state)| **state != 0);
        let idle = endpoints.iter().filter(|(_, state)| **state == 0);
        let cluster_ip = Door {
            addr: cluster_ip,
            kind: FrontendKind::ClusterIp,
            lists: [self.internal; 2],
            is_own: false,
            is_filtered: false,
        };
        let doors = [cluster_ip].into_iter().chain(self.frontends.clone());
        let frontends = doors.map(|door| WantedFrontend {
            at: Socket {
                addr: door_address(family, door.addr),
                port,
                proto,
            },
            ..door.wanted()
        });
        Wanted {
            key: PortKey {
                name: name.into(),
                proto,
                family,
            },
            frontends: frontends.collect(),
            endpoints: able
                .map(|(last, state)| WantedEndpoint {
                    addr: addr(*last),
                    port: port + 1,
                    is_local: last % 3 == 0,
                    in_cluster: matches!(state, 2 | 4 | 5),
                    in_local: matches!(state, 3..=5),
                })
                .collect(),
            idle: idle.map(|(last, _)| (addr(*last), port + 1)).collect(),
            affinity_timeout: self.affinity_timeout,
            sources: self.sources.iter().map(|n| range(family, *n)).collect(),
        }
    }
}

impl Door {
    fn wanted(self) -> WantedFrontend {
        let [inside, outside] = self.lists;
        let local = |list, origin| FrontendFlags::local(origin).only_if(list == List::Local);
        WantedFrontend {
            at: at("0.0.0.0"),
            kind: self.kind,
            flags: FrontendFlags::if_empty(Origin::Outside, Empty::Reject)
                .with(FrontendFlags::OWN_ADDRESS.only_if(self.is_own))
                .with(FrontendFlags::FILTERED.only_if(self.is_filtered))
                .with(local(inside, Origin::Inside))
                .with(local(outside, Origin::Outside)),
            inside,
            outside,
        }
    }
}

/// A frontend that leads nowhere, for all of an address.
fn whole(family: Family, addr: u8) -> Wanted {
    Wanted {
        key: PortKey {
            name: "".into(),
            proto: Proto(0),
            family,
        },
        frontends: vec![WantedFrontend {
            at: Socket {
                addr: door_address(family, addr),
                port: 0,
                proto: Proto(0),
            },
            kind: FrontendKind::ClusterIp,
            flags: FrontendFlags::if_empty(Origin::Inside, Empty::Reject),
            inside: List::Nobody,
            outside: List::Nobody,
        }],
        endpoints: Vec::new(),
        idle: Vec::new(),
        affinity_timeout: 0,
        sources: Vec::new(),
    }
}

fn address(family: Family, net: u8, last: u8) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([10, net, 0, last]),
        Family::V6 => IpAddr::from([0xfd00, net.into(), 0, 0, 0, 0, 0, last.into()]),
    }
}

fn door_address(family: Family, n: u8) -> IpAddr {
    match (family, n) {
        (Family::V4, 5) => IpAddr::from([127, 0, 0, 1]),
        (Family::V6, 5) => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        _ => address(family, 96, n),
    }
}

fn range(family: Family, n: u8) -> IpNet {
    IpNet::new(address(family, n, 0), if n == 3 { 0 } else { 24 })
        .unwrap()
        .trunc()
}
