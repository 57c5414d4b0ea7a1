//! `kube-lottery monitor`, and `flows --follow`: what happens, as it happens.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use proxy_common::abi::EventKind;

use super::flows::{Whose, service};
use super::output::{self, note};
use super::{NOT_RUNNING, control};
use crate::control::api::{Event, Line, Lost};
use crate::control::{ClientError, Wanted};

/// Flags of `monitor`.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag by itself")]
pub(in crate::cli) struct MonitorArgs {
    /// New flows; with others of these four, those as well, and without any all.
    #[arg(long)]
    new: bool,
    /// Flows that end.
    #[arg(long)]
    closed: bool,
    /// Packets that are dropped, or to be rejected.
    #[arg(long)]
    drops: bool,
    /// Flows of which a table has lost a half, or was made to forget.
    #[arg(long)]
    evicted: bool,
    #[command(flatten)]
    whose: Whose,
    /// How to print: lines for people, or a JSON object a line.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Lines::Table)]
    output: Lines,
    /// Where the controller answers.
    #[arg(long, value_name = "PATH", default_value = control::DEFAULT_SOCKET)]
    control_socket: std::path::PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Lines {
    Table,
    Json,
}

/// Prints events until interrupted.
pub(in crate::cli) fn execute(args: &MonitorArgs) -> Result<ExitCode> {
    let kinds = [
        (args.new, EventKind::New),
        (args.closed, EventKind::Closed),
        (args.drops, EventKind::Dropped),
        (args.evicted, EventKind::Evicted),
    ];
    let kinds: Vec<_> = kinds
        .into_iter()
        .filter_map(|(is_wanted, kind)| is_wanted.then_some(kind))
        .collect();
    let wanted = Wanted::new(args.whose.selection()?, &kinds);
    follow(&args.control_socket, &wanted, args.output)
}

/// Prints what is wanted, until interrupted or nobody reads it.
pub(super) fn follow(socket: &std::path::Path, wanted: &Wanted, format: Lines) -> Result<ExitCode> {
    let target = format!("/v1/monitor?{}", wanted.to_query());
    let mut result = Ok(());
    let followed = control::follow(socket, &target, |line| {
        if line.is_empty() {
            note("listening until interrupted");
            return true;
        }
        let printed = match (format, serde_json::from_str(line)) {
            (Lines::Json, _) => output::print_line(line),
            (Lines::Table, Ok(line)) => output::print_line(&text(&line)),
            // Of a newer controller.
            (Lines::Table, Err(_)) => Ok(true),
        };
        match printed {
            Ok(goes_on) => goes_on,
            Err(error) => {
                result = Err(error);
                false
            }
        }
    });
    result?;
    match followed {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error @ (ClientError::NotRunning { .. } | ClientError::Ended)) => {
            note(&format!("error: {:#}", anyhow::Error::new(error)));
            Ok(ExitCode::from(NOT_RUNNING))
        }
        Err(error) => Err(error).context("cannot ask the controller"),
    }
}

fn text(line: &Line) -> String {
    match line {
        Line::Event(event) => of_event(event),
        Line::Lost(lost) => of_losses(lost),
    }
}

/// The time of a day from a date and time, to the millisecond.
fn time(text: &str) -> &str {
    text.get(11..23).unwrap_or(text)
}

fn of_event(event: &Event) -> String {
    let word = match (&*event.event, &*event.reason) {
        ("dropped", "reject") => "REJECT",
        ("dropped", _) => "DROP",
        ("new", _) => "NEW",
        ("closed", _) => "CLOSED",
        _ => "EVICTED",
    };
    let mut text = format!(
        "{} {word:<7} {:<16} {}",
        time(&event.time),
        event.reason,
        event.hook
    );
    // Writing to a string does not fail.
    if let Some(device) = &event.device {
        write!(text, " {device}").ok();
    } else if let Some(index) = event.device_index {
        write!(text, " #{index}").ok();
    }
    let unknown = "?".to_owned();
    write!(
        text,
        "  {} -> {}/{}",
        event.client,
        event.frontend.as_ref().unwrap_or(&unknown),
        event.protocol
    )
    .ok();
    if let Some(endpoint) = &event.endpoint {
        write!(text, " -> {endpoint}").ok();
    }
    let name = service(
        event.namespace.as_deref(),
        event.service.as_deref(),
        event.port.as_deref(),
    );
    if !name.is_empty() {
        write!(text, "  {name}").ok();
    }
    for (is_so, word) in [(event.masquerade, "masquerade"), (event.hairpin, "hairpin")] {
        if is_so {
            write!(text, "  {word}").ok();
        }
    }
    if let Some(port) = event.source_port {
        write!(text, "  sport:{port}").ok();
    }
    text
}

fn of_losses(lost: &Lost) -> String {
    let parts = [
        (lost.suppressed, "suppressed"),
        (lost.ring_full, "ring buffer full"),
        (lost.unread, "not read in time"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let parts = parts.map(|(count, why)| format!("(+{count} in {}s, {why})", lost.seconds));
    let parts: Vec<_> = parts.collect();
    format!("{} {}", time(&lost.time), parts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::api::API_VERSION;

    fn event() -> Event {
        Event {
            api_version: API_VERSION.into(),
            time: "2026-03-01T12:44:01.113042Z".into(),
            event: "new".into(),
            reason: "opened".into(),
            hook: "tc ingress".into(),
            device_index: Some(7),
            device: Some("eth0".into()),
            protocol: "TCP".into(),
            family: "IPv4".into(),
            client: "203.0.113.9:51514".into(),
            frontend: Some("192.0.2.7:31080".into()),
            endpoint: Some("10.244.2.3:8080".into()),
            namespace: Some("shop".into()),
            service: Some("cart".into()),
            port: Some("http".into()),
            number: 3,
            slot: Some(17),
            node: None,
            masquerade: true,
            hairpin: false,
            source_port: Some(61_000),
        }
    }

    #[test]
    fn an_event_is_one_line() {
        assert_eq!(
            "12:44:01.113 NEW     opened           tc ingress eth0  203.0.113.9:51514 -> \
             192.0.2.7:31080/TCP -> 10.244.2.3:8080  shop/cart:http  masquerade  sport:61000",
            text(&Line::Event(event().into()))
        );
        let drop = Event {
            event: "dropped".into(),
            reason: "no-endpoint".into(),
            device: None,
            endpoint: None,
            masquerade: false,
            source_port: None,
            ..event()
        };
        assert_eq!(
            "12:44:01.113 DROP    no-endpoint      tc ingress #7  203.0.113.9:51514 -> \
             192.0.2.7:31080/TCP  shop/cart:http",
            text(&Line::Event(drop.clone().into()))
        );
        let swept = Event {
            event: "closed".into(),
            reason: "expired".into(),
            hook: "sweep".into(),
            device_index: None,
            ..drop
        };
        assert!(
            text(&Line::Event(swept.into()))
                .starts_with("12:44:01.113 CLOSED  expired          sweep  203")
        );
        let lost = Lost {
            api_version: API_VERSION.into(),
            time: "2026-03-01T12:44:02.000000Z".into(),
            seconds: 1,
            suppressed: 212,
            ring_full: 0,
            unread: 3,
        };
        assert_eq!(
            "12:44:02.000 (+212 in 1s, suppressed) (+3 in 1s, not read in time)",
            text(&Line::Lost(lost))
        );
    }
}
