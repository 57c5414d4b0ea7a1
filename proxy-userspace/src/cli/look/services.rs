//! Services as a table.

use anyhow::Result;

use super::View;
use super::output::{self, Column, Format, columns, note, print_object};
use crate::control::api::{List, Port, Service};

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
        frontends(port, is_wide),
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

/// The frontends, with what they are where that is not the usual, and as many as fit into a line
/// unless all are asked for: a node port is reached at every address of the node.
fn frontends(port: &Port, is_wide: bool) -> String {
    const FEW: usize = 3;
    let all = port.frontends.iter().map(|own| match own.kind.as_deref() {
        None | Some("cluster") => own.address.clone(),
        Some(kind) => format!("{}({kind})", own.address),
    });
    let all: Vec<_> = all.collect();
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
    use crate::control::api::Frontend;

    fn port(count: usize) -> Port {
        let all = (1..=count).map(|n| Frontend {
            address: format!("192.0.2.{n}:80"),
            kind: Some(if n == 1 { "cluster" } else { "node-port" }.to_owned()),
        });
        Port {
            name: String::new(),
            protocol: String::new(),
            family: String::new(),
            number: None,
            frontends: all.collect(),
            ready: 0,
            total: 0,
            local: 0,
            picks: 0,
            flows: 0,
        }
    }

    #[test]
    fn many_frontends_are_counted_unless_all_are_asked_for() {
        let few = "192.0.2.1:80 192.0.2.2:80(node-port) 192.0.2.3:80(node-port)";
        assert_eq!(few, frontends(&port(3), false));
        assert_eq!(format!("{few} (+2)"), frontends(&port(5), false));
        let all = format!("{few} 192.0.2.4:80(node-port) 192.0.2.5:80(node-port)");
        assert_eq!(all, frontends(&port(5), true));
        assert_eq!("", frontends(&port(0), false));
    }
}
