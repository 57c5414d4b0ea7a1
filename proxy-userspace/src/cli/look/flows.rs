//! `kube-lottery flows`: the flow table, one row for each flow.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::ValueEnum;
use proxy_common::abi::EventKind;

use super::monitor::{Lines, follow};
use super::output::{self, Column, Format, columns, duration, grouped, note, print_object};
use super::{Common, Namespace, View, ask_for, directory, maps, scope};
use crate::control::api::{Flow, FlowList, FlowState};
use crate::control::{FlowOrder, FlowQuery, Peer, Selection, Wanted};
use crate::model::Protocol;

/// Flags of `flows`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct FlowsArgs {
    #[command(flatten)]
    whose: Whose,
    /// Only flows in this state; all but expired ones if not given.
    #[arg(long, value_enum, value_name = "STATE")]
    state: Option<FlowState>,
    /// Notes of traffic straight to endpoints, and of the node's own, too.
    #[arg(long)]
    notes: bool,
    /// Most flows to show; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    /// The order.
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "service")]
    sort_by: FlowOrder,
    /// New flows and flows that end, as that happens, instead of those that are there.
    #[arg(long, conflicts_with_all = ["state", "notes", "limit", "sort_by", "from_maps"])]
    follow: bool,
    #[command(flatten)]
    common: Common,
}

