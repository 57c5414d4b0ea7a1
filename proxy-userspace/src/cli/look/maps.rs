//! What pinned maps tell when no controller runs: everything but names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use proxy_common::abi::EndpointFlags;
use proxy_common::net::Proto;

use crate::control::api::{Counter, Endpoint, FlowList, Kind, List, Service};
use crate::control::{
    Counts, FlowQuery, Scope, endpoints as endpoint_list, services as service_list, unnamed_flows,
};
use crate::dataplane::pins::Place;
use crate::dataplane::reader::now;
use crate::dataplane::{Reader, settings};
use crate::model::{Family, ObjectName, Protocol};
use crate::netfilter;
use crate::plan::{Condition, EndpointView, FrontendView, PortView, Record, ServiceView};

/// Below it maps are pinned.
pub(super) const ROOT: &str = "/sys/fs/bpf/kube-lottery";

/// A map that every directory of pins has.
const TELLTALE: &str = "FRONTENDS4";

/// The directory with pinned maps that belongs to this network namespace, or else the only one
/// below a root.
pub(super) fn only_directory(root: &Path) -> Result<PathBuf> {
    let own = Place::here(root).map(|place| place.pins());
    if let Ok(own) = own
        && own.join(TELLTALE).exists()
    {
        return Ok(own);
    }
    let mut found = Vec::new();
    search(root, &mut found, 0);
    found.sort();
    match &*found {
        [] => bail!("no maps are pinned below {}", root.display()),
        [only] => Ok(only.clone()),
        several => {
            let several: Vec<_> = several
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            bail!(
                "say which maps to read, --from-maps={}",
                several.join(" or ")
            )
        }
    }
}

fn search(directory: &Path, found: &mut Vec<PathBuf>, depth: usize) {
    if directory.join(TELLTALE).exists() {
        found.push(directory.to_path_buf());
    } else if depth < 3 {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                search(&entry.path(), found, depth + 1);
            }
        }
    }
}

pub(super) fn services(directory: &Path, scope: &Scope) -> Result<List<Service>> {
    let (views, counts) = read(directory, scope)?;
    Ok(List {
        kind: Kind::new("ServiceList"),
        items: service_list(&views, &counts),
    })
}

pub(super) fn endpoints(directory: &Path, scope: &Scope) -> Result<List<Endpoint>> {
    let (views, counts) = read(directory, scope)?;
    Ok(List {
        kind: Kind::new("EndpointList"),
        items: endpoint_list(&views, &counts),
    })
}

pub(super) fn counters(directory: &Path) -> Result<Vec<Counter>> {
    let all = open(directory)?.counters()?;
    let mut all: Vec<_> = all.into_iter().map(Counter::from).collect();
    // The maps of another network namespace can be read from here, its nftables cannot.
    let is_here = Place::here(Path::new(ROOT)).is_ok_and(|place| place.pins() == directory);
    if is_here && let Ok(counts) = netfilter::counts() {
        all.extend(counts.into_iter().map(Counter::from));
    }
    Ok(all)
}

fn open(directory: &Path) -> Result<Reader> {
    Reader::pinned(directory)
        .with_context(|| format!("cannot read the maps in {}", directory.display()))
}

pub(super) fn flows(directory: &Path, query: &FlowQuery) -> Result<FlowList> {
    let reader = open(directory)?;
    let now = now(settings::detect().hz);
    Ok(unnamed_flows(&reader, now, query)?)
}

/// The service ports in the maps, each as a Service by its number, and what was counted of them.
fn read(directory: &Path, scope: &Scope) -> Result<(Vec<ServiceView>, Counts)> {
    let reader = open(directory)?;
    let frontends = reader.frontends()?;
    let mut endpoints: BTreeMap<u32, Vec<EndpointView>> = BTreeMap::new();
    for family in Family::ALL {
        let records = reader.endpoints(family)?;
        for (slot, record) in (0..).zip(records) {
            if record.flags.has(EndpointFlags::HELD) {
                let own = endpoints.entry(record.service).or_default();
                own.push(endpoint(slot, &record));
            }
        }
    }
    let mut views: BTreeMap<u32, ServiceView> = BTreeMap::new();
    for (at, value) in frontends {
        let name = ObjectName::new("-", &format!("#{}", value.service));
        // A whole address is no place to reach anything at.
        if at.proto == Proto(0) || !scope.includes(&name) {
            continue;
        }
        let view = views.entry(value.service).or_insert_with(|| ServiceView {
            name,
            ports: Vec::new(),
            notices: Vec::new(),
        });
        let frontend = FrontendView { at, kind: None };
        if let Some(port) = view.ports.first_mut() {
            port.frontends.push(frontend);
            continue;
        }
        view.ports.push(PortView {
            name: "".into(),
            protocol: match at.proto {
                Proto::UDP => Protocol::Udp,
                Proto::TCP => Protocol::Tcp,
                _ => Protocol::Sctp,
            },
            family: at.family(),
            number: Some(value.service),
            frontends: vec![frontend],
            endpoints: endpoints.remove(&value.service).unwrap_or_default(),
        });
    }
    let counts = Counts::read(&reader, now(settings::detect().hz))?;
    Ok((views.into_values().collect(), counts))
}

/// What its record tells of an endpoint.
fn endpoint(slot: u32, record: &Record) -> EndpointView {
    let is_listed = record.flags.has(EndpointFlags::ALIVE);
    EndpointView {
        addr: record.addr,
        port: record.port,
        slot: Some(slot),
        is_listed,
        lists: EndpointView::lists(record.flags),
        is_local: record.flags.has(EndpointFlags::LOCAL),
        condition: if is_listed {
            Condition::Ready
        } else {
            Condition::Serving
        },
        node: None,
        slice: None,
    }
}
