//! A lab with the proxy on every node.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Once;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use xtask::lab::manifest::{Endpoint, Manifests, Service};
use xtask::lab::network::Network;
use xtask::lab::proxy::Proxy;
use xtask::lab::server::Server;
use xtask::lab::{Family, Host, Lab, observe};
use xtask::stats;

/// Fields are dropped in this order: a failing test shows the log, then the state of the nodes.
pub(super) struct World {
    proxies: Vec<Proxy>,
    servers: Vec<Server>,
    pub(super) manifests: Manifests,
    flags: Vec<String>,
    pub(super) lab: Lab,
}

impl World {
    /// Nodes without a proxy yet, or nothing where namespaces cannot be made.
    pub(super) fn new(nodes: u8) -> Option<Self> {
        Self::on(nodes, Network::default())
    }

    /// The same with another CNI.
    pub(super) fn on(nodes: u8, network: Network) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            let ring = std::env::var("KUBE_LOTTERY_RINGS").unwrap_or_default();
            assert_ne!("required", ring, "the network ring needs root");
            // Not by a macro: the harness would keep it for itself.
            let mut out = std::io::stderr();
            out.write_all(b"skipped: network namespaces need root\n")
                .unwrap();
            return None;
        }
        SWEEP.call_once(|| drop(xtask::lab::sweep()));
        let lab = Lab::with_network(nodes, network).unwrap();
        Some(Self {
            proxies: Vec::new(),
            servers: Vec::new(),
            manifests: Manifests::with_nodes(&lab, "manifests").unwrap(),
            flags: Vec::new(),
            lab,
        })
    }

    /// Has `start` give every proxy these lines of `KubeProxyConfiguration`.
    pub(super) fn configure(&mut self, lines: &str) {
        let path = self.lab.folder().join("all.yaml");
        let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
        std::fs::write(&path, format!("{head}{lines}\n")).unwrap();
        self.flags = vec!["--config".to_owned(), path.to_str().unwrap().to_owned()];
    }

    /// Starts the proxy on every node and waits until all are ready.
    pub(super) fn start(&mut self) {
        let first = self.proxies.len();
        let flags: Vec<_> = self.flags.iter().map(String::as_str).collect();
        for node in self.lab.nodes() {
            let proxy = self
                .lab
                .spawn_proxy(node, &binary(), &self.manifests, &flags);
            self.proxies.push(proxy.unwrap());
        }
        for proxy in &mut self.proxies[first..] {
            proxy.wait_until_ready().unwrap();
        }
    }

    /// Starts the proxy on the first node only and waits until it is ready.
    pub(super) fn start_on_first(&mut self) {
        let mut proxy = self.spawn(&[]);
        proxy.wait_until_ready().unwrap();
        self.keep(proxy);
    }

    /// Starts the proxy on the first node only, with more flags, and does not wait for it.
    pub(super) fn spawn(&self, flags: &[&str]) -> Proxy {
        let node = self.lab.node(1);
        let proxy = self
            .lab
            .spawn_proxy(&node, &binary(), &self.manifests, flags);
        proxy.unwrap()
    }

    /// Ends every proxy by SIGKILL.
    pub(super) fn kill(&mut self) {
        for proxy in self.proxies.drain(..) {
            proxy.kill().unwrap();
        }
    }

    /// Keeps a proxy in the place of the one that there was.
    pub(super) fn replace(&mut self, proxy: Proxy) -> Proxy {
        std::mem::replace(&mut self.proxies[0], proxy)
    }

    /// Keeps a proxy until the end.
    pub(super) fn keep(&mut self, proxy: Proxy) {
        self.proxies.push(proxy);
    }

    /// The same once this Service is there.
    pub(super) fn start_with(&mut self, service: &Service) {
        self.manifests.write_service(service).unwrap();
        self.start();
    }

    /// What a command says that looks at the proxy of the first node.
    pub(super) fn look(&self, command: &[&str]) -> Answer {
        let output = Command::new(binary())
            .args(command)
            .arg("--control-socket")
            .arg(self.control_socket())
            .output()
            .unwrap();
        Answer {
            code: output.status.code().unwrap(),
            text: String::from_utf8(output.stdout).unwrap(),
            notes: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The same as JSON.
    pub(super) fn json(&self, command: &[&str]) -> serde_json::Value {
        let answer = self.look(&[command, &["-o", "json"]].concat());
        serde_json::from_str(&answer.text).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
    }

    /// What `devices` says of a device of the first node; nothing if it does not know it.
    pub(super) fn device(&self, name: &str) -> Option<serde_json::Value> {
        let list = self.json(&["devices"]);
        let mut all = list["items"].as_array().unwrap().iter();
        all.find(|device| device["name"] == name).cloned()
    }

    /// Waits until `devices` says so of a device of the first node.
    pub(super) fn wait_for_device(
        &self,
        name: &str,
        is_so: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        let mut found = None;
        wait_until(&format!("{name} is as it should be"), || {
            found = self.device(name);
            found.as_ref().is_some_and(&is_so)
        });
        found.unwrap()
    }

    /// Where the proxy of the first node answers.
    pub(super) fn control_socket(&self) -> PathBuf {
        self.lab.folder().join("node1.sock")
    }

    /// Process number of the proxy of the first node.
    pub(super) fn pid(&self) -> u32 {
        self.proxies[0].pid()
    }

    /// What the proxy of the first node has logged.
    pub(super) fn log(&self) -> String {
        self.proxies[0].log()
    }

    /// Keeps servers until the end.
    pub(super) fn hold(&mut self, servers: Vec<Server>) {
        self.servers.extend(servers);
    }

    /// Ends all proxies.
    pub(super) fn stop(&mut self) {
        self.proxies.clear();
    }

    /// Some pods of a node and a server in each, which goes by the pod's name.
    pub(super) fn servers(&mut self, node: u8, count: u8) -> (Vec<Host>, Vec<Server>) {
        let pods = self.lab.pods(node, count).unwrap();
        let servers = pods.iter().map(serve).collect();
        (pods, servers)
    }

    /// Endpoints for these pods of a node.
    pub(super) fn endpoints(&self, node: u8, pods: &[Host]) -> Vec<Endpoint> {
        let node = self.lab.node(node);
        pods.iter().map(|pod| Endpoint::new(pod, &node)).collect()
    }

    /// Fails if the host stack of any node could tell that somebody translates.
    pub(super) fn assert_unnoticed(&self, services: &[&Service]) {
        let vips: Vec<IpAddr> = services
            .iter()
            .flat_map(|service| Family::ALL.map(|family| service.addresses.of(family)))
            .collect();
        let complaints = observe::complaints(&self.lab, &vips).unwrap();
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }
}

/// What a command says.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: i32,
    pub(super) text: String,
    pub(super) notes: String,
}

