//! Answers from the tasks that own the state and from the maps.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::{Mutex, mpsc, oneshot, watch};

use super::api::explain::{Explanation, Why};
use super::api::{self, DeviceState, Kind, List};
use super::body::Pieces;
use super::fairness::{self, TotalDraws};
use super::flows::{self, FlowQuery};
use super::listing::{Counts, Scope, endpoints, services};
use super::monitor::{Listener, Wanted};
use super::names::Names;
use crate::dataplane::reader::now;
use crate::dataplane::{Capacities, Private, ReadError, Reader};
use crate::explain::{BadQuestion, DrawError, Question, Run, Scene, WhyQuestion};
use crate::manifests::Standing;
use crate::metrics;
use crate::model::{Family, ObjectName};
use crate::netfilter;
use crate::plan::{ServiceView, Summary};

/// A question to the task that owns the plan and the tables.
#[derive(Debug)]
pub enum Ask {
    /// How the tables are.
    State(oneshot::Sender<TableState>),
    /// What is planned for Services.
    Services(Scope, oneshot::Sender<Vec<ServiceView>>),
    /// How draws fell.
    Draws(oneshot::Sender<TotalDraws>),
    /// All that concerns one packet.
    Explain(Question, oneshot::Sender<io::Result<Scene>>),
    /// Which Service an address and port belong to.
    Why(WhyQuestion, oneshot::Sender<Why>),
}

/// Events that wait for whoever listens: half a second's, if it is as many as there may be.
const QUEUE: usize = 5_000;

/// How the tables are.
#[derive(Clone, Debug, Default)]
pub struct TableState {
    /// How much is planned.
    pub summary: Summary,
    /// Frontends in use, of IPv4 and IPv6.
    pub frontends: [usize; 2],
    /// Endpoints that have a slot, of IPv4 and IPv6.
    pub endpoints: [usize; 2],
    /// How the manifests are.
    pub standing: Standing,
    /// Whether this node's Node object is gone.
    pub is_node_gone: bool,
    /// What is not served; whether that is a limit of this program.
    pub notices: Vec<(ObjectName, String, bool)>,
    /// Operations that the kernel refused.
    pub refused: usize,
    /// The last change.
    pub last_change: Option<LastChange>,
}

/// The last change of the tables.
#[derive(Clone, Copy, Debug)]
pub struct LastChange {
    /// When it was done.
    pub at: Instant,
    /// How long it took.
    pub took: Duration,
    /// Objects that changed.
    pub objects: usize,
    /// Writes to the tables.
    pub operations: usize,
}

/// What does not change while the controller runs.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The node.
    pub node: String,
    /// The manifests.
    pub manifests: PathBuf,
    /// When it began.
    pub start: Instant,
    /// Ticks of the programs' clock a second.
    pub hz: u32,
    /// How large the maps are.
    pub capacities: Capacities,
}

