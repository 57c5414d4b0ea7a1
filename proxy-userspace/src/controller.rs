//! Connects the parts: manifests and devices come in, tables and links follow.
//!
//! One task owns the plan and the tables, one follows the devices, one thread attaches to them, and
//! one keeps the nftables tables. They share nothing but channels.

mod devices;
mod draws;
mod locals;
mod objects;
mod sweep;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use proxy_common::abi::Settings;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::config;
use crate::control::Control;
use crate::dataplane::{Fresh, PinError, Programs, Sweeper, Tables};
use crate::manifests::{Follower, Source, Update, follow};
use crate::netfilter::{self, Keeper};
use crate::node;
use crate::plan::{Plan, Summary};
use devices::Attacher;
use objects::{Objects, Tell};

/// What the controller works from.
pub struct Config {
    /// What is declared.
    pub manifests: Manifests,
    /// Name of this node's Node object.
    pub node: Arc<str>,
    /// What is configured of the meaning of Services.
    pub meaning: config::Config,
}

/// Manifests that are read and followed by a thread of their own.
///
/// To be begun before the programs are loaded: the kernel takes about as long to verify those as
/// ten thousand Services take to be read.
pub struct Manifests {
    follower: Follower,
    updates: mpsc::UnboundedReceiver<Update>,
}

impl Manifests {
    /// Begins with all that is there.
    pub fn follow(source: Source) -> Result<Self, ControllerError> {
        let (sender, updates) = mpsc::unbounded_channel();
        let path = source.path().to_path_buf();
        let follower =
            follow(source, sender).map_err(|source| ControllerError::Manifests { path, source })?;
        Ok(Self { follower, updates })
    }
}

/// What the controller works on.
pub struct Kernel {
    /// The maps.
    pub tables: Tables,
    /// The programs.
    pub programs: Programs,
    /// Maps to be pinned once they are true.
    pub fresh: Fresh,
    /// Removes flows that are over.
    pub sweeper: Sweeper,
    /// What the programs are told.
    pub settings: Settings,
}

