//! `kube-lottery explain` and `why`.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use super::output::{self, note, print_object};
use super::{FINDING, NOT_RUNNING, View, ask_or};
use crate::cli::run::{host_name, read_config};
use crate::config::Configuration;
use crate::control::api::explain::{Explanation, Why};
use crate::explain::{Entry, Offline, Question, Run, Verdict, WhyQuestion};
use crate::model::Protocol;

/// Flags of `explain`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ExplainArgs {
    /// Where the packet comes from; IPv6 with a port in brackets.
    #[arg(value_name = "SRC[:PORT]")]
    source: String,
    /// Where it is sent to; IPv6 in brackets.
    #[arg(value_name = "DST:PORT")]
    destination: String,
    /// Its protocol.
    #[arg(long, value_enum, ignore_case = true, default_value_t = Proto::Tcp)]
    proto: Proto,
    /// How it comes to this node; told by its source if not given.
    #[arg(long = "in", value_enum, value_name = "FROM")]
    entry: Option<From>,
    /// Where the data path runs without a controller.
    #[arg(long, value_enum, requires = "manifests", default_value_t = DataPath::Auto)]
    data_path: DataPath,
    #[command(flatten)]
    offline: OfflineArgs,
    #[command(flatten)]
    view: View,
}

/// Flags of `why`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct WhyArgs {
    /// Address and port; IPv6 in brackets.
    #[arg(value_name = "ADDRESS:PORT")]
    address: String,
    /// Protocol.
    #[arg(long, value_enum, ignore_case = true, default_value_t = Proto::Tcp)]
    proto: Proto,
    /// Who wants to reach it, to be held against source ranges.
    #[arg(long, value_name = "ADDRESS")]
    from: Option<String>,
    #[command(flatten)]
    offline: OfflineArgs,
    #[command(flatten)]
    view: View,
}

/// Flags for those who have no controller.
#[derive(Debug, clap::Args)]
struct OfflineArgs {
    /// Plan from these manifests in this process, without a controller.
    #[arg(long, value_name = "PATH")]
    manifests: Option<PathBuf>,
    /// Name of the node's Node object; the host name if not given.
    #[arg(long, value_name = "NAME", requires = "manifests")]
    node: Option<String>,
    /// File with a `KubeProxyConfiguration`.
    #[arg(long, value_name = "FILE", requires = "manifests")]
    config: Option<PathBuf>,
    /// Addresses of the node's interfaces, with commas between them; those of its Node object if
    /// not given.
    #[arg(
        long,
        value_name = "ADDRESSES",
        value_delimiter = ',',
        requires = "manifests"
    )]
    node_addresses: Vec<IpAddr>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Proto {
    Tcp,
    Udp,
    Sctp,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum From {
    /// From a pod of this node.
    Pod,
    /// From a process of this node.
    Host,
    /// From outside.
    External,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DataPath {
    /// In the kernel where that is allowed, else on the host.
    Auto,
    /// The programs in the kernel, in an instance that is attached to nothing.
    Kernel,
    /// The same code in this process.
    Host,
}

impl std::convert::From<Proto> for Protocol {
    fn from(proto: Proto) -> Self {
        match proto {
            Proto::Tcp => Self::Tcp,
            Proto::Udp => Self::Udp,
            Proto::Sctp => Self::Sctp,
        }
    }
}

impl std::convert::From<From> for Entry {
    fn from(entry: From) -> Self {
        match entry {
            From::Pod => Self::Pod,
            From::Host => Self::Host,
            From::External => Self::External,
        }
    }
}

impl OfflineArgs {
    /// The node as it is planned from manifests, if that is asked for.
    fn read(&self) -> Result<Option<Offline>> {
        let Some(manifests) = &self.manifests else {
            return Ok(None);
        };
        let Configuration {
            config, node_name, ..
        } = match &self.config {
            Some(file) => read_config(file)?,
            None => Configuration::default(),
        };
        let node = self.node.as_ref().map(|node| node.trim().to_lowercase());
        let node = node.or(node_name).unwrap_or_else(host_name);
        let offline = Offline::read(manifests.clone(), &node, config, &self.node_addresses)?;
        for problem in &offline.problems {
            note(&format!("not used: {problem}"));
        }
        Ok(Some(offline))
    }
}

/// What to do where no controller answers.
const INSTEAD: &str = "--manifests plans without one";

/// Explains a packet.
pub(in crate::cli) fn explain(args: &ExplainArgs) -> Result<ExitCode> {
    let entry = args.entry.map(Entry::from);
    let question = Question::parse(&args.source, &args.destination, args.proto.into(), entry);
    let question = match question {
        Ok(question) => question,
        Err(error) => return Ok(misused(&error.into())),
    };
    let all = match args.offline.read() {
        Ok(Some(offline)) => {
            let run = match args.data_path {
                DataPath::Auto => Run::Any,
                DataPath::Kernel => Run::Kernel,
                DataPath::Host => Run::Host,
            };
            let scene = offline.sight().scene(question)?;
            let explained = scene.explain(run, &mut None);
            explained.context("cannot explain the packet")?
        }
        Ok(None) => {
            let target = format!("/v1/explain?{}", question.to_query());
            match ask_or::<Explanation>(&args.view, &target, INSTEAD) {
                Ok(Ok(all)) => all,
                Ok(Err(code)) => return Ok(code),
                Err(error) => return Ok(misused(&error)),
            }
        }
        Err(error) => return Ok(misused(&error)),
    };
    if !print_object(args.view.output, &all)? {
        output::print(&explained(&all))?;
        if let Some(reason) = &all.data_path_note {
            note(&format!("decided on the host, not in the kernel: {reason}"));
        }
    }
    Ok(code(all.outcome.verdict == Verdict::Forward))
}

/// Says which Service an address and port belong to.
pub(in crate::cli) fn why(args: &WhyArgs) -> Result<ExitCode> {
    let from = args.from.as_deref();
    let question = match WhyQuestion::parse(&args.address, args.proto.into(), from) {
        Ok(question) => question,
        Err(error) => return Ok(misused(&error.into())),
    };
    let all = match args.offline.read() {
        Ok(Some(offline)) => offline.sight().why(&question),
        Ok(None) => {
            let target = format!("/v1/why?{}", question.to_query());
            match ask_or::<Why>(&args.view, &target, INSTEAD) {
                Ok(Ok(all)) => all,
                Ok(Err(code)) => return Ok(code),
                Err(error) => return Ok(misused(&error)),
            }
        }
        Err(error) => return Ok(misused(&error)),
    };
    if !print_object(args.view.output, &all)? {
        output::print(&answered(&all))?;
    }
    Ok(code(all.served))
}

/// Says what cannot be asked, or not here.
fn misused(error: &anyhow::Error) -> ExitCode {
    note(&format!("error: {error:#}"));
    ExitCode::from(NOT_RUNNING)
}

fn code(is_well: bool) -> ExitCode {
    if is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FINDING)
    }
}

