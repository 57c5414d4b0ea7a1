//! An endpoint goes away and comes back, under traffic.

#![expect(clippy::print_stdout, reason = "it is there to be read")]

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::demo::{Demo, ENDPOINTS, target};
use super::examples;
use super::held::Held;
use super::prober::Probes;
use super::tally::{self, Tally};

/// The last endpoint is the one that changes.
#[derive(Debug)]
pub(super) struct Change<'a> {
    demo: &'a Demo,
    held: Held,
}

impl<'a> Change<'a> {
    /// Opens the connections that have to live through it.
    pub(super) fn new(demo: &'a Demo) -> Result<Self> {
        let held = Held::open(&demo.clients, target, HELD)?;
        Ok(Self { demo, held })
    }

    /// Takes the endpoint away, puts it back, and looks what becomes of the connections.
    pub(super) fn show(mut self) -> Result<()> {
        let [rest @ .., changed] = ENDPOINTS;
        let total = self.held.len();
        let there = self.held.exchange(changed)?;
        let flows = self.held.ask(changed)?;
        println!(
            "\nopen: {total} TCP connections and {total} UDP sockets; {there} and {flows} of them lead to {changed}"
        );

        let slices = examples::without(examples::ENDPOINTS, changed);
        let probes = self.around(&slices)?;
        let last = probes.last(changed).context("nothing reached it before")?;
        println!(
            "{changed} taken away: the last new connection that it got began {} after ({} tried)",
            text(last),
            probes.len(),
        );
        ensure!(last < LIMIT, "new connections followed too late");
        self.expect(&rest)?;
        let still = self.held.exchange(changed)?;
        ensure!(still == there, "an open connection has moved");
        let flows = self.held.ask(changed)?;
        ensure!(flows == 0, "{flows} UDP flows stayed with it");
        println!(
            "  all {total} open TCP connections live on, its {there} among them; no UDP flow stayed with it"
        );

        let probes = self.around(examples::ENDPOINTS)?;
        let first = probes.first(changed).context("it got no connection")?;
        println!(
            "{changed} put back: the first new connection that it got began {} after ({} tried)",
            text(first),
            probes.len(),
        );
        ensure!(first < LIMIT, "new connections followed too late");
        self.expect(&ENDPOINTS)?;
        ensure!(
            self.held.exchange(changed)? == there,
            "an open connection has moved"
        );
        println!("  all {total} open TCP connections live on");
        self.held.close()
    }

    fn around(&self, slices: &str) -> Result<Probes> {
        Probes::around(self.demo.pod()?, target, AFTER, || {
            self.demo.manifests.write("web-endpoints", slices)
        })
    }

    // Exactly these endpoints take new connections, and evenly so.
    fn expect(&self, endpoints: &[&str]) -> Result<()> {
        let tally = Tally::new(endpoints);
        self.demo.draw_all(&tally, CONNECTIONS)?;
        tally.check()?;
        let picks = tally::picks(&tally.rows());
        let shares = endpoints.iter().zip(picks);
        let shares: Vec<_> = shares
            .map(|(name, picks)| format!("{name} {picks}"))
            .collect();
        println!("  new connections then: {}", shares.join(", "));
        Ok(())
    }
}

fn text(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

/// Connections of each protocol and family from each client.
const HELD: usize = 4;
/// New connections of each kind from each client.
const CONNECTIONS: u64 = 100;
/// For how long new connections are tried after a change.
const AFTER: Duration = Duration::from_millis(500);
/// A change that takes this long is a failure, on however busy a machine.
const LIMIT: Duration = Duration::from_millis(400);
