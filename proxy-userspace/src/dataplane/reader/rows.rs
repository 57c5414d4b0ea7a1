//! The flow tables as one row for each flow.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

use proxy_common::abi::flow::Flow as _;
use proxy_common::abi::{Family as AbiFamily, FlowFlags, FlowState, Kind, State, Tier};
use proxy_common::datapath::flow::Path;
use proxy_common::datapath::lifetime::{is_over, kept_for};
use proxy_common::net::{Port, Proto};

use super::{FamilyReader, ReadError, Reader, named};
use crate::dataplane::syscall::Batch;

/// A flow map of a family.
type FlowMap<F> = Batch<<F as AbiFamily>::FlowKey, <F as AbiFamily>::Flow>;

/// A flow, or a note of traffic that is no Service's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRow {
    /// Transport protocol.
    pub proto: Proto,
    /// Where its client sends from.
    pub client: SocketAddr,
    /// Where its client sends to.
    pub frontend: SocketAddr,
    /// Where its packets go.
    pub endpoint: SocketAddr,
    /// The port that the endpoint sees the client send from.
    pub source_port: u16,
    /// Number of the service port; 0 for traffic that is no Service's.
    pub service: u32,
    /// Index of the endpoint's slot.
    pub slot: u32,
    /// [`Kind::PASS`] and [`Kind::OWN`] are notes, all else is a flow.
    pub kind: Kind,
    /// Where it stands.
    pub tier: Tier,
    /// What it has been through.
    pub state: State,
    /// What was decided of it.
    pub flags: FlowFlags,
    /// Seconds since its last packet, a few seconds coarse.
    pub idle: u32,
    /// Seconds until the table forgets it, if no packet comes.
    pub left: u32,
    /// Whether it counts no more, for its time is over or it was closed.
    pub is_over: bool,
    /// Whether the client's half is lost: its next packet will bring that back.
    pub is_halved: bool,
}

impl FlowRow {
    /// Whether it is a note, which changes nothing in its packets.
    pub const fn is_note(&self) -> bool {
        matches!(self.kind, Kind::PASS | Kind::OWN)
    }

    fn new<F: AbiFamily>(path: &Path<F>, tier: Tier, half: &FlowState, now: u32) -> Self
    where
        F::Addr: Into<IpAddr>,
    {
        let at = |addr: F::Addr, port: Port| SocketAddr::new(addr.into(), port.host());
        let proto = path.proto();
        let idle = now.saturating_sub(half.last_seen);
        Self {
            proto,
            client: at(path.client, path.client_port),
            frontend: at(path.vip, path.vip_port),
            endpoint: at(path.endpoint, path.endpoint_port),
            source_port: path.sport.host(),
            service: path.service,
            slot: path.slot,
            kind: half.marks.kind(),
            tier,
            state: half.marks.state(),
            flags: path.flags,
            idle,
            left: kept_for(proto, tier, half, false).saturating_sub(idle),
            is_over: is_over(proto, tier, half, now),
            is_halved: half.marks.kind() == Kind::UNDNAT,
        }
    }
}

impl Reader {
    /// Gives `take` every flow that is `wanted`, once, as it is at `now` by the clock of the
    /// programs. What changes meanwhile may be missed, and one of which only the endpoint's half is
    /// left comes last.
    pub fn each_flow(
        &self,
        now: u32,
        mut wanted: impl FnMut(&FlowRow) -> bool,
        mut take: impl FnMut(FlowRow),
    ) -> Result<(), ReadError> {
        self.v4.each_flow(now, &mut wanted, &mut take)?;
        self.v6.each_flow(now, &mut wanted, &mut take)
    }
}

impl<F: AbiFamily> FamilyReader<F>
where
    F::Addr: Into<IpAddr>,
{
    fn each_flow(
        &self,
        now: u32,
        wanted: &mut impl FnMut(&FlowRow) -> bool,
        take: &mut impl FnMut(FlowRow),
    ) -> Result<(), ReadError> {
        let mut known = HashSet::new();
        let mut path = Path::<F>::empty();
        // What is in both tables is on its way to the first, and what says what will be put in the
        // place of another has a key of its own: by the key of the half that packets find, each
        // flow is one.
        for (tier, map) in self.tiers() {
            walk(map, |key, half| {
                let kind = half.state().marks.kind();
                match kind {
                    Kind::DNAT | Kind::OWN => path.read_forward(&key, &half),
                    Kind::PASS => path.read_reverse(&key, &half),
                    _ => return,
                }
                let row = FlowRow::new(&path, tier, half.state(), now);
                if kind == Kind::DNAT && !known.insert(path.key(Tier::HalfOpen, Kind::DNAT)) {
                    return;
                }
                if wanted(&row) {
                    take(row);
                }
            })?;
        }
        // Whose client's half is lost. What was opened after the walk above looks the same, so it is
        // looked for once more.
        for (tier, map) in self.tiers() {
            walk(map, |key, half| {
                if half.state().marks.kind() != Kind::UNDNAT {
                    return;
                }
                path.read_reverse(&key, &half);
                let client = path.key(Tier::HalfOpen, Kind::DNAT);
                if known.contains(&client) {
                    return;
                }
                let row = FlowRow::new(&path, tier, half.state(), now);
                if wanted(&row) && known.insert(client) && !self.has(&client) {
                    take(row);
                }
            })?;
        }
        Ok(())
    }

    const fn tiers(&self) -> [(Tier, &FlowMap<F>); 2] {
        [
            (Tier::Established, &self.flows),
            (Tier::HalfOpen, &self.half_open),
        ]
    }

    fn has(&self, key: &F::FlowKey) -> bool {
        let mut tiers = self.tiers().into_iter();
        tiers.any(|(_, map)| matches!(map.get(key), Ok(Some(_))))
    }
}

fn walk<K: bytemuck::Pod, V: bytemuck::Pod>(
    map: &Batch<K, V>,
    mut take: impl FnMut(K, V),
) -> Result<(), ReadError> {
    let walked = map.walk(|key, value| {
        take(key, value);
        Ok::<_, io::Error>(())
    });
    named("FLOWS", |_| walked.map_err(aya::maps::MapError::IoError))
}
