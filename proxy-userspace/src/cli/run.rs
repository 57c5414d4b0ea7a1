//! `kube-lottery run`

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use aya_log::EbpfLogger;
use clap::ValueEnum;
use proxy_common::abi::{Settings, capacity};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::config::{Config, ConfigError, Configuration, ExternalIps, Mode as Compatibility};
use crate::control::{self, Control, ControlSocket, Facts};
use crate::controller::{self, Kernel, Manifests};
use crate::dataplane::{
    self, AttachMode, Capacities, Dataplane, KillPoint, Lock, LogLevel, Mode, Options, Place,
    settings,
};
use crate::log;
use crate::manifests::Source;
use crate::plan::{Limits, Plan};

/// Flags of `run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// File or directory of manifests: Service, `EndpointSlice` and Node, YAML or JSON.
    #[arg(long, value_name = "PATH")]
    manifests: PathBuf,
    /// Delete everything when the manifests declare nothing any more, as in an empty or vanished
    /// directory; else everything stays as it was.
    #[arg(long)]
    allow_empty: bool,
    /// File with a `KubeProxyConfiguration` (kubeproxy.config.k8s.io/v1alpha1), YAML or JSON.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Bit of packets' marks that asks for rejection, 0 to 31; 15 if not given, or 14 if that asks
    /// for masquerading.
    #[arg(long, value_name = "BIT")]
    reject_bit: Option<u8>,
    /// Which external IPs of Services are served: allow, deny, or ranges with commas between them.
    /// By default all, unless the configuration's feature gate `AllowServiceExternalIPs` is off.
    #[arg(long, value_name = "POLICY")]
    external_ips: Option<ExternalIps>,
    /// Take Services and slices with either of the labels service.kubernetes.io/headless and
    /// service.kubernetes.io/service-proxy-name for nothing, as up to Kubernetes 1.34.
    #[arg(long)]
    hide_headless_labelled_services: bool,
    /// Name of this node's Node object; the host name if not given.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: Option<String>,
    /// Where `status`, `services` and `endpoints` are answered.
    #[arg(long, value_name = "PATH", default_value = control::DEFAULT_SOCKET)]
    control_socket: PathBuf,
    /// Most frontends (address, port, protocol) of each IP family.
    #[arg(long, value_name = "N", default_value_t = capacity::FRONTENDS,
        value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    max_frontends: u32,
    /// Most endpoints of each IP family, counted once for each Service port.
    #[arg(long, value_name = "N", default_value_t = capacity::ENDPOINTS,
        value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    max_endpoints: u32,
    /// Most established flow entries, two a flow, for IPv4; IPv6 has half as many.
    #[arg(long, value_name = "N", default_value_t = capacity::FLOWS,
        value_parser = clap::value_parser!(u32).range(128..=1 << 26))]
    max_flows: u32,
    /// Most flow entries that are not established yet, for IPv4; IPv6 has half as many.
    #[arg(long, value_name = "N", default_value_t = capacity::HALF_OPEN,
        value_parser = clap::value_parser!(u32).range(128..=1 << 26))]
    max_half_open: u32,
    /// Most datagrams in fragments at a time, of each IP family.
    #[arg(long, value_name = "N", default_value_t = capacity::FRAGMENTS,
        value_parser = clap::value_parser!(u32).range(128..=1 << 26))]
    max_fragments: u32,
    /// Up to this many endpoints every rule of the lottery is drawn for by itself; above, one draw
    /// with the same distribution decides.
    #[arg(long, value_name = "N", default_value_t = Settings::with_hz(1).cascade_limit,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(Settings::MAX_CASCADE_LIMIT)))]
    cascade_limit: u32,
    /// Most events that the programs tell `kube-lottery monitor` in a second, all CPUs together.
    #[arg(long, value_name = "N", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_events_per_second: u32,
    /// Directory of a BPF file system below which maps and links are pinned.
    #[arg(long, value_name = "DIR", default_value = super::BPF_DIR)]
    bpf_dir: PathBuf,
    /// If another kube-lottery serves this node, have it hand over.
    #[arg(long)]
    replace: bool,
    /// What the kernel programs log; needs a matching -v to be seen.
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = ProgramLog::Off)]
    ebpf_log_level: ProgramLog,
    /// Log lines as text or JSON.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = log::Format::Text)]
    log_format: log::Format,
    /// Verbosity of the log, as klog has it.
    #[arg(short, long, value_name = "LEVEL", default_value_t = 0)]
    v: u8,
    /// Die before the Nth write to the tables: for tests of restarts.
    #[arg(long, value_name = "N", hide = true)]
    kill_before_write: Option<u32>,
    /// How programs are attached to devices: by links to TCX where the kernel has them, else by
    /// filters of a clsact queueing discipline.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Attach::Auto, hide = true)]
    attach: Attach,
    /// Load this object instead of the one that is built in.
    #[arg(long, value_name = "FILE", hide = true)]
    object: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Attach {
    Auto,
    Tcx,
    Clsact,
}

