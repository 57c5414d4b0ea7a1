//! The task that owns the plan and the tables.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proxy_common::abi::Settings;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, error, info, warn};

use super::draws::Draws;
use super::locals::Locals;
use crate::control::{Ask, LastChange, TableState};
use crate::dataplane::reader::now;
use crate::dataplane::{Tables, apply};
use crate::explain::Sight;
use crate::log::Bursts;
use crate::manifests::{Standing, Update};
use crate::model::{Change, Object, ObjectKey};
use crate::netfilter::{self, ClusterIps, Netfilter, Rules, ServiceCidrs};
use crate::plan::{GRACE, Op, Outcome, Plan, Summary, Usage};

/// How long to wait before refused operations are tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The kind of a change that was carried out.
const PROGRAMMED: &str = "programmed";

pub(super) struct Objects {
    plan: Plan,
    tables: Tables,
    node: Arc<str>,
    settings: Settings,
    node_addresses: watch::Sender<Option<BTreeSet<IpAddr>>>,
    locals: Locals,
    cluster_ips: ClusterIps,
    service_cidrs: ServiceCidrs,
    netfilter: Netfilter,
    /// Operations that the kernel refused.
    refused: Vec<Op>,
    standing: Standing,
    last_change: Option<LastChange>,
    bursts: Bursts,
    draws: Draws,
    /// Whether all that is declared was known once: nothing of a former run is left then.
    is_complete: bool,
    /// Whether it was said that it is not so yet.
    is_warned: bool,
    /// Whether there was a Node object of this node, and is not any more.
    is_node_gone: bool,
    start: Instant,
}

/// The addresses of this node's interfaces.
type Addresses = Arc<BTreeSet<IpAddr>>;

/// Who is told of what is declared.
pub(super) struct Tell {
    /// The addresses of this node's Node object, once what is declared is known.
    pub(super) node_addresses: watch::Sender<Option<BTreeSet<IpAddr>>>,
    /// The addresses of the endpoints on this node.
    pub(super) local_endpoints: watch::Sender<BTreeSet<IpAddr>>,
    /// The keeper of the nftables tables.
    pub(super) netfilter: Netfilter,
}

impl Objects {
    pub(super) fn new(
        plan: Plan,
        tables: Tables,
        node: Arc<str>,
        settings: Settings,
        tell: Tell,
    ) -> Self {
        Self {
            cluster_ips: ClusterIps::new(plan.config().mode),
            plan,
            tables,
            locals: Locals::new(Arc::clone(&node), tell.local_endpoints),
            node,
            settings,
            node_addresses: tell.node_addresses,
            service_cidrs: ServiceCidrs::default(),
            netfilter: tell.netfilter,
            refused: Vec::new(),
            standing: Standing::default(),
            last_change: None,
            bursts: Bursts::default(),
            draws: Draws::default(),
            is_complete: false,
            is_warned: false,
            is_node_gone: false,
            start: Instant::now(),
        }
    }

