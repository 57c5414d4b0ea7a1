//! The data path in the kernel, with the tables that the plan makes of a case.

use std::io;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube_lottery::config::{Config, Mode};
use kube_lottery::dataplane::{Dataplane, Options, Trial, apply, load, settings};
use kube_lottery::explain::DataPath;
use kube_lottery::netfilter::{self, ClusterIps, Rules, ServiceCidrs};
use kube_lottery::plan::{Bitmap, Limits, Op, Plan, Snapshot};
use proxy_common::abi::Settings;
use proxy_common::datapath::memory::MemoryTables;

use crate::case::{Case, Node};
use crate::cluster::{self, Declared};
use crate::memory;

/// Room for what a case declares.
const LIMITS: u32 = 4096;
/// Room for the flows of a case.
const FLOWS: u32 = 1 << 18;

/// Removes all elements of a table.
macro_rules! forget {
    ($table:expr) => {
        // One may be missed while the table changes.
        for _ in 0..2 {
            let keys = $table
                .iter()
                .map(|entry| entry.map(|(key, _)| key))
                .collect::<Result<Vec<_>, _>>()?;
            for key in keys {
                $table.remove(&key)?;
            }
        }
    };
}

/// The programs and maps in the kernel, attached to nothing.
pub struct World {
    mode: Mode,
    settings: Settings,
    dataplane: Dataplane,
    rules: Rules,
    /// What the tables hold, as the case is entered.
    snapshot: Snapshot,
    /// The same, for the node's own packets.
    host: MemoryTables,
}

impl World {
    /// Loads the programs as they are in a mode.
    pub fn load(mode: Mode) -> Result<Self> {
        let config = Config {
            mode,
            ..Config::default()
        };
        let mut settings = settings::detect();
        settings.masquerade_mark = config.masquerade_mark();
        settings.reject_mark = config.reject_mark();
        settings.hairpin_anywhere = u32::from(mode == Mode::Iptables);
        let mut options = Options::new(settings);
        options.capacities.limits = Limits::new(LIMITS, LIMITS);
        options.capacities.flows = FLOWS;
        options.capacities.half_open = FLOWS;
        let dataplane = load(&options).context("cannot load the programs")?;
        let rules = Rules::new(&netfilter::Options::new(&config), [].into());
        Ok(Self {
            mode,
            settings,
            dataplane,
            rules,
            snapshot: Snapshot::default(),
            host: MemoryTables::new(settings),
        })
    }

    /// Whose behaviour counts.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// What the programs are told.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What nftables does.
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What the tables hold.
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Makes the tables those of a case, and no others.
    pub fn enter(&mut self, case: &Case, declared: Declared) -> Result<()> {
        self.empty()?;
        let config = cluster::config(&case.node, self.mode)?;
        self.rules = rules(&config, &declared);
        let mut plan = plan(&case.node, config);
        let outcome = plan.complete(declared.changes, Duration::ZERO);
        self.write(outcome.ops)?;
        self.snapshot = self.dataplane.tables.snapshot()?;
        self.host = memory::read(&self.dataplane.tables, &self.snapshot, self.settings)?;
        Ok(())
    }

    /// Forgets all flows.
    pub fn forget_flows(&mut self) -> Result<()> {
        let tables = &mut self.dataplane.tables;
        forget!(tables.v4.flows);
        forget!(tables.v4.half_open);
        forget!(tables.v6.flows);
        forget!(tables.v6.half_open);
        Ok(())
    }

    /// Forgets which endpoint clients had.
    pub fn forget_clients(&mut self) -> Result<()> {
        let tables = &mut self.dataplane.tables;
        forget!(tables.v4.affinity);
        forget!(tables.v6.affinity);
        self.host.v4.affinity.clear();
        self.host.v6.affinity.clear();
        Ok(())
    }

    fn empty(&mut self) -> Result<()> {
        let Snapshot {
            frontends,
            reverse,
            sources,
            frontend_bits,
            endpoint_bits,
            ..
        } = self.dataplane.tables.snapshot()?;
        let mut ops: Vec<_> = frontends
            .into_iter()
            .map(|(at, _)| Op::FrontendGone { at })
            .collect();
        ops.extend(
            reverse
                .into_iter()
                .map(|(endpoint, _)| Op::ReverseGone { endpoint }),
        );
        ops.extend(
            sources
                .into_iter()
                .map(|(service, range)| Op::SourceGone { service, range }),
        );
        for (bitmap, words) in [
            (Bitmap::Frontends, frontend_bits),
            (Bitmap::Endpoints, endpoint_bits),
        ] {
            let set = (0..).zip(words).filter(|(_, value)| *value != 0);
            ops.extend(set.map(|(word, _)| Op::Bits {
                bitmap,
                word,
                value: 0,
            }));
        }
        self.write(ops)?;
        self.forget_flows()?;
        self.forget_clients()
    }

    fn write(&mut self, ops: Vec<Op>) -> Result<()> {
        let failures = apply(&mut self.dataplane.tables, ops);
        if let Some(failure) = failures.first() {
            bail!(
                "the kernel refuses {} operations: {:?}: {}",
                failures.len(),
                failure.op,
                failure.error
            );
        }
        Ok(())
    }
}

impl DataPath for World {
    fn ingress(&mut self, frame: &[u8]) -> io::Result<Trial> {
        self.dataplane.programs.trial("tc_in", frame, 0)
    }

    fn egress(&mut self, frame: &[u8]) -> io::Result<Trial> {
        self.dataplane.programs.trial("tc_eg", frame, 0)
    }

    fn host(&mut self) -> &mut MemoryTables {
        &mut self.host
    }
}

fn plan(node: &Node, config: Config) -> Plan {
    Plan::new(&node.name, Limits::new(LIMITS, LIMITS)).with_config(config)
}

fn rules(config: &Config, declared: &Declared) -> Rules {
    let mut options = netfilter::Options::new(config);
    options.service_cidrs = ServiceCidrs::default()
        .note(&declared.changes)
        .unwrap_or_default();
    let held = ClusterIps::new(config.mode).note(&declared.changes).added;
    Rules::new(&options, held)
}
