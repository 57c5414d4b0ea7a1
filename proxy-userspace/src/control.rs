//! The control socket: what commands ask a running controller, over HTTP and JSON.
//!
//! `GET /v1/status`, `/v1/services`, `/v1/endpoints`, `/v1/devices`, `/v1/fairness`, `/v1/metrics` and
//! `/v1/top`; nothing can be changed by it. The state is asked of the tasks that own it, counts are read from the maps.

mod answer;
pub mod api;
mod client;
mod fairness;
mod http;
mod listing;
mod socket;

pub use answer::{Ask, Facts, LastChange, TableState};
pub use client::{ClientError, get};
pub use fairness::{PortDraws, SetDraws, TotalDraws};
pub use listing::Scope;
pub(crate) use listing::{Counts, endpoints, services};
pub use socket::{BindError, ControlSocket};

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::dataplane::Reader;
use crate::netfilter;
use answer::Answers;

/// Where the control socket is unless a flag says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/kube-lottery/agent.sock";

/// What a controller needs to answer on its control socket.
pub struct Control {
    /// The socket.
    pub socket: ControlSocket,
    /// Reads the maps.
    pub reader: Reader,
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
        let answers = Answers {
            asks,
            devices,
            netfilter,
            reader: Arc::new(self.reader),
            facts: Arc::new(self.facts),
        };
        http::serve(&self.socket, &answers).await;
    }
}
