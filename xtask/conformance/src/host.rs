//! Packets of the node's own processes: decided where sockets connect or send, over what the
//! kernel's tables hold.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, bail};
use kube_lottery::netfilter::{self, Judgement, Path};
use proxy_common::abi::{Family, V4, V6};
use proxy_common::datapath::Tables;
use proxy_common::datapath::connect::{Answer, Call, connect};
use proxy_common::datapath::memory::MemoryTables;
use proxy_common::datapath::work::Work;
use proxy_common::net::{Port, Proto};

use crate::case::{Packet, Verdict};
use crate::packet::{Fate, is_local};
use crate::world::World;

/// What becomes of the first packet of a flow of the node.
pub(crate) fn draw(
    world: &mut World,
    packet: &Packet,
    from: SocketAddr,
    to: SocketAddr,
    own: &BTreeSet<IpAddr>,
) -> Result<Fate> {
    let proto = Proto::from(packet.proto);
    let host = world.host();
    let answer = match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(dst)) => {
            ask::<V4>(host, source.into(), dst.into(), to.port(), proto)
        }
        (IpAddr::V6(source), IpAddr::V6(dst)) => {
            ask::<V6>(host, source.into(), dst.into(), to.port(), proto)
        }
        _ => bail!("{from} and {to} are not of one family"),
    };
    if let Some(fate) = answer {
        return Ok(fate);
    }
    // What is left alone at the socket meets the rules as it is.
    let judged = world.rules().judge(&netfilter::Packet {
        path: Path::Output,
        destination: to.ip(),
        is_local: is_local(own, to.ip()),
        proto,
        port: to.port(),
        mark: 0,
    });
    Ok(Fate::of(match judged {
        Judgement::Drop(_) => Verdict::Drop,
        Judgement::Reject => Verdict::Reject,
        Judgement::Pass(_) => Verdict::Pass,
        Judgement::Masquerade(_) => bail!("a packet that was left alone is masqueraded"),
    }))
}

/// What the socket gets, unless it is what it asks for.
fn ask<F: Family>(
    tables: &mut MemoryTables,
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
        Answer::Drop(_) => Some(Fate::of(Verdict::Drop)),
        Answer::Reject => Some(Fate::of(Verdict::Reject)),
        Answer::Rewrite {
            addr,
            port,
            masquerade,
            ..
        } => Some(Fate {
            verdict: Verdict::Forward,
            to: Some(SocketAddr::new(addr.into(), port.host())),
            is_masqueraded: masquerade,
        }),
    }
}