    /// Follows updates until there are no more, and the addresses of this node's interfaces, and
    /// answers questions; tells `synced` when the first update is carried out.
    pub(super) async fn run(
        mut self,
        mut updates: mpsc::UnboundedReceiver<Update>,
        mut own: watch::Receiver<Option<Addresses>>,
        mut asks: mpsc::Receiver<Ask>,
        synced: oneshot::Sender<Summary>,
    ) {
        let mut synced = Some(synced);
        // Node ports are at these addresses: before they are known, those of a former run would go.
        if own.wait_for(Option::is_some).await.is_err() {
            return;
        }
        self.follow_addresses(&mut own);
        // Questions do not put off what is due.
        let mut due = None;
        loop {
            tokio::select! {
                update = updates.recv() => {
                    let Some(update) = update else {
                        return;
                    };
                    self.take(update);
                    // Whatever was declared of this node is known now, if it is nothing.
                    self.node_addresses.send_if_modified(|known| {
                        let is_first = known.is_none();
                        known.get_or_insert_default();
                        is_first
                    });
                    if let Some(synced) = synced.take() {
                        synced.send(self.plan.summary()).ok();
                    }
                }
                changed = own.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.follow_addresses(&mut own);
                }
                Some(ask) = asks.recv() => {
                    self.answer(ask);
                    continue;
                }
                () = sleep_until(due) => self.retry(),
            }
            due = self
                .pause()
                .map(|pause| tokio::time::Instant::now() + pause);
        }
    }

    fn answer(&self, ask: Ask) {
        // Whoever asked may have gone away.
        match ask {
            Ask::Draws(answer) => drop(answer.send(self.draws.read(&self.plan, &self.tables))),
            Ask::State(answer) => drop(answer.send(self.state())),
            Ask::Services(scope, answer) => {
                drop(answer.send(self.plan.view(|name| scope.includes(name))));
            }
            Ask::Explain(question, answer) => drop(answer.send(self.sight().scene(question))),
            Ask::Why(question, answer) => drop(answer.send(self.sight().why(&question))),
        }
    }

    /// All that is known of where packets go.
    fn sight(&self) -> Sight<'_, Tables> {
        let mut rules = netfilter::Options::new(self.plan.config());
        rules.service_cidrs = self.service_cidrs.all();
        Sight {
            plan: &self.plan,
            asides: &self.standing.asides,
            tables: &self.tables,
            rules: Rules::new(&rules, self.cluster_ips.held()),
            settings: self.settings,
            now: now(self.settings.hz),
            is_live: true,
        }
    }

    fn state(&self) -> TableState {
        let Usage {
            frontends,
            endpoints,
        } = self.plan.usage();
        let mut notices: Vec<_> = self
            .plan
            .notices()
            .map(|(name, notice)| (name.clone(), notice.to_string(), notice.is_by_choice()))
            .collect();
        notices.sort_unstable();
        TableState {
            summary: self.plan.summary(),
            frontends,
            endpoints,
            standing: self.standing.clone(),
            is_node_gone: self.is_node_gone,
            notices,
            refused: self.refused.len(),
            last_change: self.last_change,
        }
    }

    /// How long to wait for something else to do, if anything is left undone.
    fn pause(&self) -> Option<Duration> {
        let retry = if !self.refused.is_empty() {
            Some(RETRY)
        } else if self.plan.is_waiting() {
            Some(GRACE)
        } else {
            None
        };
        let summing = self.bursts.due(self.start.elapsed());
        retry.into_iter().chain(summing).min()
    }

    /// Sums up what had no line of its own.
    fn sum_up(&mut self) {
        for (kind, count) in self.bursts.end(self.start.elapsed()) {
            if kind == PROGRAMMED {
                info!(count, "programmed more changes within a second");
            } else {
                warn!(kind, count, "more of the same kind, see status");
            }
        }
    }

    fn take(&mut self, mut update: Update) {
        self.sum_up();
        self.keep_node(&mut update.changes);
        let completes = !self.is_complete && self.completes(&update);
        self.standing = update.standing;
        let now = self.start.elapsed();
        for problem in &update.problems {
            if self.bursts.admit(problem.trouble.kind(), now) {
                warn!(%problem, "manifest not used");
            }
        }
        let cluster_ips = self.cluster_ips.note(&update.changes);
        let service_cidrs = self.service_cidrs.note(&update.changes);
        // Before they are served, so that no packet to them goes anywhere else in between.
        self.netfilter.add(cluster_ips.added);
        if !update.changes.is_empty() || (completes && self.plan.has_former()) {
            self.follow(update.changes, completes);
        }
        self.netfilter.remove(cluster_ips.gone);
        if let Some(ranges) = service_cidrs {
            self.netfilter.set_service_cidrs(ranges);
        }
        if completes {
            self.netfilter.complete();
        }
    }

    /// Brings the tables to the addresses that this node has now.
    fn follow_addresses(&mut self, own: &mut watch::Receiver<Option<Addresses>>) {
        let now = own.borrow_and_update().clone();
        let outcome = self
            .plan
            .update(now.map(Change::Addresses), self.start.elapsed());
        if !outcome.ops.is_empty() {
            let operations = outcome.ops.len();
            debug!(operations, "this node has other addresses");
            self.carry_out(outcome);
        }
    }

    /// Brings the tables to what is declared now.
    fn follow(&mut self, changes: Vec<Change>, completes: bool) {
        // Steady changes must not keep what was refused from being tried again.
        if !self.refused.is_empty() {
            self.retry();
        }
        let began = Instant::now();
        for change in &changes {
            self.note_node(change);
            self.locals.note(change);
        }
        let count = changes.len();
        let now = self.start.elapsed();
        let outcome = if completes {
            self.plan.complete(changes, now)
        } else {
            self.plan.update(changes, now)
        };
        if outcome.retired > 0 {
            info!(
                ports = outcome.retired,
                "service ports of the former run are gone"
            );
        }
        let operations = outcome.ops.len();
        self.carry_out(outcome);
        let took = began.elapsed();
        self.last_change = Some(LastChange {
            at: Instant::now(),
            took,
            objects: count,
            operations,
        });
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if self.bursts.admit(PROGRAMMED, self.start.elapsed()) {
            info!(changes = count, operations, micros, "programmed");
        }
    }

    /// Whether all that is declared is known with this update. What is missing before may be in
    /// what could not be used, and an empty source that is held back says nothing.
    fn completes(&mut self, update: &Update) -> bool {
        self.is_complete = update.standing.is_complete;
        if !self.is_complete && self.plan.has_former() && !self.is_warned {
            self.is_warned = true;
            warn!("not all is known: what the former run served stays as it is");
        }
        self.is_complete
    }

    /// A node whose Node object is gone still has the addresses, the zone and the pods that it had:
    /// what was known of it counts until there is something else.
    fn keep_node(&mut self, changes: &mut Vec<Change>) {
        changes.retain(|change| match change {
            Change::Gone(ObjectKey::Node(name)) if *name == self.node => {
                self.is_node_gone = true;
                warn!("the Node object of this node is gone: what it said last still counts");
                false
            }
            Change::Set(Object::Node(node)) if node.name == self.node => {
                self.is_node_gone = false;
                true
            }
            _ => true,
        });
    }

    fn note_node(&self, change: &Change) {
        let addresses = match change {
            Change::Set(Object::Node(node)) if node.name == self.node => {
                node.addresses.iter().copied().collect()
            }
            _ => return,
        };
        self.node_addresses.send_replace(Some(addresses));
    }

    fn carry_out(&mut self, outcome: Outcome) {
        let now = self.start.elapsed();
        for (service, notice) in outcome.notices {
            if self.bursts.admit(notice.kind(), now) {
                warn!(%service, %notice, "not served in full");
            }
        }
        self.apply(outcome.ops);
        self.draws.close(&outcome.left, &self.tables);
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
        self.sum_up();
        if self.refused.is_empty() {
            if !self.plan.is_waiting() {
                return;
            }
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

/// Sleeps for ever where nothing is due.
async fn sleep_until(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
