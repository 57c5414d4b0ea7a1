//! Services as a table.

use anyhow::Result;

use super::View;
use super::output::{self, Column, Format, columns, note, print_object};
use crate::control::api::{Frontend, List, Port, Service};

const COLUMNS: [Column; 9] = [
    ("NAMESPACE", false),
    ("NAME", false),
    ("PORT", false),
    ("PROTO", false),
    ("FRONTENDS", false),
    ("READY", true),
    ("PICKS", true),
    ("FLOWS", true),
    ("LOCAL", true),
];

/// Columns of the wide table beyond those.
const WIDE: [Column; 2] = [("FAMILY", false), ("NUMBER", true)];

pub(super) fn print(list: &List<Service>, view: &View) -> Result<()> {
    if print_object(view.output, list)? {
        return Ok(());
    }
    output::print(&table(list, view.output == Format::Wide, view.no_headers))?;
    for service in &list.items {
        for notice in &service.notices {
            note(&format!(
                "! {}/{}: {notice}",
                service.namespace, service.name
            ));
        }
    }
    Ok(())
}

fn table(list: &List<Service>, is_wide: bool, no_headers: bool) -> String {
    let mut header = COLUMNS.to_vec();
    if is_wide {
        header.extend(WIDE);
    }
    let ports = list
        .items
        .iter()
        .flat_map(|service| service.ports.iter().map(move |port| (service, port)));
    let rows = ports.map(|(service, port)| row(service, port, is_wide));
    columns(&header, rows, no_headers)
}

fn row(service: &Service, port: &Port, is_wide: bool) -> Vec<String> {
    let mut row = vec![
        service.namespace.clone(),
        service.name.clone(),
        port.name.clone(),
        port.protocol.clone(),
        frontends(&port.frontends, is_wide),
        format!("{}/{}", port.ready, port.total),
        port.picks.to_string(),
        port.flows.to_string(),
        port.local.to_string(),
    ];
    if is_wide {
        row.push(port.family.clone());
        row.push(
            port.number
                .map_or_else(String::new, |number| number.to_string()),
        );
    }
    row
}

/// The frontends, as many as fit into a line unless all are asked for: a node port is reached at
/// every address of the node. With what they are, where that is not the usual.
fn frontends(all: &[Frontend], is_wide: bool) -> String {
    const FEW: usize = 3;
    let all: Vec<_> = all
        .iter()
        .map(|own| match own.kind.as_deref() {
            None | Some("cluster") => own.address.clone(),
            Some(kind) => format!("{}({kind})", own.address),
        })
        .collect();
    match all.split_at_checked(FEW) {
        Some((few, more)) if !is_wide && !more.is_empty() => {
            format!("{} (+{})", few.join(" "), more.len())
        }
        _ => all.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_frontends_are_counted_unless_all_are_asked_for() {
        let frontend = |address: String| Frontend {
            address,
            kind: Some("cluster".into()),
        };
        let texts: Vec<_> = (1..=5).map(|n| format!("192.0.2.{n}:80")).collect();
        let all: Vec<_> = texts.iter().cloned().map(frontend).collect();
        let few = "192.0.2.1:80 192.0.2.2:80 192.0.2.3:80";
        assert_eq!(few, frontends(&all[..3], false));
        assert_eq!(format!("{few} (+2)"), frontends(&all, false));
        assert_eq!(texts.join(" "), frontends(&all, true));
        assert_eq!("", frontends(&[], false));
    }

    #[test]
    fn what_is_no_cluster_ip_is_named() {
        let node_port = Frontend {
            address: "192.0.2.1:30080".into(),
            kind: Some("node-port".into()),
        };
        assert_eq!("192.0.2.1:30080(node-port)", frontends(&[node_port], false));
    }
}
