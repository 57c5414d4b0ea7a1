//! The status on one screen.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;

use super::output::{coloured, duration, grouped, print, print_object};
use super::{FINDING, NOT_RUNNING, StatusArgs, ask, directory, maps};
use crate::control::Scope;
use crate::control::api::{Change, Counter, Map, Status};

/// So many lines about what is wrong, and so many names of devices, fit on the screen.
const SHOWN: usize = 10;

/// Prints the status; 0 if all is well, 1 if something is not, 2 if nobody answers.
pub(in crate::cli) fn execute(args: &StatusArgs) -> Result<ExitCode> {
    if let Some(directory) = directory(&args.common)? {
        let counters = maps::counters(&directory)?;
        if !print_object(args.common.view.output, &counters)? {
            print(&lines(&packets(&counters)))?;
        }
        return Ok(ExitCode::from(NOT_RUNNING));
    }
    let scope = Scope {
        flows: args.flows,
        ..Scope::default()
    };
    let status: Status = match ask(&args.common.view, "/v1/status", &scope)? {
        Ok(status) => status,
        Err(code) => return Ok(code),
    };
    if !print_object(args.common.view.output, &status)? {
        print(&screen(&status))?;
    }
    Ok(if status.healthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FINDING)
    })
}

fn screen(status: &Status) -> String {
    let Status {
        manifests,
        tables,
        devices,
        ..
    } = status;
    let word = if status.healthy {
        "healthy"
    } else {
        "degraded"
    };
    let head = format!(
        "kube-lottery {}   node {}   {}   up {}   pid {}\n",
        status.version,
        status.node,
        coloured(word, status.healthy),
        duration(status.uptime_seconds),
        status.pid,
    );
    let mut all = vec![(
        "Manifests",
        format!(
            "{}   {} files   {} objects",
            manifests.path, manifests.files, manifests.objects
        ),
    )];
    all.push((
        "Tables",
        format!(
            "{} services   {} frontends   {} endpoints{}",
            grouped(tables.services as u64),
            grouped(tables.frontends as u64),
            grouped(tables.endpoints as u64),
            tables.last_change.as_ref().map_or_else(String::new, change),
        ),
    ));
    all.push(("Devices", named(&devices.attached)));
    all.extend(room(&status.maps).into_iter().map(|text| ("Room", text)));
    all.extend(packets(&status.counters));
    all.extend(wrong(status).into_iter().map(|text| ("Wrong", text)));
    head + &lines(&all)
}

/// Lines with their labels; one that is the same as above is left out.
fn lines(all: &[(&str, String)]) -> String {
    let mut text = String::new();
    let mut above = "";
    for (label, line) in all {
        let shown = if *label == above { "" } else { label };
        // Writing to a string does not fail.
        writeln!(text, "{shown:<11}{line}").ok();
        above = label;
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "a time for people")]
fn change(last: &Change) -> String {
    format!(
        "   last change {} ago in {:.1} ms",
        duration(last.seconds_ago),
        last.micros as f64 / 1000.0
    )
}

fn named(devices: &[String]) -> String {
    let mut text = match devices {
        [] => return "none".to_owned(),
        some => some
            .iter()
            .take(SHOWN)
            .map(|name| &**name)
            .collect::<Vec<_>>()
            .join(" "),
    };
    if devices.len() > SHOWN {
        write!(text, " and {} more", devices.len() - SHOWN).ok();
    }
    text
}

/// How full the maps are, one line for each kind, IPv4 before IPv6.
fn room(maps: &[Map]) -> Vec<String> {
    let known = maps.iter().filter_map(|map| Some((map, map.entries?)));
    let mut all: Vec<(&str, String)> = Vec::new();
    for (map, entries) in known {
        let text = format!(
            "{} {} of {}",
            map.family,
            grouped(entries),
            grouped(map.max_entries)
        );
        match all.last_mut() {
            Some((name, line)) if *name == map.name => {
                write!(line, "   {text}").ok();
            }
            _ => all.push((&map.name, format!("{:<10} {text}", map.name))),
        }
    }
    all.into_iter().map(|(_, line)| line).collect()
}

/// What happened to packets: flows in one line, each reason for a drop that was met in one.
fn packets(counters: &[Counter]) -> Vec<(&'static str, String)> {
    let is_drop = |counter: &&Counter| counter.name.starts_with("drop-");
    let others = counters.iter().filter(|counter| !is_drop(counter));
    let mut flows: Vec<_> = others
        .filter(|counter| counter.value > 0 || counter.name == "new-flow")
        .map(|counter| format!("{} {}", counter.name, grouped(counter.value)))
        .collect();
    if flows.is_empty() {
        flows.push("none".to_owned());
    }
    let mut all = vec![("Packets", flows.join("   "))];
    let met = counters
        .iter()
        .filter(is_drop)
        .filter(|counter| counter.value > 0);
    all.extend(met.map(|counter| {
        let reason = counter.name.trim_start_matches("drop-");
        let meaning = counter.meaning.trim_start_matches("dropped: ");
        (
            "Drops",
            format!(
                "{reason} {}   at {}, {}: {meaning}",
                grouped(counter.value),
                counter.hook,
                counter.direction
            ),
        )
    }));
    if all.len() == 1 {
        all.push(("Drops", "none".to_owned()));
    }
    all
}

fn wrong(status: &Status) -> Vec<String> {
    let mut all = status.manifests.problems.clone();
    let notices = status.tables.notices.iter();
    all.extend(
        notices.map(|notice| format!("{}/{}: {}", notice.namespace, notice.name, notice.message)),
    );
    let refused = status.devices.refused.iter();
    all.extend(refused.map(|device| format!("{} is not attached: {}", device.name, device.reason)));
    let impaired = status.devices.impaired.iter();
    all.extend(impaired.map(|device| format!("{}: {}", device.name, device.reason)));
    if let Some(trouble) = &status.netfilter.trouble {
        all.push(format!("nftables rules not in force: {trouble}"));
    }
    if status.tables.refused > 0 {
        all.push(format!(
            "the kernel refuses {} table entries; they are tried again",
            status.tables.refused
        ));
    }
    if all.len() > SHOWN {
        let more = all.len() - (SHOWN - 1);
        all.truncate(SHOWN - 1);
        all.push(format!("and {more} more (-o json has all)"));
    }
    if all.is_empty() {
        all.push("nothing".to_owned());
    }
    all
}