/// Width of the longest name of a step.
const NAME: usize = 10;

/// The steps, numbered.
pub(super) fn explained(all: &Explanation) -> String {
    let packet = &all.packet;
    let mut text = format!(
        "{} {} -> {}   node {}, mode {}, data path: {}\n\n",
        packet.protocol, packet.source, packet.destination, all.node, all.mode, all.data_path
    );
    for (index, step) in all.steps.iter().enumerate() {
        // Writing to a string cannot fail.
        writeln!(
            text,
            "{:>2}  {:<NAME$}  {}",
            index + 1,
            step.name,
            step.text
        )
        .ok();
        for line in &step.lines {
            writeln!(text, "    {:<NAME$}  {line}", "").ok();
        }
    }
    text.push('\n');
    text.push_str(&verdict(all));
    text.push('\n');
    text
}

/// The last line.
fn verdict(all: &Explanation) -> String {
    let outcome = &all.outcome;
    let end = match (&outcome.endpoint, &outcome.decided_by) {
        (Some(endpoint), Some(by)) if by == "lottery" => {
            let n = all.lottery.as_ref().map_or(0, |own| own.endpoints);
            format!(" to one of {n} endpoints, this time {endpoint}")
        }
        (Some(endpoint), _) => format!(" to {endpoint}"),
        (None, _) => String::new(),
    };
    let source = match (outcome.verdict, outcome.hairpin, outcome.masquerade) {
        (Verdict::Forward, true, _) => ", a hairpin",
        (Verdict::Forward, _, true) => ", masqueraded",
        (Verdict::Forward, ..) => ", source kept",
        _ => "",
    };
    let asked = match (all.packet.entry, outcome.verdict) {
        (_, Verdict::Pass) | (Entry::Pod | Entry::External, _) => "",
        (Entry::Host, _) => " (what the socket would get)",
    };
    format!("{}{end}{source}{asked}", outcome.verdict.name())
}

/// The reason, with what to do.
pub(super) fn answered(all: &Why) -> String {
    let mut text = format!("{}: {}\n", all.reason, all.message);
    for detail in &all.details {
        writeln!(text, "  {detail}").ok();
    }
    if let Some(advice) = &all.advice {
        writeln!(text, "  => {advice}").ok();
    }
    text
}
