//! The task that owns the plan and the tables.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, error, info, warn};

use crate::dataplane::{Tables, apply};
use crate::manifests::Update;
use crate::model::{Change, Object, ObjectKey};
use crate::plan::{GRACE, Op, Outcome, Plan, Summary};

/// How long to wait before refused operations are tried again.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct Objects {
    plan: Plan,
    tables: Tables,
    node: Arc<str>,
    node_addresses: watch::Sender<BTreeSet<IpAddr>>,
    /// Operations that the kernel refused.
    refused: Vec<Op>,
    /// Whether no update has come so far.
    is_first: bool,
    start: Instant,
}

impl Objects {
    pub(super) fn new(
        plan: Plan,
        tables: Tables,
        node: Arc<str>,
        node_addresses: watch::Sender<BTreeSet<IpAddr>>,
    ) -> Self {
        Self {
            plan,
            tables,
            node,
            node_addresses,
            refused: Vec::new(),
            is_first: true,
            start: Instant::now(),
        }
    }

    /// Follows updates until there are no more; tells `synced` when the first is carried out.
    pub(super) async fn run(
        mut self,
        mut updates: mpsc::UnboundedReceiver<Update>,
        synced: oneshot::Sender<Summary>,
    ) {
        let mut synced = Some(synced);
        loop {
            let update = match self.pause() {
                None => updates.recv().await,
                Some(pause) => {
                    let Ok(update) = tokio::time::timeout(pause, updates.recv()).await else {
                        self.retry();
                        continue;
                    };
                    update
                }
            };
            let Some(update) = update else {
                return;
            };
            self.take(update);
            if let Some(synced) = synced.take() {
                synced.send(self.plan.summary()).ok();
            }
        }
    }

    /// How long to wait for something else to do, if anything is left undone.
    fn pause(&self) -> Option<Duration> {
        if !self.refused.is_empty() {
            Some(RETRY)
        } else if self.plan.is_waiting() {
            Some(GRACE)
        } else {
            None
        }
    }

    fn take(&mut self, update: Update) {
        for problem in &update.problems {
            warn!(%problem, "manifest not used");
        }
        let is_complete = std::mem::take(&mut self.is_first) && self.is_complete(&update);
        if update.changes.is_empty() {
            return;
        }
        // Steady changes must not keep what was refused from being tried again.
        if !self.refused.is_empty() {
            self.retry();
        }
        let began = Instant::now();
        for change in &update.changes {
            self.note_node(change);
        }
        let changes = update.changes.len();
        let now = self.start.elapsed();
        let outcome = if is_complete {
            self.plan.complete(update.changes, now)
        } else {
            self.plan.update(update.changes, now)
        };
        if outcome.retired > 0 {
            info!(
                ports = outcome.retired,
                "service ports of the former run are gone"
            );
        }
        let operations = outcome.ops.len();
        self.carry_out(outcome);
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        info!(changes, operations, micros, "programmed");
    }

    /// Whether a first update tells all that is declared. What is missing may be in what could not
    /// be used, and an empty source says nothing.
    fn is_complete(&self, update: &Update) -> bool {
        let is_complete = update.problems.is_empty() && !update.changes.is_empty();
        if !is_complete && self.plan.has_former() {
            warn!("not all is known: what the former run served stays as it is");
        }
        is_complete
    }

    fn note_node(&self, change: &Change) {
        let addresses = match change {
            Change::Set(Object::Node(node)) if node.name == self.node => {
                node.addresses.iter().copied().collect()
            }
            Change::Gone(ObjectKey::Node(name)) if *name == self.node => BTreeSet::new(),
            _ => return,
        };
        self.node_addresses.send_replace(addresses);
    }

    fn carry_out(&mut self, outcome: Outcome) {
        for (service, notice) in outcome.notices {
            warn!(%service, %notice, "not served in full");
        }
        self.apply(outcome.ops);
    }

    fn apply(&mut self, ops: Vec<Op>) {
        if let Err(error) = self.tables.reserve_numbers(self.plan.next_number()) {
            error!(%error, "the numbers of service ports cannot be kept");
        }
        let failures = apply(&mut self.tables, ops);
        if let Some(first) = failures.first() {
            error!(count = failures.len(), first = ?first.op, error = %first.error,
                "the kernel refuses table entries, trying again");
        }
        self.refused
            .extend(failures.into_iter().map(|failure| failure.op));
        // What was given up must not be used again while a table may still lead there.
        if self.refused.is_empty() {
            self.plan.applied(self.start.elapsed());
        }
    }

    fn retry(&mut self) {
        if self.refused.is_empty() {
            debug!("looking again for room");
            let outcome = self.plan.retry(self.start.elapsed());
            self.carry_out(outcome);
        } else {
            let refused = std::mem::take(&mut self.refused);
            let ops = refused
                .iter()
                .filter_map(|op| self.plan.current(op))
                .collect();
            self.apply(ops);
        }
    }
}
