//! The control socket: what commands ask a running controller, over HTTP and JSON.
//!
//! `GET /v1/status`, `/v1/services`, `/v1/endpoints`, `/v1/devices`, `/v1/counters`, `/v1/flows`,
//! `/v1/monitor`, `/v1/explain`, `/v1/why`, `/v1/fairness`, `/v1/top` and `/v1/metrics`; nothing can
//! be changed by it. The state is asked of the tasks that own it, counts are read from the maps.

mod answer;
pub mod api;
mod body;
mod client;
mod fairness;
mod flows;
mod http;
mod listing;
mod monitor;
mod names;
mod peer;
mod socket;
mod top;

pub use answer::{Ask, Facts, LastChange, TableState};
pub use client::{ClientError, follow, get, get_within};
pub use fairness::{PortDraws, SetDraws, TotalDraws};
pub use flows::{BadQuery, FlowOrder, FlowQuery, Selection, unnamed_flows};
pub use listing::Scope;
pub(crate) use listing::{Counts, endpoints, services};
pub use monitor::Wanted;
pub use peer::{BadPeer, Peer};
pub use socket::{BindError, ControlSocket};
pub use top::{BadTop, TopBy, TopQuery};

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::dataplane::{Monitor, Reader};
use crate::netfilter;
use answer::Answers;
use monitor::Hub;

/// Where the control socket is unless a flag says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/kube-lottery/agent.sock";

/// Listeners that may wait until they are noticed.
const LISTENERS: usize = 16;

/// What a controller needs to answer on its control socket.
pub struct Control {
    /// The socket.
    pub socket: ControlSocket,
    /// Reads the maps.
    pub reader: Reader,
    /// What the programs tell while somebody listens.
    pub monitor: Monitor,
    /// Most events that are told in a second.
    pub events_per_second: u32,
    /// What does not change.
    pub facts: Facts,
}

impl Control {
    /// Answers until the future is dropped.
    pub async fn serve(
        self,
        asks: mpsc::Sender<Ask>,
        devices: watch::Receiver<Vec<api::Device>>,
        netfilter: watch::Receiver<netfilter::State>,
    ) {
        let (listeners, incoming) = mpsc::channel(LISTENERS);
        let answers = Answers {
            asks,
            devices,
            netfilter,
            listeners,
            reader: Arc::new(self.reader),
            facts: Arc::new(self.facts),
            explaining: Arc::default(),
        };
        let hub = Hub::new(
            self.monitor,
            self.events_per_second,
            answers.clone(),
            incoming,
        );
        tokio::join!(http::serve(&self.socket, &answers), hub.run());
    }
}