#[derive(Debug, Error)]
pub(super) enum AnswerError {
    #[error("the controller is stopping")]
    Stopping,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("cannot read the maps: {0}")]
    Task(#[from] io::Error),
    #[error(transparent)]
    Draw(#[from] DrawError),
    #[error(transparent)]
    Question(#[from] BadQuestion),
}

#[derive(Clone)]
pub(super) struct Answers {
    pub(super) asks: mpsc::Sender<Ask>,
    pub(super) devices: watch::Receiver<Vec<api::Device>>,
    pub(super) netfilter: watch::Receiver<netfilter::State>,
    pub(super) listeners: mpsc::Sender<Listener>,
    pub(super) reader: Arc<Reader>,
    pub(super) facts: Arc<Facts>,
    /// The programs as packets are explained by them, once somebody has asked.
    pub(super) explaining: Arc<Mutex<Option<Private>>>,
}

impl Answers {
    pub(super) async fn status(&self, with_flows: bool) -> Result<api::Status, AnswerError> {
        let state = self.ask(Ask::State).await?;
        let entries = if with_flows {
            let (hz, reader) = (self.facts.hz, Arc::clone(&self.reader));
            let flows = blocking(move || reader.flows(now(hz))).await?;
            Some(flows.entries)
        } else {
            None
        };
        let counters = self.counted().await?;
        let netfilter = self.netfilter.borrow().clone();
        let devices = devices(&self.devices.borrow());
        let is_sound = state.standing.problems.is_empty()
            && !state.is_node_gone
            && state.notices.iter().all(|(.., is_by_choice)| *is_by_choice)
            && state.refused == 0
            && devices.refused.is_empty()
            && devices.impaired.is_empty()
            && netfilter.trouble.is_none();
        Ok(api::Status {
            kind: Kind::new("Status"),
            healthy: is_sound,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.facts.node.clone(),
            pid: std::process::id(),
            uptime_seconds: self.facts.start.elapsed().as_secs(),
            manifests: api::Manifests {
                path: self.facts.manifests.display().to_string(),
                files: state.standing.files,
                objects: state.standing.objects,
                problems: problems(&state),
            },
            maps: maps(&self.facts.capacities, &state, entries),
            tables: tables(state),
            devices,
            netfilter: api::Netfilter {
                cluster_ips: netfilter.cluster_ips,
                forward_accepts: netfilter.accepts.iter().map(ToString::to_string).collect(),
                trouble: netfilter.trouble,
            },
            counters,
        })
    }

    pub(super) async fn counters(&self) -> Result<List<api::Counter>, AnswerError> {
        Ok(List {
            kind: Kind::new("CounterList"),
            items: self.counted().await?,
        })
    }

    /// What programs and nftables tables have counted.
    async fn counted(&self) -> Result<Vec<api::Counter>, AnswerError> {
        let reader = Arc::clone(&self.reader);
        let read = move || Ok((reader.counters()?, netfilter::counts().unwrap_or_default()));
        let (counters, counts) = blocking(read).await?;
        // While the table is being put right it has no counter, or a new one.
        let mut known = self.netfilter.borrow().counts.clone();
        for (counter, count) in counts {
            let own = known.entry(counter).or_default();
            *own = count.max(*own);
        }
        let counters = counters.into_iter().map(api::Counter::from);
        let known = known.into_iter().map(api::Counter::from);
        Ok(counters.chain(known).collect())
    }

    pub(super) async fn flows(&self, query: &FlowQuery) -> Result<Pieces, AnswerError> {
        let names = self.names(query.selection.scope.clone()).await?;
        let (hz, reader, query) = (self.facts.hz, Arc::clone(&self.reader), query.clone());
        let (found, names) = blocking(move || {
            let found = flows::find(&reader, now(hz), &query, &names)?;
            Ok((found, names))
        })
        .await?;
        Ok(flows::pieces(found, names))
    }

    /// Events from now on, one a line.
    pub(super) async fn monitor(&self, wanted: Wanted) -> Result<Pieces, AnswerError> {
        let (queue, events) = mpsc::channel(QUEUE);
        let told = self.listeners.send(Listener { wanted, queue }).await;
        told.map_err(|_closed| AnswerError::Stopping)?;
        Ok(Pieces(events))
    }

    pub(super) async fn names(&self, scope: Scope) -> Result<Names, AnswerError> {
        let views = self.ask(|answer| Ask::Services(scope, answer)).await?;
        Ok(Names::of(&views))
    }

    pub(super) async fn services(&self, scope: Scope) -> Result<List<api::Service>, AnswerError> {
        let (views, counts) = self.views(scope).await?;
        Ok(List {
            kind: Kind::new("ServiceList"),
            items: services(&views, &counts),
        })
    }

    pub(super) async fn endpoints(&self, scope: Scope) -> Result<List<api::Endpoint>, AnswerError> {
        let (views, counts) = self.views(scope).await?;
        Ok(List {
            kind: Kind::new("EndpointList"),
            items: endpoints(&views, &counts),
        })
    }

    pub(super) async fn fairness(&self, scope: &Scope) -> Result<api::Fairness, AnswerError> {
        let draws = self.ask(Ask::Draws).await?;
        Ok(fairness::report(&draws, scope))
    }

    pub(super) async fn metrics(&self) -> Result<String, AnswerError> {
        let draws = self.ask(Ask::Draws).await?;
        Ok(metrics::text(&fairness::figures(&draws)))
    }

    pub(super) fn devices(&self) -> List<api::Device> {
        List {
            kind: Kind::new("DeviceList"),
            items: self.devices.borrow().clone(),
        }
    }

    /// What becomes of a packet. The tables are only read, and the data path runs on a copy of what
    /// concerns the packet.
    pub(super) async fn explain(&self, query: &str) -> Result<Explanation, AnswerError> {
        let question = Question::from_query(query)?;
        let scene = self.ask(|answer| Ask::Explain(question, answer)).await??;
        let mut instance = Arc::clone(&self.explaining).lock_owned().await;
        let explain = move || scene.explain(Run::Any, &mut instance);
        let done = tokio::task::spawn_blocking(explain).await;
        Ok(done.map_err(io::Error::other)??)
    }

    /// Which Service an address and port belong to.
    pub(super) async fn why(&self, query: &str) -> Result<Why, AnswerError> {
        let question = WhyQuestion::from_query(query)?;
        self.ask(|answer| Ask::Why(question, answer)).await
    }

    async fn views(&self, scope: Scope) -> Result<(Vec<ServiceView>, Counts), AnswerError> {
        let views = self.ask(|answer| Ask::Services(scope, answer)).await?;
        let (hz, reader) = (self.facts.hz, Arc::clone(&self.reader));
        let counts = blocking(move || Counts::read(&reader, now(hz))).await?;
        Ok((views, counts))
    }

    pub(super) async fn ask<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<T>) -> Ask,
    ) -> Result<T, AnswerError> {
        let (sender, answer) = oneshot::channel();
        let asked = self.asks.send(question(sender)).await;
        asked.map_err(|_closed| AnswerError::Stopping)?;
        answer.await.map_err(|_closed| AnswerError::Stopping)
    }
}

