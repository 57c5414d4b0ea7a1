//! A packet and its tables in one family.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use proxy_common::abi::endpoint::Endpoint as _;
use proxy_common::abi::flow::{Flow as _, FlowKey as _};
use proxy_common::abi::{Affinity, EndpointSet, Frontend, FrontendFlags, Hook, Kind, Origin, Tier};
use proxy_common::datapath::Tables;
use proxy_common::datapath::lifetime::is_over;
use proxy_common::datapath::memory::{MemoryTables, Stored};
use proxy_common::datapath::origin::{host_origin, origin_of};
use proxy_common::datapath::verdict::Step;
use proxy_common::datapath::work::{Part, Work};
use proxy_common::net::{Address as _, Port, Proto};

use super::answer::one_in;
use super::draw::{DrawError, Fate, draw};
use super::excerpt::{Packet, TIERS};
use super::host::{HostPath, LOOPBACK};
use super::question::Entry;
use super::scene::Scene;
use crate::control::api::explain::{
    ExplainedAffinity, ExplainedEndpoint, ExplainedFlow, ExplainedRanges,
};
use crate::dataplane::apply::Layout;

/// A packet and its tables in one family.
pub(super) struct View<'a, F: Stored> {
    scene: &'a Scene,
    tables: &'a MemoryTables,
    packet: Packet<F>,
    frontend: Option<Frontend>,
}

