//! `kube-lottery status`, `services`, `endpoints`, `devices`, `flows`, `drops`, `monitor`, `explain`
//! and `why`: looking at a running controller, or at what one left or would do.

mod devices;
mod drops;
mod endpoints;
mod explain;
mod fairness;
mod flows;
mod maps;
mod monitor;
mod output;
mod services;
mod status;
mod top;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::de::DeserializeOwned;

use crate::control::{self, ClientError, Scope};
use output::{Format, note};

pub(super) use devices::execute as devices;
pub(super) use drops::{DropsArgs, execute as drops};
pub(super) use explain::{ExplainArgs, WhyArgs, explain, why};
pub(super) use fairness::{FairnessArgs, execute as fairness};
pub(super) use flows::{FlowsArgs, execute as flows};
pub(super) use monitor::{MonitorArgs, execute as monitor};
pub(super) use status::execute as status;
pub(super) use top::{TopArgs, execute as top};

/// Where to look, and how to print.
#[derive(Debug, clap::Args)]
struct View {
    /// Where the controller answers.
    #[arg(long, value_name = "PATH", default_value = control::DEFAULT_SOCKET)]
    control_socket: PathBuf,
    /// How to print.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    output: Format,
    /// Leave out the line of headers.
    #[arg(long)]
    no_headers: bool,
}

/// Flags of every command that can do without a controller.
#[derive(Debug, clap::Args)]
pub(super) struct Common {
    #[command(flatten)]
    view: View,
    /// Read the maps that are pinned in a directory or below it, for when no controller runs.
    /// Names are not known then.
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, require_equals = true,
        default_missing_value = maps::ROOT)]
    from_maps: Option<PathBuf>,
}

/// Flags of `status`.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    common: Common,
    /// Count the entries of the flow tables too, which takes a while where there are many.
    #[arg(long)]
    flows: bool,
}

/// Flags of `devices`.
#[derive(Debug, clap::Args)]
pub(super) struct DevicesArgs {
    #[command(flatten)]
    view: View,
}

/// Flags of `services`.
#[derive(Debug, clap::Args)]
pub(super) struct ServicesArgs {
    /// Only this Service.
    #[arg(value_name = "[NAMESPACE/]NAME")]
    service: Option<String>,
    #[command(flatten)]
    namespace: Namespace,
    #[command(flatten)]
    common: Common,
}

/// Flags of `endpoints`.
#[derive(Debug, clap::Args)]
pub(super) struct EndpointsArgs {
    /// Only those of this Service.
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    service: Option<String>,
    #[command(flatten)]
    namespace: Namespace,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Namespace {
    /// Only this namespace.
    #[arg(
        short,
        long,
        value_name = "NAMESPACE",
        conflicts_with = "all_namespaces"
    )]
    namespace: Option<String>,
    /// All namespaces, as without -n.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

/// Prints Services.
pub(super) fn services(args: &ServicesArgs) -> Result<ExitCode> {
    let scope = scope(&args.namespace, args.service.as_deref())?;
    let list = match directory(&args.common)? {
        Some(directory) => maps::services(&directory, &scope)?,
        None => match ask(&args.common.view, "/v1/services", &scope)? {
            Ok(list) => list,
            Err(code) => return Ok(code),
        },
    };
    services::print(&list, &args.common.view)?;
    Ok(found(list.items.is_empty(), &scope))
}

/// Prints endpoints.
pub(super) fn endpoints(args: &EndpointsArgs) -> Result<ExitCode> {
    let scope = scope(&args.namespace, args.service.as_deref())?;
    let list = match directory(&args.common)? {
        Some(directory) => maps::endpoints(&directory, &scope)?,
        None => match ask(&args.common.view, "/v1/endpoints", &scope)? {
            Ok(list) => list,
            Err(code) => return Ok(code),
        },
    };
    endpoints::print(&list, &args.common.view)?;
    Ok(ExitCode::SUCCESS)
}

/// What the controller says, or the exit code where it says nothing.
fn ask<T: DeserializeOwned>(
    view: &View,
    route: &str,
    scope: &Scope,
) -> Result<Result<T, ExitCode>> {
    ask_for(view, route, &scope.to_query())
}