impl From<Attach> for AttachMode {
    fn from(attach: Attach) -> Self {
        match attach {
            Attach::Auto => Self::Auto,
            Attach::Tcx => Self::Only(Mode::Tcx),
            Attach::Clsact => Self::Only(Mode::Clsact),
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProgramLog {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl From<ProgramLog> for LogLevel {
    fn from(level: ProgramLog) -> Self {
        match level {
            ProgramLog::Off => Self::Off,
            ProgramLog::Error => Self::Error,
            ProgramLog::Warn => Self::Warn,
            ProgramLog::Info => Self::Info,
            ProgramLog::Debug => Self::Debug,
            ProgramLog::Trace => Self::Trace,
        }
    }
}

pub(super) fn execute(args: Args) -> Result<()> {
    log::init(args.log_format, args.v).context("cannot set up logging")?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let result = runtime.block_on(run(args));
    // The thread that attaches may be in the middle of a slow call; nothing is left for it to do.
    runtime.shutdown_background();
    result
}

async fn run(args: Args) -> Result<()> {
    let Configuration {
        config: meaning,
        node_name,
        unread,
    } = configured(&args)?;
    for field in unread {
        warn!("configuration: {field}");
    }
    let given = args
        .node_name
        .as_ref()
        .map(|name| name.trim().to_lowercase());
    let node = given.or(node_name).unwrap_or_else(host_name);
    let stop = CancellationToken::new();
    let reload = signals(stop.clone())?;
    let place = Place::here(&args.bpf_dir)?;
    place.make()?;
    // Held to the end.
    let _lock = if args.replace {
        Lock::replace(&place)?
    } else {
        Lock::take(&place)?
    };
    let options = options(&args, &meaning, place);
    info!(node, manifests = %args.manifests.display(), hz = options.settings.hz,
        cascade_limit = options.settings.cascade_limit, "starting");

    let manifests = Manifests::follow(
        Source::new(args.manifests.clone())
            .allow_empty(args.allow_empty)
            .select(meaning.selectors()),
    )?;
    let Dataplane {
        mut tables,
        programs,
        reader,
        sweeper,
        monitor,
        logger,
        memory,
        floors,
        fresh,
    } = dataplane::load(&options)?;
    say_memory(&memory);
    if let Some(logger) = logger {
        tokio::task::spawn_blocking(|| pump(logger));
    }
    let control = Control {
        socket: ControlSocket::bind(&args.control_socket)?,
        reader,
        monitor,
        events_per_second: args.max_events_per_second,
        facts: Facts {
            node: node.clone(),
            manifests: args.manifests,
            start: Instant::now(),
            hz: options.settings.hz,
            capacities: options.capacities,
        },
    };
    let config = controller::Config {
        manifests,
        node: node.as_str().into(),
        meaning: meaning.clone(),
    };
    tables.kill = KillPoint::new(args.kill_before_write);
    let mut plan = Plan::new(&node, options.capacities.limits).with_config(meaning);
    plan.begin_at(floors);
    plan.adopt(
        tables
            .snapshot()
            .context("cannot read the tables of the former run")?,
    );
    let dataplane = Kernel {
        tables,
        programs,
        fresh,
        sweeper,
        settings: options.settings,
    };
    controller::run(config, plan, dataplane, control, reload, stop).await?;
    info!("stopped");
    Ok(())
}

/// What is configured by the file and by flags of our own.
fn configured(args: &Args) -> Result<Configuration> {
    let mut read = match &args.config {
        Some(file) => read_config(file)?,
        None => Configuration::default(),
    };
    if let Some(bit) = args.reject_bit {
        read.config = read.config.with_reject_bit(bit)?;
    }
    if let Some(policy) = &args.external_ips {
        read.config.external_ips = policy.clone();
    }
    read.config.hide_headless_labelled_services = args.hide_headless_labelled_services;
    Ok(read)
}

/// What a file configures.
pub(super) fn read_config(file: &Path) -> Result<Configuration> {
    let read = std::fs::read_to_string(file).map_err(ConfigError::from);
    read.and_then(|text| Configuration::read(&text))
        .with_context(|| format!("the configuration {} cannot be used", file.display()))
}

fn options(args: &Args, config: &Config, place: Place) -> Options {
    let mut settings = settings::detect();
    settings.cascade_limit = args.cascade_limit;
    settings.masquerade_mark = config.masquerade_mark();
    settings.reject_mark = config.reject_mark();
    settings.hairpin_anywhere = u32::from(config.mode == Compatibility::Iptables);
    Options {
        settings,
        capacities: Capacities {
            limits: Limits::new(args.max_frontends, args.max_endpoints),
            flows: args.max_flows,
            half_open: args.max_half_open,
            fragments: args.max_fragments,
        },
        log_level: args.ebpf_log_level.into(),
        place: Some(place),
        object: args.object.clone(),
        attach: args.attach.into(),
    }
}

/// The name that the kubelet registers a node under, unless it is told another.
pub(super) fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().trim().to_lowercase()
}

/// SIGINT and SIGTERM end the run, SIGHUP has the manifests read again.
fn signals(stop: CancellationToken) -> Result<mpsc::UnboundedReceiver<()>> {
    let install = |kind| signal(kind).context("cannot install a signal handler");
    let (mut interrupt, mut terminate, mut hangup) = (
        install(SignalKind::interrupt())?,
        install(SignalKind::terminate())?,
        install(SignalKind::hangup())?,
    );
    let (reload, reloads) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
                _ = hangup.recv() => {
                    info!("reading all manifests again");
                    reload.send(()).ok();
                }
            }
        }
        stop.cancel();
        // A second signal ends what hangs.
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        warn!("ended by a second signal");
        std::process::exit(1);
    });
    Ok(reloads)
}

#[expect(clippy::cast_precision_loss, reason = "a size for people")]
fn say_memory(memory: &[(String, u64)]) {
    for (map, bytes) in memory {
        debug!(map, bytes, "kernel memory");
    }
    let bytes: u64 = memory.iter().map(|(_, bytes)| bytes).sum();
    let mib = format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    info!(bytes, mib, maps = memory.len(), "kernel memory of all maps");
}

/// Passes on what the programs log, as long as the process lives.
fn pump(mut logger: EbpfLogger<&'static dyn ::log::Log>) {
    loop {
        let mut fds = [PollFd::new(&logger, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) => logger.flush(),
            Err(Errno::INTR) => {}
            Err(error) => return warn!(%error, "the programs' log cannot be read"),
        }
    }
}
