//! What the tables of a node would hold, planned in this process from manifests alone.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use proxy_common::abi::{Slot, V4, V6};
use proxy_common::datapath::memory::{MemoryTables, Stored};
use thiserror::Error;

use super::scene::Sight;
use crate::config::{Config, Mode};
use crate::dataplane::apply::{Layout, endpoint_key, frontend_key};
use crate::dataplane::settings;
use crate::manifests::Source;
use crate::model::{Aside, Change, Family, Object};
use crate::netfilter::{self, ClusterIps, Rules, ServiceCidrs};
use crate::plan::{Bitmap, Limits, Op, Plan};

/// Why nothing can be planned.
#[derive(Debug, Error)]
pub enum OfflineError {
    /// Nothing can be read.
    #[error("{}: {}", path.display(), reason)]
    Unreadable {
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The node is not declared.
    #[error("no manifest declares Node {node}; declared are {known}")]
    NoNode {
        /// The node that was asked for.
        node: String,
        /// The nodes that are declared.
        known: String,
    },
}

/// A node as it is planned, and its tables in plain memory.
pub struct Offline {
    plan: Plan,
    asides: Arc<[Aside]>,
    tables: MemoryTables,
    rules: Rules,
    /// What of the manifests cannot be used.
    pub problems: Vec<String>,
}

impl Offline {
    /// Plans a node from manifests. Its addresses are those of its Node object unless others are
    /// given.
    pub fn read(
        path: PathBuf,
        node: &str,
        config: Config,
        addresses: &[IpAddr],
    ) -> Result<Self, OfflineError> {
        let mut source = Source::new(path.clone()).select(config.selectors());
        let update = source.read_all();
        let problems: Vec<_> = update.problems.iter().map(ToString::to_string).collect();
        if update.changes.is_empty() {
            let reason = problems.first().cloned();
            let reason = reason.unwrap_or_else(|| "declares nothing".to_owned());
            return Err(OfflineError::Unreadable { path, reason });
        }
        let nodes = update.changes.iter().filter_map(|change| match change {
            Change::Set(Object::Node(own)) => Some(own),
            _ => None,
        });
        let nodes: Vec<_> = nodes.collect();
        let Some(found) = nodes.iter().find(|own| *own.name == *node) else {
            let known: Vec<_> = nodes.iter().map(|own| &*own.name).collect();
            return Err(OfflineError::NoNode {
                node: node.to_owned(),
                known: if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                },
            });
        };
        let own = if addresses.is_empty() {
            &found.addresses
        } else {
            addresses
        };
        let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let own: BTreeSet<_> = own.iter().copied().chain(loopback).collect();
        let mut changes = update.changes;
        changes.push(Change::Addresses(Arc::new(own)));
        let asides = update.standing.asides;
        Ok(Self {
            problems,
            ..Self::plan(changes, asides, node, config)
        })
    }

    /// Plans a node from changes of an empty cluster.
    pub fn plan(changes: Vec<Change>, asides: Arc<[Aside]>, node: &str, config: Config) -> Self {
        let mut settings = settings::detect();
        settings.masquerade_mark = config.masquerade_mark();
        settings.reject_mark = config.reject_mark();
        settings.hairpin_anywhere = u32::from(config.mode == Mode::Iptables);
        let mut options = netfilter::Options::new(&config);
        options.service_cidrs = ServiceCidrs::default().note(&changes).unwrap_or_default();
        let held = ClusterIps::new(config.mode).note(&changes).added;
        let mut plan = Plan::new(node, Limits::default()).with_config(config);
        let outcome = plan.complete(changes, Duration::ZERO);
        let mut tables = MemoryTables::new(settings);
        for op in outcome.ops {
            carry_out(&mut tables, op);
        }
        Self {
            plan,
            asides,
            tables,
            rules: Rules::new(&options, held),
            problems: Vec::new(),
        }
    }

    /// What can be seen of it.
    pub fn sight(&self) -> Sight<'_, MemoryTables> {
        Sight {
            plan: &self.plan,
            asides: &self.asides,
            tables: &self.tables,
            rules: self.rules.clone(),
            settings: self.tables.settings,
            now: self.tables.now,
            is_live: false,
        }
    }
}

/// Carries an operation of the plan out on tables in plain memory.
fn carry_out(tables: &mut MemoryTables, op: Op) {
    match op {
        Op::Detector { value } => tables.detector = value,
        Op::ResetPicks { .. } => {}
        Op::Bits {
            bitmap,
            word,
            value,
        } => {
            let words = match bitmap {
                Bitmap::Frontends => &mut tables.frontend_bits,
                Bitmap::Endpoints => &mut tables.endpoint_bits,
            };
            if let Some(own) = words.get_mut(word as usize) {
                *own = value;
            }
        }
        Op::Set { base, slots } => {
            let base = base as usize;
            let end = base + slots.len();
            if tables.sets.len() < end {
                let unused = Slot {
                    endpoint: 0,
                    service: 0,
                };
                tables.sets.resize(end, unused);
            }
            if let Some(own) = tables.sets.get_mut(base..end) {
                own.copy_from_slice(&slots);
            }
        }
        op => match family(&op) {
            Family::V4 => carry_out_in::<V4>(tables, op),
            Family::V6 => carry_out_in::<V6>(tables, op),
        },
    }
}

/// The family whose tables an operation is for, where there are such.
const fn family(op: &Op) -> Family {
    match op {
        Op::Endpoint { record, .. } => Family::of(record.addr),
        Op::Reverse { endpoint, .. } | Op::ReverseGone { endpoint } => endpoint.family(),
        Op::Frontend { at, .. } | Op::FrontendGone { at } => at.family(),
        Op::Source { range, .. } | Op::SourceGone { range, .. } => Family::of(match range {
            crate::model::IpNet::V4(range) => IpAddr::V4(range.addr()),
            crate::model::IpNet::V6(range) => IpAddr::V6(range.addr()),
        }),
        Op::Detector { .. }
        | Op::ResetPicks { .. }
        | Op::ResetDraws { .. }
        | Op::ForgetClients { .. }
        | Op::Bits { .. }
        | Op::Set { .. } => Family::V4,
    }
}

fn carry_out_in<F: Stored + Layout>(tables: &mut MemoryTables, op: Op) {
    let maps = F::maps_mut(tables);
    match op {
        Op::Endpoint { slot, record } => {
            maps.endpoints
                .extend(F::record(&record).map(|own| (slot, own)));
        }
        Op::Reverse {
            endpoint,
            frontends,
        } => {
            let key = endpoint_key::<F>(&endpoint);
            maps.reverse
                .extend(key.map(|key| (key, F::frontends(&frontends))));
        }
        Op::ReverseGone { endpoint } => {
            if let Some(key) = endpoint_key::<F>(&endpoint) {
                maps.reverse.remove(&key);
            }
        }
        Op::Frontend { at, value } => {
            maps.frontends
                .extend(frontend_key::<F>(&at).map(|key| (key, value)));
        }
        Op::FrontendGone { at } => {
            if let Some(key) = frontend_key::<F>(&at) {
                maps.frontends.remove(&key);
            }
        }
        // Those of a packet's service port are taken from the plan.
        Op::Source { .. }
        | Op::SourceGone { .. }
        | Op::Detector { .. }
        | Op::ResetPicks { .. }
        | Op::ResetDraws { .. }
        | Op::ForgetClients { .. }
        | Op::Bits { .. }
        | Op::Set { .. } => {}
    }
}