/// The same with any query.
fn ask_for<T: DeserializeOwned>(
    view: &View,
    route: &str,
    query: &str,
) -> Result<Result<T, ExitCode>> {
    let target = match query {
        "" => route.to_owned(),
        query => format!("{route}?{query}"),
    };
    ask_or(view, &target, "--from-maps reads what one left")
}

/// The same; where nobody answers, `instead` says what to do.
fn ask_or<T: DeserializeOwned>(
    view: &View,
    target: &str,
    instead: &str,
) -> Result<Result<T, ExitCode>> {
    ask_within(view, target, instead, Duration::ZERO)
}

/// The same where the controller takes so long on purpose.
fn ask_within<T: DeserializeOwned>(
    view: &View,
    target: &str,
    instead: &str,
    time: Duration,
) -> Result<Result<T, ExitCode>> {
    match control::get_within(&view.control_socket, target, time) {
        Ok(answer) => Ok(Ok(answer)),
        Err(error @ ClientError::NotRunning { .. }) => {
            let error = anyhow::Error::new(error);
            note(&format!("error: {error:#}; {instead}"));
            Ok(Err(ExitCode::from(NOT_RUNNING)))
        }
        Err(error) => Err(error).context("cannot ask the controller"),
    }
}

/// What to do where only a controller can answer.
const START: &str = "start one with `kube-lottery run`";

/// The exit code where nobody answers.
const NOT_RUNNING: u8 = 2;
/// The exit code where something is not as it should be.
const FINDING: u8 = 1;

fn found(is_empty: bool, scope: &Scope) -> ExitCode {
    match &scope.name {
        Some(name) if is_empty => {
            let namespace = scope.namespace.as_deref().unwrap_or_default();
            note(&format!("there is no Service {namespace}/{name}"));
            ExitCode::from(FINDING)
        }
        _ => ExitCode::SUCCESS,
    }
}

/// The Services that the command line names.
fn scope(namespace: &Namespace, service: Option<&str>) -> Result<Scope> {
    let mut scope = Scope {
        namespace: namespace.namespace.clone(),
        ..Scope::default()
    };
    match service.map(|service| service.split_once('/').ok_or(service)) {
        None => {}
        Some(Ok((within, name))) => {
            if scope
                .namespace
                .as_deref()
                .is_some_and(|other| other != within)
            {
                bail!("-n names another namespace than {within}/{name}");
            }
            scope.namespace = Some(within.to_owned());
            scope.name = Some(name.to_owned());
        }
        Some(Err(name)) => {
            scope.namespace.get_or_insert_with(|| "default".to_owned());
            scope.name = Some(name.to_owned());
        }
    }
    Ok(scope)
}

/// Where to read pins, if that is asked for.
fn directory(common: &Common) -> Result<Option<PathBuf>> {
    let Some(root) = &common.from_maps else {
        return Ok(None);
    };
    let directory = maps::only_directory(root)?;
    note(&format!("read from the maps in {}", directory.display()));
    Ok(Some(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(namespace: Option<&str>, service: Option<&str>) -> Option<(String, String)> {
        let namespace = Namespace {
            namespace: namespace.map(str::to_owned),
            all_namespaces: false,
        };
        let scope = scope(&namespace, service).ok()?;
        let text = |part: Option<String>| part.unwrap_or_else(|| "*".to_owned());
        Some((text(scope.namespace), text(scope.name)))
    }

    #[test]
    fn a_service_is_named_with_or_without_its_namespace() {
        let is = |namespace: &str, name: &str| Some((namespace.to_owned(), name.to_owned()));
        assert_eq!(is("*", "*"), of(None, None));
        assert_eq!(is("shop", "*"), of(Some("shop"), None));
        assert_eq!(is("default", "web"), of(None, Some("web")));
        assert_eq!(is("shop", "web"), of(Some("shop"), Some("web")));
        assert_eq!(is("shop", "web"), of(None, Some("shop/web")));
        assert_eq!(None, of(Some("other"), Some("shop/web")));
    }
}
