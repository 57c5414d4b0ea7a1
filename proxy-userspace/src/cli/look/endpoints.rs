//! Endpoints as a table.

use std::net::SocketAddr;

use anyhow::Result;

use super::View;
use super::output::{self, Column, Format, columns, percent, print_object};
use crate::control::api::{Endpoint, List};

const COLUMNS: [Column; 9] = [
    ("NAMESPACE", false),
    ("SERVICE", false),
    ("PORT", false),
    ("PROTO", false),
    ("ENDPOINT", false),
    ("STATE", false),
    ("PICKS", true),
    ("SHARE", true),
    ("FLOWS", true),
];

/// Columns of the wide table beyond those.
const WIDE: [Column; 5] = [
    ("LOCAL", false),
    ("LISTS", false),
    ("NODE", false),
    ("SLICE", false),
    ("SLOT", true),
];

pub(super) fn print(list: &List<Endpoint>, view: &View) -> Result<()> {
    if print_object(view.output, list)? {
        return Ok(());
    }
    let is_wide = view.output == Format::Wide;
    let mut header = COLUMNS.to_vec();
    if is_wide {
        header.extend(WIDE);
    }
    let rows = list.items.iter().map(|endpoint| row(endpoint, is_wide));
    output::print(&columns(&header, rows, view.no_headers))
}

fn row(endpoint: &Endpoint, is_wide: bool) -> Vec<String> {
    let port = endpoint.target_port;
    let at = match endpoint.address.parse() {
        Ok(address) => SocketAddr::new(address, port).to_string(),
        Err(_) => format!("{}:{port}", endpoint.address),
    };
    let mut row = vec![
        endpoint.namespace.clone(),
        endpoint.service.clone(),
        endpoint.port.clone(),
        endpoint.protocol.clone(),
        at,
        endpoint.state.clone(),
        endpoint.picks.to_string(),
        percent(endpoint.share),
        endpoint.flows.to_string(),
    ];
    if is_wide {
        let is_local = if endpoint.local { "yes" } else { "no" };
        row.push(is_local.to_owned());
        row.push(endpoint.lists.join(","));
        row.push(endpoint.node.clone().unwrap_or_default());
        row.push(endpoint.slice.clone().unwrap_or_default());
        row.push(
            endpoint
                .slot
                .map_or_else(String::new, |slot| slot.to_string()),
        );
    }
    row
}