impl<'a, F> View<'a, F>
where
    F: Stored<Addr: Into<IpAddr>> + Layout,
{
    pub(super) fn new(scene: &'a Scene) -> Self {
        // It is of the family that is asked about.
        let addr = |addr| F::addr(addr).unwrap_or_else(bytemuck::Zeroable::zeroed);
        let packet = Packet::<F> {
            src: addr(scene.question.src),
            dst: addr(scene.question.dst.ip()),
            sport: Port::new(scene.sport),
            dport: Port::new(scene.question.dst.port()),
            proto: Proto::from(scene.question.proto),
        };
        Self {
            scene,
            tables: &scene.tables,
            packet,
            frontend: F::maps(&scene.tables)
                .frontends
                .get(&packet.frontend())
                .copied(),
        }
    }

    fn work(&self) -> Work<F> {
        let mut work = Work::<F>::empty();
        let (src, dst) = (self.packet.src, self.packet.dst.unique());
        let ports = (self.packet.sport, self.packet.dport);
        work.key
            .fill((&src, &dst), ports, self.packet.proto, Hook::INGRESS);
        work.device = LOOPBACK;
        work.event.now = self.tables.now;
        work
    }

    pub(super) fn origin(&self) -> Origin {
        match self.scene.entry {
            Entry::Host => host_origin(self.tables, &self.work(), true),
            Entry::Pod | Entry::External => origin_of(self.tables, &self.work()),
        }
    }

    pub(super) fn ranges(&self) -> Option<ExplainedRanges> {
        let frontend = self.frontend?;
        if !frontend.flags.has(FrontendFlags::FILTERED) {
            return None;
        }
        let sources = &self.scene.port()?.sources;
        Some(ExplainedRanges {
            ranges: sources.iter().map(ToString::to_string).collect(),
            allowed: Tables::<F>::is_in_ranges(self.tables, frontend.service, self.packet.src),
        })
    }

    /// What becomes of a new flow to each endpoint of the packet's set, by its place in the set:
    /// the data path itself tells, with a set that has no other.
    pub(super) fn each(&self, origin: Origin) -> Result<Vec<(SocketAddr, Fate)>, DrawError> {
        let Some(frontend) = self.frontend else {
            return Ok(Vec::new());
        };
        let set = frontend.set(origin);
        let mut path = HostPath::new(self.tables.clone());
        let mut each = Vec::with_capacity(set.count() as usize);
        for index in 0..set.count() {
            let one = EndpointSet::new(set.base() + index, 1);
            let maps = F::maps_mut(&mut path.tables);
            maps.flows.clear();
            maps.half_open.clear();
            maps.affinity.clear();
            let one = Frontend {
                inside: one,
                outside: one,
                ..frontend
            };
            maps.frontends.insert(self.packet.frontend(), one);
            let at = self.at(set.base() + index);
            each.push((at, draw(&mut path, &self.scene.shot())?));
        }
        Ok(each)
    }

    /// Where the endpoint of a slot of the set array listens.
    fn at(&self, index: u32) -> SocketAddr {
        let slot = self.tables.sets.get(index as usize);
        self.listens(slot.map_or(0, |slot| slot.endpoint))
    }

    fn listens(&self, index: u32) -> SocketAddr {
        let endpoint = Tables::<F>::endpoint(self.tables, index);
        endpoint.map_or_else(
            || SocketAddr::new(self.packet.dst.into(), 0),
            |own| SocketAddr::new(own.addr().into(), own.port().host()),
        )
    }

    pub(super) fn endpoints(
        &self,
        origin: Origin,
        each: &[(SocketAddr, Fate)],
    ) -> Vec<ExplainedEndpoint> {
        let fates: HashMap<_, _> = each.iter().copied().collect();
        let Some(port) = self.scene.port() else {
            return Vec::new();
        };
        let list = port.list(origin);
        let explained = port.endpoints.iter().map(|own| {
            let at = SocketAddr::new(own.addr, own.port);
            let fate = fates.get(&at);
            let standing = own.standing(list);
            let (reason, because) = match standing {
                None => ("nobody", "no endpoint is used at this address"),
                Some(standing) if standing.is_in() != fate.is_some() => (
                    "no-room",
                    "it should take part, but the tables do not have it",
                ),
                Some(standing) => (standing.name(), standing.text()),
            };
            ExplainedEndpoint {
                address: at.to_string(),
                node: own.node.as_deref().map(str::to_owned),
                local: own.is_local,
                state: own.condition.name().to_owned(),
                for_zones: own.for_zones.iter().map(ToString::to_string).collect(),
                for_nodes: own.for_nodes.iter().map(ToString::to_string).collect(),
                is_in: fate.is_some(),
                reason: reason.to_owned(),
                because: because.to_owned(),
                probability: if fate.is_some() {
                    one_in(each.len())
                } else {
                    0.0
                },
                masquerade: fate.is_some_and(|fate| fate.is_masqueraded),
                hairpin: fate.is_some_and(|fate| fate.is_hairpin),
            }
        });
        explained.collect()
    }

    pub(super) fn affinity(&self, origin: Origin) -> Option<ExplainedAffinity> {
        let frontend = self.frontend.filter(|own| own.affinity_timeout != 0)?;
        let key = F::affinity_key(frontend.service, self.packet.src);
        let known: Option<Affinity> = F::maps(self.tables).affinity.get(&key).copied();
        let timeout = frontend.affinity_timeout;
        let age = known.map(|own| self.tables.now.saturating_sub(own.last_used));
        Some(ExplainedAffinity {
            timeout_seconds: timeout,
            endpoint: known.map(|own| self.listens(own.endpoint).to_string()),
            left_seconds: age.map_or(0, |age| timeout.saturating_sub(age)),
            valid: self.is_remembered(&frontend, origin),
        })
    }

    /// Whether the data path gives the client the endpoint that it had.
    fn is_remembered(&self, frontend: &Frontend, origin: Origin) -> bool {
        let mut tables = self.tables.clone();
        let mut work = self.work();
        work.service = frontend.service;
        work.affinity_timeout = frontend.affinity_timeout;
        work.listed = frontend.flags.listed(origin);
        Tables::<F>::part(&mut tables, Part::Recall, &mut work) == Step::TAKEN
    }

    pub(super) fn flow(&self) -> Option<ExplainedFlow> {
        self.scene.question.sport?;
        let key = self.packet.key();
        for tier in TIERS {
            let Some(flow) = F::maps(self.tables).tier(tier).get(&key) else {
                continue;
            };
            let state = flow.state();
            if state.marks.kind() != Kind::DNAT {
                continue;
            }
            return Some(ExplainedFlow {
                tier: match tier {
                    Tier::Established => "established",
                    _ => "half-open",
                }
                .to_owned(),
                endpoint: SocketAddr::new(flow.new_dst().into(), state.new_dport.host())
                    .to_string(),
                over: is_over(self.packet.proto, tier, state, self.tables.now),
                idle_seconds: self.tables.now.saturating_sub(state.last_seen),
            });
        }
        None
    }
}
