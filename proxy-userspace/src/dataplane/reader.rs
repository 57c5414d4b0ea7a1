//! Reads the maps, and only reads them: for the control socket of a running controller, by
//! descriptors of its own, and for commands that look at pins when no controller runs.

mod rows;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::path::Path;

use aya::Ebpf;
use aya::maps::{Map, MapData, MapError};
use proxy_common::abi::flow::{Flow as _, FlowKey as _};
use proxy_common::abi::{
    Counter, EndpointFlags, Family as AbiFamily, Frontend, FrontendKey4, FrontendKey6, Kind, Tier,
    V4, V6,
};
use proxy_common::abi::{Endpoint4, Endpoint6};
use proxy_common::datapath::lifetime::is_over;
use proxy_common::net::{Port, Proto};
use thiserror::Error;

pub use super::clock::now;
use super::maps::Counters;
use super::syscall::Batch;
use crate::model::Family;
use crate::plan::{Record, Socket};

pub use rows::FlowRow;

/// Why a map cannot be read.
#[derive(Debug, Error)]
#[error("cannot read map {map}")]
pub struct ReadError {
    map: String,
    source: MapError,
}

/// All maps that are worth reading.
pub struct Reader {
    v4: FamilyReader<V4>,
    v6: FamilyReader<V6>,
    counters: Counters,
}

struct FamilyReader<F: AbiFamily> {
    frontends: Batch<F::FrontendKey, Frontend>,
    endpoints: Batch<u32, F::Endpoint>,
    picks: Batch<u32, u64>,
    flows: Batch<F::FlowKey, F::Flow>,
    half_open: Batch<F::FlowKey, F::Flow>,
}

/// Live flows, each counted once.
#[derive(Debug, Default)]
pub struct Flows {
    /// By service port number and where the endpoint listens.
    pub by_endpoint: HashMap<(u32, SocketAddr), u64>,
    /// Entries of each family in the table of established flows, and of those that are not.
    pub entries: [(u64, u64); 2],
}

impl Reader {
    /// Reads the maps that `open` opens by name.
    pub fn new(mut open: impl FnMut(&str) -> Result<MapData, MapError>) -> Result<Self, ReadError> {
        let open = &mut open;
        Ok(Self {
            v4: FamilyReader::new(open, "4")?,
            v6: FamilyReader::new(open, "6")?,
            counters: named("COUNTERS", |name| {
                Counters::new(Map::PerCpuArray(open(name)?))
            })?,
        })
    }

    /// Reads the maps of a loaded object.
    pub(super) fn of(ebpf: &Ebpf) -> Result<Self, ReadError> {
        Self::new(|name| match ebpf.map(name) {
            Some(
                Map::Array(data)
                | Map::HashMap(data)
                | Map::LruHashMap(data)
                | Map::PerCpuArray(data),
            ) => {
                let fd = data.fd().as_fd().try_clone_to_owned();
                MapData::from_fd(fd.map_err(MapError::IoError)?)
            }
            _ => Err(MapError::InvalidName { name: name.into() }),
        })
    }

    /// Reads the maps that are pinned in a directory under their names.
    pub fn pinned(directory: &Path) -> Result<Self, ReadError> {
        Self::new(|name| MapData::from_pin(directory.join(name)))
    }

    /// What the programs counted.
    pub fn counters(&self) -> Result<Vec<(Counter, u64)>, ReadError> {
        let all = Counter::ALL.iter();
        named("COUNTERS", |_| {
            all.map(|&counter| Ok((counter, self.counters.get(counter)?)))
                .collect()
        })
    }

    /// New flows of each endpoint slot of a family.
    pub fn picks(&self, family: Family) -> Result<Vec<u64>, ReadError> {
        let picks = match family {
            Family::V4 => &self.v4.picks,
            Family::V6 => &self.v6.picks,
        };
        let all = read("PICKS", picks)?;
        Ok(all.into_iter().map(|(_, count)| count).collect())
    }

    /// The flows that are not over at `now`, by the clock of the programs.
    pub fn flows(&self, now: u32) -> Result<Flows, ReadError> {
        let mut flows = Flows::default();
        let [v4, v6] = [
            self.v4.flows(now, &mut flows)?,
            self.v6.flows(now, &mut flows)?,
        ];
        flows.entries = [v4, v6];
        Ok(flows)
    }