/// Reading whole maps takes milliseconds, which the other tasks must not wait for.
pub(super) async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
) -> Result<T, AnswerError> {
    let done = tokio::task::spawn_blocking(read).await;
    Ok(done.map_err(io::Error::other)??)
}

/// The short form: names, and what is wrong with whom.
fn devices(all: &[api::Device]) -> api::Devices {
    let mut devices = api::Devices::default();
    for device in all {
        let notice = |reason: &String| api::DeviceNotice {
            name: device.name.clone(),
            reason: reason.clone(),
        };
        match device.state {
            DeviceState::Attached => {
                devices.attached.push(device.name.clone());
                devices.impaired.extend(device.warnings.iter().map(notice));
            }
            DeviceState::Refused | DeviceState::Failed => {
                devices.refused.extend(device.reason.as_ref().map(notice));
            }
            DeviceState::LeftAlone | DeviceState::Pending => {}
        }
    }
    devices.attached.sort_unstable();
    devices
}

fn tables(state: TableState) -> api::Tables {
    let Summary {
        services,
        frontends,
        endpoints,
    } = state.summary;
    let notices = state.notices.into_iter();
    api::Tables {
        services,
        frontends,
        endpoints,
        refused: state.refused,
        last_change: state.last_change.map(|last| api::Change {
            seconds_ago: last.at.elapsed().as_secs(),
            micros: u64::try_from(last.took.as_micros()).unwrap_or(u64::MAX),
            objects: last.objects,
            operations: last.operations,
        }),
        notices: notices
            .map(|(service, message, is_by_choice)| api::Notice {
                namespace: service.namespace().to_owned(),
                name: service.name().to_owned(),
                message,
                is_by_choice,
            })
            .collect(),
    }
}

fn maps(
    capacities: &Capacities,
    state: &TableState,
    flows: Option<[(u64, u64); 2]>,
) -> Vec<api::Map> {
    let limits = capacities.limits;
    let known = |entries: [usize; 2]| entries.map(|entries| Some(entries as u64));
    let mut maps = of_families("frontends", known(state.frontends), [limits.frontends; 2]);
    let endpoints = of_families("endpoints", known(state.endpoints), [limits.endpoints; 2]);
    maps.extend(endpoints);
    maps.extend(flow_maps(capacities, flows));
    maps
}

/// How full the flow tables are.
pub(super) fn flow_maps(capacities: &Capacities, flows: Option<[(u64, u64); 2]>) -> Vec<api::Map> {
    let halved = |entries: u32| [entries, (entries / 2).max(1)];
    let of = |pick: fn((u64, u64)) -> u64| match flows {
        Some(flows) => flows.map(|entries| Some(pick(entries))),
        None => [None; 2],
    };
    let mut maps = of_families("flows", of(|(flows, _)| flows), halved(capacities.flows));
    let half_open = of(|(_, half)| half);
    maps.extend(of_families(
        "half-open",
        half_open,
        halved(capacities.half_open),
    ));
    maps
}

fn of_families(name: &str, entries: [Option<u64>; 2], max: [u32; 2]) -> Vec<api::Map> {
    let all = Family::ALL.into_iter().zip(entries).zip(max);
    all.map(|((family, entries), max)| api::Map {
        name: name.to_owned(),
        family: family.to_string(),
        entries,
        max_entries: max.into(),
    })
    .collect()
}

/// What is wrong with what is declared.
fn problems(state: &TableState) -> Vec<String> {
    let gone = "this node's Node object is gone: what it said last still counts";
    let gone = state.is_node_gone.then(|| gone.to_owned());
    state
        .standing
        .problems
        .iter()
        .cloned()
        .chain(gone)
        .collect()
}
