//! Devices as a table.

use std::process::ExitCode;

use anyhow::Result;

use super::output::{self, Column, Format, columns, note, print_object};
use super::{DevicesArgs, View, ask};
use crate::control::Scope;
use crate::control::api::{Device, List};

const COLUMNS: [Column; 7] = [
    ("INDEX", true),
    ("NAME", false),
    ("KIND", false),
    ("CLASS", false),
    ("MODE", false),
    ("STATE", false),
    ("REASON", false),
];

/// Prints the devices.
pub(in crate::cli) fn execute(args: &DevicesArgs) -> Result<ExitCode> {
    let list: List<Device> = match ask(&args.view, "/v1/devices", &Scope::default())? {
        Ok(list) => list,
        Err(code) => return Ok(code),
    };
    print(&list, &args.view)?;
    Ok(ExitCode::SUCCESS)
}

fn print(list: &List<Device>, view: &View) -> Result<()> {
    if print_object(view.output, list)? {
        return Ok(());
    }
    let is_wide = view.output == Format::Wide;
    output::print(&table(&list.items, is_wide, view.no_headers))?;
    for device in &list.items {
        for warning in &device.warnings {
            note(&format!("! {}: {warning}", device.name));
        }
    }
    Ok(())
}

fn table(devices: &[Device], is_wide: bool, no_headers: bool) -> String {
    let mut header = COLUMNS.to_vec();
    if is_wide {
        // Before the one that is of any length.
        header.insert(COLUMNS.len() - 1, ("FRAMING", false));
    }
    let rows = devices.iter().map(|device| row(device, is_wide));
    columns(&header, rows, no_headers)
}

fn row(device: &Device, is_wide: bool) -> Vec<String> {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let mut row = vec![
        device.index.to_string(),
        device.name.clone(),
        device.kind.clone(),
        text(&device.class),
        text(&device.mode),
        device.state.to_string(),
    ];
    if is_wide {
        row.push(text(&device.framing));
    }
    row.push(text(&device.reason));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::api::DeviceState;

    #[test]
    fn a_table_says_of_each_device_what_it_is_and_why() {
        let device = |index, name: &str, state| Device {
            index,
            name: name.into(),
            kind: "veth".into(),
            class: None,
            framing: None,
            mode: None,
            state,
            reason: None,
            warnings: Vec::new(),
        };
        let pod = Device {
            class: Some("pod".into()),
            framing: Some("ethernet".into()),
            mode: Some("tcx".into()),
            ..device(12, "pod2", DeviceState::Attached)
        };
        let other = Device {
            reason: Some("not ours".into()),
            ..device(1, "x", DeviceState::LeftAlone)
        };
        let expected = "\
INDEX  NAME  KIND  CLASS  MODE  STATE       REASON
    1  x     veth  -      -     left-alone  not ours
   12  pod2  veth  pod    tcx   attached    -
";
        assert_eq!(expected, table(&[other.clone(), pod.clone()], false, false));
        let wide = table(&[other, pod], true, true);
        assert!(wide.ends_with("attached    ethernet  -\n"), "{wide}");
    }
}
