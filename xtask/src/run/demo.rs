//! The demonstration: a cluster, some thousand connections, a table, and a change under way.

#![expect(clippy::print_stdout, reason = "it is there to be read")]

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::change::Change;
use super::examples;
use super::table::Live;
use super::tally::{KINDS, Tally};
use crate::lab::client::Connection;
use crate::lab::draw::draw;
use crate::lab::manifest::Manifests;
use crate::lab::proxy::Proxy;
use crate::lab::server::Server;
use crate::lab::{self, Addresses, Family, Host, Lab, observe};

/// Names of the endpoints; the last one is taken away and put back.
pub(super) const ENDPOINTS: [&str; 4] = ["web-1", "web-2", "web-3", "web-4"];

/// What the demonstration runs on. Fields are dropped in this order: the proxy first.
#[derive(Debug)]
pub(super) struct Demo {
    proxy: Proxy,
    _servers: Vec<Server>,
    pub(super) manifests: Manifests,
    pub(super) clients: Vec<Host>,
    lab: Lab,
}

/// Runs it and cleans up; fails if anything is not as it should be.
pub(super) fn run(binary: &Path, keep: bool) -> Result<()> {
    lab::sweep()?;
    let demo = Demo::start(binary)?;
    let result = demo.show();
    if keep {
        if let Err(error) = &result {
            println!("\nFAILED: {error:#}");
        }
        demo.stay();
    }
    if result.is_err() {
        println!(
            "\n{}\n--- proxy log\n{}",
            observe::report(&demo.lab),
            demo.proxy.log()
        );
    }
    result
}

impl Demo {
    fn start(binary: &Path) -> Result<Self> {
        let begun = Instant::now();
        let mut lab = Lab::new(1)?;
        let mut clients = lab.pods_at(1, &[2, 3])?;
        let pods = lab.pods_at(1, &[11, 12, 13, 14])?;
        let servers = pods
            .iter()
            .zip(ENDPOINTS)
            .map(|(pod, name)| Server::start(pod, name, 8080))
            .collect::<Result<_>>()?;
        println!(
            "cluster: 1 node, 2 client pods, 1 outside client, 4 endpoint pods ({} ms)",
            begun.elapsed().as_millis()
        );

        let manifests = Manifests::new(&lab, "manifests")?;
        manifests.write("node", examples::NODE)?;
        manifests.write("web", examples::SERVICE)?;
        manifests.write("web-endpoints", examples::ENDPOINTS)?;
        let begun = Instant::now();
        let proxy = lab.start_proxy(&lab.node(1), binary, &manifests)?;
        println!(
            "proxy:   kube-lottery run --manifests deploy/examples --node-name node1 ({} ms)",
            begun.elapsed().as_millis()
        );
        // Nodes need not let outside clients in to Cluster IPs; where they do, it is shown.
        if Connection::open(lab.outside(), target(Family::V4)).is_ok() {
            clients.push(lab.outside().clone());
        } else {
            println!("note:    the outside client is not served at the Cluster IP");
        }
        Ok(Self {
            proxy,
            _servers: servers,
            manifests,
            clients,
            lab,
        })
    }

    fn show(&self) -> Result<()> {
        self.balance()?;
        Change::new(self)?.show()?;
        let vips = Family::ALL.map(|family| target(family).ip());
        let complaints = observe::complaints(&self.lab, &vips)?;
        ensure!(
            complaints.is_empty(),
            "the host stack noticed the translation:\n{}",
            complaints.join("\n")
        );
        println!(
            "\nhost stack: no reverse-path drop, no invalid packet, no Service address in conntrack"
        );
        println!("all well");
        Ok(())
    }

    fn balance(&self) -> Result<()> {
        let clients: Vec<_> = self
            .clients
            .iter()
            .map(|client| client.name.as_str())
            .collect();
        println!(
            "\n{} new connections to Service web ({}, [{}]) port 80 from {}:",
            CONNECTIONS * (KINDS.len() * clients.len()) as u64,
            target(Family::V4).ip(),
            target(Family::V6).ip(),
            clients.join(", "),
        );
        let tally = Tally::new(&ENDPOINTS);
        let begun = Instant::now();
        let mut live = Live::new();
        thread::scope(|scope| -> Result<()> {
            let load = scope.spawn(|| self.draw_all(&tally, CONNECTIONS));
            while !load.is_finished() {
                live.redraw(&tally)?;
                thread::sleep(Duration::from_millis(100));
            }
            match load.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?;
        live.draw(&tally)?;
        println!("  in {:.1} s, none failed", begun.elapsed().as_secs_f64());
        tally.check()
    }

    /// Opens `each` connections of every kind from every client.
    pub(super) fn draw_all(&self, tally: &Tally, each: u64) -> Result<()> {
        for client in &self.clients {
            for kind in KINDS {
                let (protocol, family) = kind;
                let count = |answer: &_| tally.count(kind, answer);
                draw(client, protocol, target(family), each, &count)?;
            }
        }
        Ok(())
    }

    /// A client that is a pod.
    pub(super) fn pod(&self) -> Result<&Host> {
        self.clients.first().context("no client")
    }

    fn stay(&self) -> ! {
        println!("\nThe cluster stays up until Ctrl-C. In another terminal, as root:");
        let node = self.lab.node(1);
        for host in std::iter::once(&node).chain(&self.clients) {
            let name = host.namespace.name();
            println!("  nsenter --net=/run/netns/{name:<20} # {}", host.name);
        }
        println!("From a client, to see who answers:");
        println!(
            "  bash -c 'head -1 </dev/tcp/{}/80'",
            target(Family::V4).ip()
        );
        let folder = self.manifests.folder().display();
        println!("To change the endpoints, edit {folder}/web-endpoints.yaml");
        loop {
            // Ctrl-C ends this process, and the lab's guard cleans up behind it.
            thread::park();
        }
    }
}

/// Where clients connect to: the Cluster IPs in the example manifest.
pub(super) fn target(family: Family) -> SocketAddr {
    (Addresses::service(10).of(family), 80).into()
}

/// Of each kind from each client.
const CONNECTIONS: u64 = 2_000;
