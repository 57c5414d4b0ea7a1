//! A small cluster out of network namespaces, for the demonstration and the network tests.
//!
//! Nodes and a client outside of the cluster hang on one bridge. Pods hang on their nodes as the
//! [`Network`] says, by default on routed veths in the way of Calico: an address of their own, a
//! gateway that exists on no subnet, neighbours that are entered once and for all. Nodes are strict, as hardened ones are: reverse-path filters for both
//! families, a firewall that drops what conntrack does not know, a masquerade rule of the CNI.
//! A proxy that lets the host stack see a Service address fails here.

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};

pub mod address;
mod build;
pub mod capture;
pub mod client;
pub mod command;
pub mod draw;
pub mod firewall;
mod guard;
pub mod manifest;
mod namespace;
pub mod network;
pub mod observe;
mod offload;
pub mod proxy;
pub mod server;
mod sweep;
mod wire;

pub use self::address::{Addresses, Family, Protocol};
pub use self::build::Side;
use self::guard::Guard;
pub use self::namespace::Namespace;
use self::network::Network;
pub use self::sweep::sweep;

/// Something with a network of its own: a node, a pod, the client outside.
#[derive(Clone, Debug)]
pub struct Host {
    /// Short name, unique in its lab.
    pub name: String,
    /// Where its processes run.
    pub namespace: Namespace,
    /// What it is reached by.
    pub addresses: Addresses,
}

/// The cluster; removed when dropped.
#[derive(Debug)]
pub struct Lab {
    id: String,
    guard: Arc<Guard>,
    folder: PathBuf,
    bridge: Namespace,
    outside: Host,
    nodes: Vec<Host>,
    pods: Vec<Host>,
    network: Network,
    next_pod: u8,
    made: HashMap<String, u8>,
}

impl Lab {
    /// Makes nodes and the client outside, without pods.
    pub fn new(nodes: u8) -> Result<Self> {
        Self::with_network(nodes, Network::default())
    }

    /// The same with another CNI.
    pub fn with_network(nodes: u8, network: Network) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "network namespaces need root"
        );
        ensure!((1..=9).contains(&nodes), "a lab has 1 to 9 nodes");
        let id = unique_id();
        let guard = Arc::new(Guard::new()?);
        let folder = std::env::temp_dir().join(&id);
        guard.folder(&folder)?;
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let lab = Self {
            bridge: Namespace::new(format!("{id}-net")),
            outside: host(&id, "outside".to_owned(), Addresses::outside()),
            nodes: (1..=nodes)
                .map(|number| host(&id, format!("node{number}"), Addresses::node(number)))
                .collect(),
            pods: Vec::new(),
            network,
            // 0 would be the range itself, and 1 looks like a gateway.
            next_pod: 2,
            made: HashMap::new(),
            id,
            guard,
            folder,
        };
        build::underlay(&lab)?;
        Ok(lab)
    }

    /// Adds a pod to a node, which is counted from 1.
    pub fn pod(&mut self, node: u8) -> Result<Host> {
        self.pods(node, 1)?.pop().context("no pod was made")
    }

    /// Adds some pods to a node, which is counted from 1.
    pub fn pods(&mut self, node: u8, count: u8) -> Result<Vec<Host>> {
        let first = self.next_pod;
        let end = first.checked_add(count).context("too many pods")?;
        self.pods_at(node, &(first..end).collect::<Vec<_>>())
    }

    /// Adds pods with these numbers, which are the last part of their addresses. A pod that takes
    /// the place of another one has another hardware address.
    pub fn pods_at(&mut self, node: u8, numbers: &[u8]) -> Result<Vec<Host>> {
        let pods: Vec<_> = numbers
            .iter()
            .map(|pod| {
                host(
                    &self.id,
                    format!("pod{node}-{pod}"),
                    Addresses::pod(node, *pod),
                )
            })
            .collect();
        let mut cables = Vec::new();
        for (pod, number) in pods.iter().zip(numbers) {
            let made = self.made.entry(pod.name.clone()).or_default();
            let mac = format!("02:00:00:{made:02x}:01:{number:02x}");
            *made += 1;
            cables.push(build::Cable {
                pod,
                device: build::pod_device(*number),
                mac,
            });
        }
        build::pods(self, &self.node(node), &cables)?;
        let last = numbers.iter().max().copied().unwrap_or_default();
        self.next_pod = self.next_pod.max(last.saturating_add(1));
        self.pods.extend_from_slice(&pods);
        Ok(pods)
    }

    /// Gives a pod of a node more addresses, all of one prefix (`10.244.200.0/23`, say) in the
    /// range of all pods.
    pub fn add_prefix(&self, node: u8, pod: &Host, prefix: &str) -> Result<()> {
        build::prefix(self, &self.node(node), pod, prefix)
    }

    /// Gives a host an address that nobody else knows of.
    pub fn add_address(&self, host: &Host, address: IpAddr) -> Result<()> {
        build::address(host, address)
    }

    /// Has a node send packets for Services through the tunnel to another one.
    pub fn tunnel_services(&self, from: &Host, to: &Host) -> Result<()> {
        build::tunnel_services(from, to)
    }

    /// Has packets between two sides travel over two routers and a link of `mtu` bytes between them,
    /// once in a lab. The first router is the one on the first side.
    pub fn detour(&self, sides: [Side<'_>; 2], mtu: u16) -> Result<[Host; 2]> {
        build::detour(self, sides, mtu)
    }

    /// Removes a pod with its device.
    pub fn remove(&mut self, pod: &Host) -> Result<()> {
        self.pods.retain(|other| other.name != pod.name);
        build::remove(pod)
    }

    /// A node, counted from 1.
    ///
    /// # Panics
    ///
    /// If the lab has fewer.
    pub fn node(&self, number: u8) -> Host {
        let index = usize::from(number).wrapping_sub(1);
        self.nodes
            .get(index)
            .expect("the lab has that node")
            .clone()
    }

    /// All nodes.
    pub fn nodes(&self) -> &[Host] {
        &self.nodes
    }

    /// The client outside of the cluster. It reaches Services by way of the first node.
    pub const fn outside(&self) -> &Host {
        &self.outside
    }

    /// Every namespace that has addresses.
    pub fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        let hosts = self.nodes.iter().chain(&self.pods);
        hosts.chain([&self.outside]).map(|host| &host.namespace)
    }

    /// Has the devices of a namespace compute checksums themselves, and cut large packets, as
    /// hardware without offloads does: what was put off until then must come out right.
    pub fn without_offloads(&self, namespace: &Namespace) -> Result<()> {
        offload::switch_off(namespace)
    }

    /// Has the devices of a namespace merge what comes in (GRO), as hardware does.
    pub fn with_merging(&self, namespace: &Namespace) -> Result<()> {
        offload::merge(namespace)
    }

    /// A folder that goes away with the lab.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A test that fails shows what it failed on before that is removed.
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "the test harness captures it")]
            {
                eprintln!("{}", observe::report(self));
            }
        }
    }
}

/// What all names of labs begin with.
const PREFIX: &str = "kl-";

fn host(id: &str, name: String, addresses: Addresses) -> Host {
    Host {
        namespace: Namespace::new(format!("{id}-{name}")),
        name,
        addresses,
    }
}

// With the process in it: so that leftovers can be told from labs that live.
fn unique_id() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}{}-{number}", std::process::id())
}