/// Whose flows or events.
#[derive(Debug, clap::Args)]
pub(super) struct Whose {
    /// Only those of this Service.
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    service: Option<String>,
    #[command(flatten)]
    namespace: Namespace,
    /// Only those of these clients: 10.0.0.1, 10.0.0.0/8, 10.0.0.1:4000, `[fd00::1]:4000` or :4000.
    #[arg(long, value_name = "IP[/LEN][:PORT]")]
    client: Option<Peer>,
    /// Only those that were sent to such an address of a Service.
    #[arg(long, value_name = "IP[/LEN][:PORT]")]
    frontend: Option<Peer>,
    /// Only those that go to such an endpoint.
    #[arg(long, alias = "endpoint", value_name = "IP[/LEN][:PORT]")]
    backend: Option<Peer>,
    /// Only those of this protocol.
    #[arg(long, value_enum, value_name = "PROTOCOL")]
    proto: Option<Transport>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Transport {
    Tcp,
    Udp,
    Sctp,
}

impl Whose {
    pub(super) fn selection(&self) -> Result<Selection> {
        Ok(Selection {
            scope: scope(&self.namespace, self.service.as_deref())?,
            client: self.client,
            frontend: self.frontend,
            endpoint: self.backend,
            protocol: self.proto.map(|proto| match proto {
                Transport::Tcp => Protocol::Tcp,
                Transport::Udp => Protocol::Udp,
                Transport::Sctp => Protocol::Sctp,
            }),
        })
    }
}

const COLUMNS: [Column; 8] = [
    ("PROTO", false),
    ("CLIENT", false),
    ("FRONTEND", false),
    ("ENDPOINT", false),
    ("SERVICE", false),
    ("STATE", false),
    ("IDLE", true),
    ("EXPIRES", true),
];

/// Columns of the wide table beyond those.
const WIDE: [Column; 3] = [("FLAGS", false), ("NODE", false), ("SLOT", true)];

/// Prints flows.
pub(in crate::cli) fn execute(args: &FlowsArgs) -> Result<ExitCode> {
    let view = &args.common.view;
    if args.follow {
        let format = match view.output {
            Format::Table | Format::Wide => Lines::Table,
            Format::Json => Lines::Json,
            Format::Yaml => bail!("--follow prints lines: -o table or -o json"),
        };
        let kinds = [EventKind::New, EventKind::Closed];
        let wanted = Wanted::new(args.whose.selection()?, &kinds);
        return follow(&view.control_socket, &wanted, format);
    }
    let query = FlowQuery {
        selection: args.whose.selection()?,
        state: args.state,
        notes: args.notes,
        limit: args.limit,
        order: args.sort_by,
    };
    let list = match directory(&args.common)? {
        Some(directory) => maps::flows(&directory, &query)?,
        None => match ask_for(view, "/v1/flows", &query.to_query())? {
            Ok(list) => list,
            Err(code) => return Ok(code),
        },
    };
    print(&list, view)?;
    let shown = list.items.len() as u64;
    if shown < list.matched {
        note(&format!(
            "{} of {} flows shown; --limit 0 shows all",
            grouped(shown),
            grouped(list.matched)
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn print(list: &FlowList, view: &View) -> Result<()> {
    if print_object(view.output, list)? {
        return Ok(());
    }
    let is_wide = view.output == Format::Wide;
    output::print(&table(&list.items, is_wide, view.no_headers))
}

fn table(flows: &[Flow], is_wide: bool, no_headers: bool) -> String {
    let mut header = COLUMNS.to_vec();
    if is_wide {
        header.extend(WIDE);
    }
    let rows = flows.iter().map(|flow| row(flow, is_wide));
    columns(&header, rows, no_headers)
}

fn row(flow: &Flow, is_wide: bool) -> Vec<String> {
    let mut row = vec![
        flow.protocol.clone(),
        flow.client.clone(),
        flow.frontend.clone(),
        flow.endpoint.clone(),
        service(
            flow.namespace.as_deref(),
            flow.service.as_deref(),
            flow.port.as_deref(),
        ),
        flow.state.to_string(),
        duration(flow.idle_seconds.into()),
        duration(flow.expires_seconds.into()),
    ];
    if is_wide {
        row.push(flags(flow));
        row.push(flow.node.clone().unwrap_or_default());
        row.push(flow.slot.to_string());
    }
    row
}

/// A service port as one word.
pub(super) fn service(namespace: Option<&str>, name: Option<&str>, port: Option<&str>) -> String {
    let (Some(namespace), Some(name)) = (namespace, name) else {
        return String::new();
    };
    match port {
        Some(port) if !port.is_empty() => format!("{namespace}/{name}:{port}"),
        _ => format!("{namespace}/{name}"),
    }
}

fn flags(flow: &Flow) -> String {
    let mut all = Vec::new();
    all.extend(flow.note.as_ref().map(|note| format!("note:{note}")));
    let is_direct = flow.number == 0 && flow.note.is_none();
    all.extend(is_direct.then(|| "direct".to_owned()));
    all.extend(flow.masquerade.then(|| "masquerade".to_owned()));
    all.extend(flow.hairpin.then(|| "hairpin".to_owned()));
    all.extend(flow.source_port.map(|port| format!("sport:{port}")));
    all.extend((!flow.replied).then(|| "unreplied".to_owned()));
    all.extend(flow.halved.then(|| "half-lost".to_owned()));
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> Flow {
        Flow {
            protocol: "TCP".into(),
            family: "IPv4".into(),
            client: "10.244.1.2:40112".into(),
            frontend: "10.96.0.10:80".into(),
            endpoint: "10.244.2.3:8080".into(),
            namespace: Some("shop".into()),
            service: Some("web".into()),
            port: Some("http".into()),
            number: 3,
            slot: 17,
            node: Some("worker-2".into()),
            state: FlowState::Established,
            replied: true,
            masquerade: false,
            hairpin: false,
            source_port: None,
            halved: false,
            note: None,
            idle_seconds: 4,
            expires_seconds: 86_396,
        }
    }

    #[test]
    fn a_table_has_a_row_for_each_flow() {
        let odd = Flow {
            masquerade: true,
            source_port: Some(61_007),
            replied: false,
            halved: true,
            node: None,
            state: FlowState::HalfOpen,
            port: Some(String::new()),
            ..flow()
        };
        let direct = Flow {
            namespace: None,
            service: None,
            port: None,
            number: 0,
            slot: 0,
            note: Some("direct".into()),
            ..flow()
        };
        let expected = "\
PROTO  CLIENT            FRONTEND       ENDPOINT         SERVICE        STATE        IDLE  EXPIRES  FLAGS                                       NODE      SLOT
TCP    10.244.1.2:40112  10.96.0.10:80  10.244.2.3:8080  shop/web:http  established    4s   23h59m  -                                           worker-2    17
TCP    10.244.1.2:40112  10.96.0.10:80  10.244.2.3:8080  shop/web       half-open      4s   23h59m  masquerade,sport:61007,unreplied,half-lost  -           17
TCP    10.244.1.2:40112  10.96.0.10:80  10.244.2.3:8080  -              established    4s   23h59m  note:direct                                 worker-2     0
";
        let all = [flow(), odd, direct];
        assert_eq!(expected, table(&all, true, false));
        let narrow = table(&all[..1], false, true);
        let expected = "TCP  10.244.1.2:40112  10.96.0.10:80  10.244.2.3:8080  shop/web:http  established  4s  23h59m\n";
        assert_eq!(expected, narrow);
    }
}
