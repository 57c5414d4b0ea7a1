//! One draw: what becomes of the first packet of one flow.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, bail, ensure};
use kube_lottery::netfilter::{self, Judgement, Path};
use proxy_common::net::Proto;

use crate::case::{Entry, Packet, Verdict};
use crate::frame::{ends, first};
use crate::host;
use crate::world::World;

/// `TC_ACT_UNSPEC`: the packet goes on. `TC_ACT_SHOT`: it does not.
const GOES_ON: i32 = -1;
const SHOT: i32 = 2;

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    /// What was done with it.
    pub(crate) verdict: Verdict,
    /// Where it was forwarded to.
    pub(crate) to: Option<SocketAddr>,
    /// Whether it got another source.
    pub(crate) is_masqueraded: bool,
}

impl Fate {
    /// It goes nowhere, or on as it was.
    pub(crate) const fn of(verdict: Verdict) -> Self {
        Self {
            verdict,
            to: None,
            is_masqueraded: false,
        }
    }
}

/// Sends the first packet of a flow with this source port; `own` are the addresses of the node.
pub(crate) fn draw(
    world: &mut World,
    packet: &Packet,
    port: u16,
    own: &BTreeSet<IpAddr>,
) -> Result<Fate> {
    let from = SocketAddr::new(packet.from, port);
    let to = SocketAddr::new(packet.to, packet.port);
    match packet.entry {
        Entry::Host => host::draw(world, packet, from, to, own),
        Entry::Pod | Entry::External => wire(world, packet, from, to, own),
    }
}

/// A packet that comes in by a device.
fn wire(
    world: &World,
    packet: &Packet,
    from: SocketAddr,
    to: SocketAddr,
    own: &BTreeSet<IpAddr>,
) -> Result<Fate> {
    let frame = first(packet.proto, from, to)?;
    let seen = world.trial("tc_in", &frame, 0)?;
    match seen.action {
        SHOT => return Ok(Fate::of(Verdict::Drop)),
        GOES_ON => {}
        other => bail!("tc_in has returned {other}"),
    }
    let (source, destination) = ends(&seen.packet)?;
    ensure!(source == from, "tc_in has changed the source to {source}");
    let is_local = is_local(own, destination.ip());
    let judged = world.rules().judge(&netfilter::Packet {
        path: if is_local { Path::Input } else { Path::Forward },
        destination: destination.ip(),
        is_local,
        proto: Proto::from(packet.proto),
        port: destination.port(),
        mark: seen.mark,
    });
    if destination == to {
        return unchanged(&frame, &seen.packet, judged);
    }
    let is_masqueraded = match judged {
        Judgement::Masquerade(_) => true,
        Judgement::Pass(_) => false,
        Judgement::Drop(_) => return Ok(Fate::of(Verdict::Drop)),
        Judgement::Reject => bail!("a packet that was forwarded is rejected"),
    };
    Ok(Fate {
        verdict: Verdict::Forward,
        to: Some(destination),
        is_masqueraded: is_masqueraded || !is_local && is_hairpin(world, &seen.packet)?,
    })
}

/// What becomes of a packet that no program has translated.
fn unchanged(before: &[u8], after: &[u8], judged: Judgement) -> Result<Fate> {
    ensure!(
        before == after,
        "tc_in has changed something else than the destination"
    );
    Ok(Fate::of(match judged {
        Judgement::Reject => Verdict::Reject,
        Judgement::Drop(_) => Verdict::Drop,
        Judgement::Pass(_) => Verdict::Pass,
        Judgement::Masquerade(_) => bail!("a packet that was left alone is masqueraded"),
    }))
}

/// Whether the packet gets another source where it leaves.
fn is_hairpin(world: &World, frame: &[u8]) -> Result<bool> {
    let (source, destination) = ends(frame)?;
    let left = world.trial("tc_eg", frame, 0)?;
    ensure!(left.action == GOES_ON, "tc_eg has dropped the packet");
    let (source_after, destination_after) = ends(&left.packet)?;
    ensure!(
        destination_after == destination,
        "tc_eg has changed the destination to {destination_after}"
    );
    Ok(source_after.ip() != source.ip())
}

/// Whether an address is the node's.
pub(crate) fn is_local(own: &BTreeSet<IpAddr>, addr: IpAddr) -> bool {
    addr.is_loopback() || own.contains(&addr)
}
