//! The data path on the host, over tables in plain memory.

use std::io;
use std::net::{IpAddr, SocketAddr};

use proxy_common::abi::{Counter, Family, V4, V6};
use proxy_common::datapath::connect::{Answer, Call, connect};
use proxy_common::datapath::memory::{Fib, MemoryPacket, MemoryRoom, MemoryTables};
use proxy_common::datapath::work::Work;
use proxy_common::datapath::{Tables, Verdict as Said, egress, ingress};
use proxy_common::net::{Port, Proto, eth};

use super::draw::{DataPath, DrawError, Fate, GOES_ON, SHOT, Shot, untranslated};
use super::question::Verdict;
use crate::dataplane::Trial;

/// Index of the loopback device, by which packets of test runs come in.
pub(super) const LOOPBACK: u32 = 1;

/// The data path on the host.
pub struct HostPath {
    /// What it runs on.
    pub tables: MemoryTables,
    room: MemoryRoom,
}

impl HostPath {
    /// One that runs on these tables.
    pub fn new(tables: MemoryTables) -> Self {
        Self {
            tables,
            room: MemoryRoom::default(),
        }
    }

    /// What was counted so far.
    pub(super) fn counted(&self) -> Vec<Counter> {
        let all = Counter::ALL.iter().copied();
        all.filter(|counter| self.tables.counted(*counter) > 0)
            .collect()
    }

    fn run(&mut self, frame: &[u8], hook: Hook) -> Trial {
        let mut packet = MemoryPacket::frame(frame).at(LOOPBACK, &Fib::new());
        let (tables, room) = (&mut self.tables, &mut self.room);
        let said = match hook {
            Hook::Ingress => ingress(&mut packet, tables, room, eth::LEN),
            Hook::Egress => egress(&mut packet, tables, room, eth::LEN),
        };
        Trial {
            action: if matches!(said, Said::Drop(_)) {
                SHOT
            } else {
                GOES_ON
            },
            packet: packet.bytes().to_vec(),
            mark: packet.mark_of(),
        }
    }
}

#[derive(Clone, Copy)]
enum Hook {
    Ingress,
    Egress,
}

impl DataPath for HostPath {
    fn ingress(&mut self, frame: &[u8]) -> io::Result<Trial> {
        Ok(self.run(frame, Hook::Ingress))
    }

    fn egress(&mut self, frame: &[u8]) -> io::Result<Trial> {
        Ok(self.run(frame, Hook::Egress))
    }

    fn host(&mut self) -> &mut MemoryTables {
        &mut self.tables
    }
}

/// What becomes of the first packet of a flow of the node's own: decided where sockets connect or
/// send.
pub(super) fn call(tables: &mut MemoryTables, shot: &Shot<'_>) -> Result<Fate, DrawError> {
    let proto = Proto::from(shot.proto);
    let port = shot.to.port();
    let answer = match (shot.from.ip(), shot.to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(dst)) => {
            ask::<V4>(tables, shot.from, source.into(), dst.into(), port, proto)
        }
        (IpAddr::V6(source), IpAddr::V6(dst)) => {
            ask::<V6>(tables, shot.from, source.into(), dst.into(), port, proto)
        }
        _ => {
            let (from, to) = (shot.from, shot.to);
            return DrawError::odd(format!("{from} and {to} are not of one family"));
        }
    };
    if let Some(fate) = answer {
        return Ok(fate);
    }
    // What is left alone at the socket meets the rules as it is.
    let judged = shot.judge(shot.to, 0);
    Ok(Fate {
        judged: Some(judged),
        ..Fate::of(untranslated(judged)?, shot.from)
    })
}

/// What the socket gets, unless it is what it asks for.
fn ask<F: Family>(
    tables: &mut MemoryTables,
    from: SocketAddr,
    source: F::Addr,
    dst: F::Addr,
    port: u16,
    proto: Proto,
) -> Option<Fate>
where
    MemoryTables: Tables<F>,
    F::Addr: Into<IpAddr>,
{
    let call = Call {
        source: Some(source),
        dst,
        port: Port::new(port),
        proto,
    };
    match connect(tables, &mut Work::<F>::empty(), &call) {
        Answer::Pass => None,
        Answer::Drop(reason) => Some(Fate {
            counter: Some(reason),
            ..Fate::of(Verdict::Drop, from)
        }),
        Answer::Reject => Some(Fate::of(Verdict::Reject, from)),
        Answer::Rewrite {
            addr,
            port,
            masquerade,
            ..
        } => {
            let to = SocketAddr::new(addr.into(), port.host());
            Some(Fate {
                to: Some(to),
                is_masqueraded: masquerade,
                is_hairpin: masquerade && to.ip() == from.ip(),
                ..Fate::of(Verdict::Forward, from)
            })
        }
    }
}