    /// All frontends.
    pub fn frontends(&self) -> Result<Vec<(Socket, Frontend)>, ReadError> {
        let v4 = read("FRONTENDS4", &self.v4.frontends)?.into_iter();
        let v6 = read("FRONTENDS6", &self.v6.frontends)?.into_iter();
        let v4 = v4.map(
            |(
                FrontendKey4 {
                    addr, port, proto, ..
                },
                value,
            )| { (socket(addr, port, proto), value) },
        );
        let v6 = v6.map(
            |(
                FrontendKey6 {
                    addr, port, proto, ..
                },
                value,
            )| { (socket(addr, port, proto), value) },
        );
        let mut all: Vec<_> = v4.chain(v6).collect();
        all.sort_unstable_by_key(|(at, _)| *at);
        Ok(all)
    }

    /// All endpoint records of a family.
    pub fn endpoints(&self, family: Family) -> Result<Vec<Record>, ReadError> {
        match family {
            Family::V4 => {
                let all = read("ENDPOINTS4", &self.v4.endpoints)?.into_iter();
                let flags = |record: &Endpoint4| record.flags;
                Ok(all.map(|(_, own)| record(&own, flags(&own))).collect())
            }
            Family::V6 => {
                let all = read("ENDPOINTS6", &self.v6.endpoints)?.into_iter();
                let flags = |record: &Endpoint6| record.flags;
                Ok(all.map(|(_, own)| record(&own, flags(&own))).collect())
            }
        }
    }
}

impl<F: AbiFamily> FamilyReader<F>
where
    F::Addr: Into<IpAddr>,
{
    fn new(
        open: &mut impl FnMut(&str) -> Result<MapData, MapError>,
        suffix: &str,
    ) -> Result<Self, ReadError> {
        let name = |base: &str| format!("{base}{suffix}");
        Ok(Self {
            frontends: batch(open, &name("FRONTENDS"))?,
            endpoints: batch(open, &name("ENDPOINTS"))?,
            picks: batch(open, &name("PICKS"))?,
            flows: batch(open, &name("FLOWS"))?,
            half_open: batch(open, &name("HALF"))?,
        })
    }

    /// Counts the flows of both tables; returns how many entries those have.
    fn flows(&self, now: u32, flows: &mut Flows) -> Result<(u64, u64), ReadError> {
        let established = read("FLOWS", &self.flows)?;
        let half_open = read("HALF", &self.half_open)?;
        let tiers = [
            (Tier::Established, &established),
            (Tier::HalfOpen, &half_open),
        ];
        for (tier, halves) in tiers {
            for (key, half) in halves {
                let state = half.state();
                // Of the halves of a flow, one only turns a frontend into an endpoint.
                if state.marks.kind() != Kind::DNAT || is_over(key.proto(), tier, state, now) {
                    continue;
                }
                let at = SocketAddr::new(half.new_dst().into(), state.new_dport.host());
                *flows.by_endpoint.entry((state.service, at)).or_default() += 1;
            }
        }
        Ok((established.len() as u64, half_open.len() as u64))
    }
}

fn record<E: proxy_common::abi::endpoint::Endpoint>(own: &E, flags: EndpointFlags) -> Record
where
    E::Addr: Into<IpAddr>,
{
    Record {
        addr: own.addr().into(),
        port: own.port().host(),
        flags,
        generation: own.generation(),
        service: own.service(),
    }
}

fn socket(addr: impl Into<IpAddr>, port: Port, proto: Proto) -> Socket {
    Socket {
        addr: addr.into(),
        port: port.host(),
        proto,
    }
}

fn batch<K: bytemuck::Pod, V: bytemuck::Pod>(
    open: &mut impl FnMut(&str) -> Result<MapData, MapError>,
    name: &str,
) -> Result<Batch<K, V>, ReadError> {
    named(name, |name| Batch::new(&open(name)?))
}

fn read<K: bytemuck::Pod, V: bytemuck::Pod>(
    name: &str,
    batch: &Batch<K, V>,
) -> Result<Vec<(K, V)>, ReadError> {
    named(name, |_| batch.read().map_err(MapError::IoError))
}

fn named<T>(name: &str, act: impl FnOnce(&str) -> Result<T, MapError>) -> Result<T, ReadError> {
    act(name).map_err(|source| ReadError {
        map: name.to_owned(),
        source,
    })
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        Self::other(error)
    }
}
