//! Logging: one line an event on standard error, as text or JSON.

mod burst;

pub use burst::Bursts;

use std::io::{IsTerminal as _, stderr};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Sets up logging for the whole process; also for what the kernel programs log.
///
/// Levels are those of klog: 0 is what an operator wants to know, from 2 on there is more detail,
/// from 6 on everything. `RUST_LOG` overrides them.
pub fn init(format: Format, verbosity: u8) -> Result<(), TryInitError> {
    let default = match verbosity {
        0 | 1 => "info",
        2..=5 => "info,kube_lottery=debug",
        _ => "debug,kube_lottery=trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        Format::Text => {
            let text = layer()
                .with_writer(stderr)
                .with_target(false)
                .with_ansi(stderr().is_terminal());
            registry.with(text).try_init()
        }
        Format::Json => {
            let json = layer().json().flatten_event(true).with_writer(stderr);
            registry.with(json).try_init()
        }
    }
}