/// A process that stands still until this is dropped.
pub(super) struct Paused(Pid);

impl Paused {
    pub(super) fn new(pid: u32) -> Self {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        Self(pid)
    }

    pub(super) fn resume(self) {
        drop(self);
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT).ok();
    }
}

// Once for all tests of this process.
static SWEEP: Once = Once::new();

/// Runs `ip` commands inside of a host.
pub(super) fn ip(host: &Host, lines: &[String]) {
    for line in lines {
        let output = host.namespace.command("ip").args(line.split(' ')).output();
        let output = output.unwrap();
        assert!(output.status.success(), "ip {line}: {output:?}");
    }
}

/// Name of the node's end of a pod's device.
pub(super) fn device_of(pod: &Host) -> String {
    format!("pod{}", pod.addresses.v4.octets()[3])
}

/// A server that goes by the name of its host.
pub(super) fn serve(host: &Host) -> Server {
    Server::start(host, &host.name, 8080).unwrap()
}

/// Tries until it is so.
pub(super) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Fails if a fair lottery is as uneven as this, or one share as far off, once in a million times.
pub(super) fn assert_even(what: &str, counts: &[(String, u64)]) {
    let numbers: Vec<_> = counts.iter().map(|(_, count)| *count).collect();
    let p = stats::evenness(&numbers).unwrap();
    let p = p.min(stats::farthest(&numbers).unwrap());
    let total: u64 = numbers.iter().sum();
    let mut picture = String::new();
    for (name, count) in counts {
        let deviation = stats::deviation(*count, total, counts.len());
        writeln!(picture, "  {name:<24}{count:>8}{deviation:>+8.2} SE").unwrap();
    }
    assert!(p > 1e-6, "{what} is uneven, p = {p:e}\n{picture}");
}

/// Whether to take the time for what is long.
pub(super) fn is_long() -> bool {
    std::env::var_os("KUBE_LOTTERY_LONG").is_some_and(|value| value == "1")
}

/// The proxy under test.
pub(super) fn binary() -> PathBuf {
    let built = env!("CARGO_BIN_EXE_kube-lottery");
    std::env::var_os("KUBE_LOTTERY_BINARY").map_or_else(|| built.into(), PathBuf::from)
}