/// Why the controller cannot go on.
#[derive(Debug, Error)]
pub enum ControllerError {
    /// The manifests cannot be followed.
    #[error("cannot follow the manifests at {}", path.display())]
    Manifests {
        /// Where they are.
        path: PathBuf,
        /// Why.
        source: notify::Error,
    },
    /// The devices cannot be followed.
    #[error(transparent)]
    Devices(#[from] node::WatchError),
    /// The maps cannot be pinned.
    #[error(transparent)]
    Pins(#[from] PinError),
    /// A part ended by itself.
    #[error("the {0} has ended unexpectedly")]
    Ended(&'static str),
}

/// Runs until `stop`. Each message of `reload` has all manifests read again.
pub async fn run(
    config: Config,
    plan: Plan,
    kernel: Kernel,
    control: Control,
    mut reload: mpsc::UnboundedReceiver<()>,
    stop: CancellationToken,
) -> Result<(), ControllerError> {
    let Kernel {
        tables,
        programs,
        fresh,
        sweeper,
        settings,
    } = kernel;
    let Manifests { follower, updates } = config.manifests;
    let (node_addresses, addresses_of_node) = watch::channel(None);
    let (synced, mut is_synced) = oneshot::channel();
    let (local_endpoints, endpoints) = watch::channel(BTreeSet::new());
    let rules = netfilter::Options::new(&config.meaning);
    let (netfilter, keeper, netfilter_state) = Keeper::new(rules);
    let mut keeping = tokio::task::spawn_blocking(move || keeper.run());
    let tell = Tell {
        node_addresses,
        local_endpoints,
        netfilter,
    };
    let objects = Objects::new(plan, tables, config.node, settings, tell);
    let (asks, asked) = mpsc::channel(ASKS);
    let (found, devices) = watch::channel(None);
    let (own_addresses, own) = watch::channel(None);
    let look = node::Look {
        detect: config.meaning.detect,
        node: addresses_of_node,
        addresses: own_addresses,
        devices: found,
    };
    let mut watching = tokio::spawn(node::watch(look));
    let mut objects = tokio::spawn(objects.run(updates, own, asked, synced));
    let (device_state, known_devices) = watch::channel(Vec::new());
    let control = control.serve(asks, known_devices, netfilter_state);
    tokio::pin!(control);

    // Devices come once the tables are right: programs without tables would do no harm, but the
    // first thing an operator reads should be true.
    let summary = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = &mut control => return Err(ControllerError::Ended("control socket")),
        ended = &mut watching => return Err(watch_ended(ended)),
        synced = &mut is_synced => synced.map_err(|_closed| ControllerError::Ended("table task"))?,
    };
    fresh.pin()?;
    let (attached, is_attached) = oneshot::channel();
    let mut remembering = tokio::spawn(keep_neighbours(endpoints, devices.clone()));
    let thread = Attacher::new(programs, devices, attached, device_state);
    let mut attaching = tokio::task::spawn_blocking(move || thread.run());
    let mut sweeping = tokio::spawn(sweep::run(sweeper, settings.hz));
    tokio::pin!(is_attached);
    let mut is_ready = false;

    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = &mut control => return Err(ControllerError::Ended("control socket")),
            Some(()) = reload.recv() => follower.read_all(),
            count = &mut is_attached, if !is_ready => {
                is_ready = true;
                say_ready(summary, count.unwrap_or_default());
            }
            ended = &mut watching => return Err(watch_ended(ended)),
            ended = &mut remembering => {
                return Err(match ended {
                    Ok(Err(error)) => error.into(),
                    _ => ControllerError::Ended("neighbour task"),
                });
            }
            _ = &mut objects => return Err(ControllerError::Ended("table task")),
            _ = &mut keeping => return Err(ControllerError::Ended("netfilter thread")),
            _ = &mut sweeping => return Err(ControllerError::Ended("sweeper")),
            _ = &mut attaching => return Err(ControllerError::Ended("attaching thread")),
        }
    }
    // Without a watch the attaching thread ends. What it attached stays: links are pinned.
    watching.abort();
    sweeping.abort();
    remembering.abort();
    drop(watching.await);
    drop(attaching.await);
    Ok(())
}

fn watch_ended(
    ended: Result<Result<(), node::WatchError>, tokio::task::JoinError>,
) -> ControllerError {
    match ended {
        Ok(Err(error)) => error.into(),
        _ => ControllerError::Ended("device watch"),
    }
}

/// Has the kernel keep the endpoints in mind that are on bridges of this node.
async fn keep_neighbours(
    endpoints: watch::Receiver<BTreeSet<IpAddr>>,
    mut devices: watch::Receiver<Known>,
) -> Result<(), node::WatchError> {
    // Before they are known, what a former run has asked for must not be taken back.
    if devices.wait_for(Option::is_some).await.is_err() {
        return Ok(());
    }
    let now = bridged_networks(devices.borrow_and_update().as_ref());
    let (sender, networks) = watch::channel(now);
    let tell = async move {
        while devices.changed().await.is_ok() {
            let now = bridged_networks(devices.borrow_and_update().as_ref());
            sender.send_if_modified(|known| {
                let is_new = *known != now;
                *known = now;
                is_new
            });
        }
    };
    tokio::select! {
        ended = node::neighbours::keep(endpoints, networks) => ended,
        () = tell => Ok(()),
    }
}

/// The networks that are on link on the bridges of these devices.
fn bridged_networks(devices: Option<&node::Devices>) -> BTreeSet<node::OnLink> {
    let devices = devices.into_iter().flat_map(|known| known.wanted.values());
    let bridges = devices.filter_map(|device| device.bridge.as_ref());
    bridges
        .flat_map(|bridge| bridge.networks.iter().copied())
        .collect()
}

/// Questions that may wait for an answer.
const ASKS: usize = 16;

fn say_ready(summary: Summary, devices: usize) {
    let Summary {
        services,
        frontends,
        endpoints,
    } = summary;
    info!(services, frontends, endpoints, devices, "ready");
}

/// The devices of this node, once they are known.
type Known = Option<node::Devices>;
