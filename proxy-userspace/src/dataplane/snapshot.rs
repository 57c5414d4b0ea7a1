//! Reads back what the tables hold, in the words of the plan.

use std::io;
use std::net::IpAddr;

use proxy_common::abi::bits::WORDS;
use proxy_common::abi::endpoint::Endpoint as _;
use proxy_common::abi::{EndpointKey4, EndpointKey6, Family, FrontendKey4, FrontendKey6, V4, V6};
use proxy_common::net::{Port, Proto};

use super::maps::Elements;
use super::tables::{FamilyTables, Tables};
use crate::plan::{Record, Snapshot, Socket};

impl Tables {
    /// What the tables hold.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        let mut snapshot = Snapshot {
            frontend_bits: words(&self.frontend_bits)?,
            endpoint_bits: words(&self.endpoint_bits)?,
            sources: self.all_sources().map_err(io::Error::other)?,
            detector: Some(self.detector.get(0).map_err(io::Error::other)?),
            ..Snapshot::default()
        };
        read(&self.v4, &mut snapshot)?;
        read(&self.v6, &mut snapshot)?;
        // After the frontends: whoever looks on while a controller works finds what they lead to.
        snapshot.sets = self.sets.read();
        Ok(snapshot)
    }
}

fn words(bits: &Elements<u64>) -> io::Result<Vec<u64>> {
    let mut words = vec![0; WORDS as usize];
    for (index, value) in bits.read()? {
        if let Some(word) = words.get_mut(index as usize) {
            *word = value;
        }
    }
    Ok(words)
}

fn read<F: Readable>(tables: &FamilyTables<F>, snapshot: &mut Snapshot) -> io::Result<()> {
    let frontends = tables.frontends.read()?;
    let frontends = frontends.iter().map(|(key, value)| {
        let (addr, port, proto) = F::frontend(key);
        (socket::<F>(addr, port, proto), *value)
    });
    snapshot.frontends.extend(frontends);
    let endpoints = tables.endpoints.read()?;
    // A slot that was never used belongs to nobody.
    let used = endpoints.iter().filter(|(_, record)| record.service() != 0);
    snapshot.records.extend(used.map(|(slot, record)| {
        let record = Record {
            addr: record.addr().into(),
            port: record.port().host(),
            flags: record.flags(),
            generation: record.generation(),
            service: record.service(),
        };
        (*slot, record)
    }));
    let reverse = tables.reverse.read()?;
    snapshot.reverse.extend(reverse.iter().map(|(key, doors)| {
        let (addr, port, proto) = F::endpoint(key);
        let doors = (0..).map_while(|index| F::frontend_at(doors, index));
        let doors = doors.map(|(addr, port)| (addr.into(), port.host()));
        (socket::<F>(addr, port, proto), doors.collect())
    }));
    Ok(())
}

fn socket<F: Readable>(addr: F::Addr, port: Port, proto: Proto) -> Socket {
    Socket {
        addr: addr.into(),
        port: port.host(),
        proto,
    }
}

/// The fields of a family's keys.
trait Readable: Family<Addr: Into<IpAddr>> {
    fn frontend(key: &Self::FrontendKey) -> (Self::Addr, Port, Proto);
    fn endpoint(key: &Self::EndpointKey) -> (Self::Addr, Port, Proto);
}

impl Readable for V4 {
    fn frontend(key: &FrontendKey4) -> (Self::Addr, Port, Proto) {
        (key.addr, key.port, key.proto)
    }

    fn endpoint(key: &EndpointKey4) -> (Self::Addr, Port, Proto) {
        (key.addr, key.port, key.proto)
    }
}

impl Readable for V6 {
    fn frontend(key: &FrontendKey6) -> (Self::Addr, Port, Proto) {
        (key.addr, key.port, key.proto)
    }

    fn endpoint(key: &EndpointKey6) -> (Self::Addr, Port, Proto) {
        (key.addr, key.port, key.proto)
    }
}
