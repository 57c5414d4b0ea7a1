//! What the tables of a former run hold, and what follows from it for the next plan.

use std::net::IpAddr;

use proxy_common::abi::{Detector, Frontend, Slot};

use super::op::{Record, Socket};
use crate::model::IpNet;

/// What the tables hold.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// All frontends.
    pub frontends: Vec<(Socket, Frontend)>,
    /// All endpoint records that were ever written, with their slots.
    pub records: Vec<(u32, Record)>,
    /// The set array.
    pub sets: Vec<Slot>,
    /// The frontends of endpoints.
    pub reverse: Vec<(Socket, Vec<(IpAddr, u16)>)>,
    /// Source ranges, with the numbers of the service ports that they belong to.
    pub sources: Vec<(u32, IpNet)>,
    /// Who is inside.
    pub detector: Option<Detector>,
    /// Words of the bitmap of frontends.
    pub frontend_bits: Vec<u64>,
    /// Words of the bitmap of endpoints.
    pub endpoint_bits: Vec<u64>,
}

/// Where numbers begin, so that flows of former runs mean nobody else by theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floors {
    /// The first number that a service port may get.
    pub service: u32,
    /// The generation of slots that were never used.
    pub generation: u32,
}

impl Snapshot {
    /// The first service port number that nothing in the tables mentions.
    pub(super) fn next_service(&self) -> u32 {
        let frontends = self.frontends.iter().map(|(_, value)| value.service);
        let records = self.records.iter().map(|(_, record)| record.service);
        let slots = self.sets.iter().map(|slot| slot.service);
        let sources = self.sources.iter().map(|(service, _)| *service);
        let largest = frontends.chain(records).chain(slots).chain(sources).max();
        largest.unwrap_or_default().saturating_add(1)
    }
}
