//! What pinned maps tell when no controller runs: everything but names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use proxy_common::abi::EndpointFlags;
use proxy_common::net::Proto;

use crate::control::api::{Counter, Endpoint, Kind, List, Service};
use crate::control::{Counts, Scope, endpoints as endpoint_list, services as service_list};
use crate::dataplane::pins::Place;
use crate::dataplane::reader::now;
use crate::dataplane::{Reader, settings};
use crate::model::{Family, ObjectName, Protocol};
use crate::netfilter;
use crate::plan::{Condition, EndpointView, PortView, ServiceView};

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

/// The service ports in the maps, each as a Service by its number.
fn read(directory: &Path, scope: &Scope) -> Result<(Vec<ServiceView>, Counts)> {
    let reader = open(directory)?;
    let (sets, frontends) = (reader.sets()?, reader.frontends()?);
    let records = [reader.endpoints(Family::V4)?, reader.endpoints(Family::V6)?];
    let mut views: BTreeMap<u32, ServiceView> = BTreeMap::new();
    for (at, value) in frontends {
        let name = ObjectName::new("-", &format!("#{}", value.service));
        if !scope.includes(&name) {
            continue;
        }
        let view = views.entry(value.service).or_insert_with(|| ServiceView {
            name,
            ports: Vec::new(),
            notices: Vec::new(),
        });
        if let Some(port) = view.ports.first_mut() {
            port.frontends.push(at);
            continue;
        }
        let [v4, v6] = &records;
        let records = match at.family() {
            Family::V4 => v4,
            Family::V6 => v6,
        };
        let (base, count) = (value.inside.base() as usize, value.inside.count() as usize);
        let slots = sets.get(base..base + count).unwrap_or_default().iter();
        let endpoints = slots.filter_map(|slot| {
            let record = records.get(slot.endpoint as usize)?;
            (record.service == value.service).then(|| EndpointView {
                addr: record.addr,
                port: record.port,
                slot: Some(slot.endpoint),
                is_listed: record.flags.has(EndpointFlags::ALIVE),
                is_local: record.flags.has(EndpointFlags::LOCAL),
                condition: Condition::Ready,
                node: None,
                slice: None,
            })
        });
        view.ports.push(PortView {
            name: "".into(),
            protocol: match at.proto {
                Proto::UDP => Protocol::Udp,
                Proto::TCP => Protocol::Tcp,
                _ => Protocol::Sctp,
            },
            family: at.family(),
            number: Some(value.service),
            frontends: vec![at],
            endpoints: endpoints.collect(),
        });
    }
    let counts = Counts::read(&reader, now(settings::detect().hz))?;
    Ok((views.into_values().collect(), counts))
}
