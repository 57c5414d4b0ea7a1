//! Of the tables, what concerns one packet: small tables of its own, on which the data path does
//! with it what it would do on the large ones.
//!
//! Endpoint slots are numbered anew, so that the arrays are small; service port numbers and
//! generations stay, for clients and flows are remembered by them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;

use aya::maps::MapError;
use bytemuck::Zeroable as _;
use proxy_common::abi::bits::{bit_of, socket_bit_of};
use proxy_common::abi::endpoint::Endpoint as _;
use proxy_common::abi::flow::{Flow as _, FlowKey as _};
use proxy_common::abi::source::SERVICE_BITS;
use proxy_common::abi::{
    Affinity, Detector, EndpointSet, Family, Frontend, Hook, Kind, Settings, Slot, Tier, V4, V6,
};
use proxy_common::datapath::memory::{MemoryTables, Stored};
use proxy_common::net::{Address as _, Port, Proto};

use crate::dataplane::Tables;
use crate::dataplane::tables::FamilyTables;
use crate::model::IpNet;

/// Tables to take an excerpt of: those in the kernel, or in plain memory.
#[expect(
    missing_docs,
    reason = "each reads one element of the table that it is named after"
)]
pub trait Store<F: Family> {
    fn frontend(&self, key: &F::FrontendKey) -> io::Result<Option<Frontend>>;
    fn slot(&self, index: u32) -> io::Result<Option<Slot>>;
    fn endpoint(&self, index: u32) -> io::Result<F::Endpoint>;
    fn reverse(&self, key: &F::EndpointKey) -> io::Result<Option<F::Frontends>>;
    fn affinity(&self, key: &F::AffinityKey) -> io::Result<Option<Affinity>>;
    fn flow(&self, tier: Tier, key: &F::FlowKey) -> io::Result<Option<F::Flow>>;
    fn frontend_word(&self, index: u32) -> io::Result<u64>;
    fn endpoint_word(&self, index: u32) -> io::Result<u64>;
    fn detector(&self) -> io::Result<Detector>;
}

/// The two tiers in which flows are kept.
pub(super) const TIERS: [Tier; 2] = [Tier::Established, Tier::HalfOpen];

/// Of so many endpoints it is looked up who else speaks to them.
const CLAIMS: usize = 4096;

/// A packet in the terms of the tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<F: Family> {
    pub(super) src: F::Addr,
    pub(super) dst: F::Addr,
    pub(super) sport: Port,
    pub(super) dport: Port,
    pub(super) proto: Proto,
}

impl<F: Family> Packet<F> {
    /// The key of the client's half of its flow.
    pub(super) fn key(&self) -> F::FlowKey {
        let Self {
            src,
            dst,
            sport,
            dport,
            proto,
        } = *self;
        F::FlowKey::new(src, dst, sport, dport, proto, Hook::INGRESS)
    }

    /// The key of its frontend.
    pub(super) fn frontend(&self) -> F::FrontendKey {
        F::frontend_key(self.dst.unique(), self.dport, self.proto)
    }
}

/// Takes an excerpt for a packet. `sources` are the source ranges of the service port that has its
/// frontend.
pub(super) fn excerpt<F: Stored<Addr: Into<IpAddr>>>(
    store: &impl Store<F>,
    packet: &Packet<F>,
    settings: Settings,
    sources: &[(u32, IpNet)],
) -> io::Result<MemoryTables> {
    let mut memory = MemoryTables::new(settings);
    memory.detector = store.detector()?;
    let mut copy = Copy {
        store,
        packet,
        memory,
        slots: HashMap::new(),
        words: HashSet::new(),
    };
    copy.addresses()?;
    let exact = packet.frontend();
    let whole = F::frontend_key(packet.dst, Port::zeroed(), Proto::ANY);
    for key in [exact, whole] {
        copy.frontend(key)?;
    }
    copy.flows()?;
    let maps = F::maps_mut(&mut copy.memory);
    for (service, range) in sources {
        if let Some(own) = source::<F>(*service, *range) {
            maps.sources.push(own);
        }
    }
    Ok(copy.memory)
}

/// A source range as the tables have it.
fn source<F: Family>(service: u32, range: IpNet) -> Option<(u32, F::Source)> {
    let addr: &[u8] = match &range.addr() {
        IpAddr::V4(addr) => &addr.octets(),
        IpAddr::V6(addr) => &addr.octets(),
    };
    let addr = bytemuck::try_pod_read_unaligned(addr).ok()?;
    let bits = SERVICE_BITS + u32::from(range.prefix_len());
    Some((bits, F::source(service, addr)))
}

struct Copy<'a, F: Family, S> {
    store: &'a S,
    packet: &'a Packet<F>,
    memory: MemoryTables,
    /// The new index of each slot.
    slots: HashMap<u32, u32>,
    /// Words of the endpoints' bitmap that are copied.
    words: HashSet<u32>,
}

impl<F: Stored<Addr: Into<IpAddr>>, S: Store<F>> Copy<'_, F, S> {
    /// What the bitmaps say of where the packet goes.
    fn addresses(&mut self) -> io::Result<()> {
        let Packet {
            dst, dport, proto, ..
        } = *self.packet;
        for word in [bit_of(dst).0, bit_of(dst.unique()).0] {
            let value = self.store.frontend_word(word)?;
            set(&mut self.memory.frontend_bits, word, value);
        }
        self.endpoint_words(dst, dport, proto)
    }

    fn endpoint_words(&mut self, addr: F::Addr, port: Port, proto: Proto) -> io::Result<()> {
        for word in [bit_of(addr).0, socket_bit_of(addr, port, proto).0] {
            if !self.words.insert(word) {
                continue;
            }
            let value = self.store.endpoint_word(word)?;
            set(&mut self.memory.endpoint_bits, word, value);
        }
        Ok(())
    }

    fn frontend(&mut self, key: F::FrontendKey) -> io::Result<()> {
        let Some(mut frontend) = self.store.frontend(&key)? else {
            return Ok(());
        };
        let (inside, outside) = (frontend.inside, frontend.outside);
        frontend.inside = self.set(inside)?;
        frontend.outside = if outside == inside {
            frontend.inside
        } else {
            self.set(outside)?
        };
        F::maps_mut(&mut self.memory)
            .frontends
            .insert(key, frontend);
        let client = F::affinity_key(frontend.service, self.packet.src);
        if let Some(mut affinity) = self.store.affinity(&client)? {
            affinity.endpoint = self.endpoint(affinity.endpoint)?;
            F::maps_mut(&mut self.memory)
                .affinity
                .insert(client, affinity);
        }
        Ok(())
    }

    fn set(&mut self, set: EndpointSet) -> io::Result<EndpointSet> {
        let base = self.memory.sets.len();
        for index in 0..set.count() {
            let at = set.base().wrapping_add(index);
            let Some(mut slot) = self.store.slot(at)? else {
                break;
            };
            slot.endpoint = self.endpoint(slot.endpoint)?;
            self.memory.sets.push(slot);
        }
        let count = self.memory.sets.len() - base;
        Ok(EndpointSet::new(base as u32, count as u32))
    }

    /// The new index of an endpoint.
    fn endpoint(&mut self, slot: u32) -> io::Result<u32> {
        // 0 stands for none where a flow goes straight to its endpoint.
        let next = self.slots.len() as u32 + 1;
        let index = match self.slots.entry(slot) {
            Entry::Occupied(known) => return Ok(*known.get()),
            Entry::Vacant(new) => *new.insert(next),
        };
        let record = self.store.endpoint(slot)?;
        let (addr, port) = (record.addr(), record.port());
        F::maps_mut(&mut self.memory)
            .endpoints
            .insert(index, record);
        let proto = self.packet.proto;
        let key = F::endpoint_key(addr, port, proto);
        if let Some(doors) = self.store.reverse(&key)? {
            F::maps_mut(&mut self.memory).reverse.insert(key, doors);
        }
        self.endpoint_words(addr, port, proto)?;
        Ok(index)
    }

    /// The packet's flow, and those that stand where it would.
    fn flows(&mut self) -> io::Result<()> {
        self.flow(self.packet.key())?;
        let Packet {
            src, sport, proto, ..
        } = *self.packet;
        let own = F::maps(&self.memory).endpoints.values();
        let own: Vec<_> = own
            .take(CLAIMS)
            .map(|own| (own.addr(), own.port()))
            .collect();
        for (addr, port) in own {
            let key = F::FlowKey::new(addr, src, port, sport, proto, Hook::EGRESS);
            self.flow(key)?;
        }
        Ok(())
    }

    fn flow(&mut self, key: F::FlowKey) -> io::Result<()> {
        for tier in TIERS {
            let Some(mut flow) = self.store.flow(tier, &key)? else {
                continue;
            };
            let slot = flow.state().endpoint;
            if flow.state().service != 0 {
                flow.state_mut().endpoint = self.endpoint(slot)?;
            }
            let maps = F::maps_mut(&mut self.memory);
            let map = match tier {
                Tier::Established => &mut maps.flows,
                _ => &mut maps.half_open,
            };
            if map.insert(key, flow).is_none() && flow.state().marks.kind() == Kind::DNAT {
                let state = flow.state();
                let partner = F::FlowKey::new(
                    flow.new_dst(),
                    flow.new_src(),
                    state.new_dport,
                    state.new_sport,
                    key.proto(),
                    Hook::EGRESS,
                );
                self.flow(partner)?;
            }
        }
        Ok(())
    }
}

fn set(words: &mut [u64], index: u32, value: u64) {
    if let Some(word) = words.get_mut(index as usize) {
        *word = value;
    }
}

impl<F: Stored> Store<F> for MemoryTables {
    fn frontend(&self, key: &F::FrontendKey) -> io::Result<Option<Frontend>> {
        Ok(F::maps(self).frontends.get(key).copied())
    }

    fn slot(&self, index: u32) -> io::Result<Option<Slot>> {
        Ok(self.sets.get(index as usize).copied())
    }

    fn endpoint(&self, index: u32) -> io::Result<F::Endpoint> {
        let known = F::maps(self).endpoints.get(&index).copied();
        Ok(known.unwrap_or_else(bytemuck::Zeroable::zeroed))
    }

    fn reverse(&self, key: &F::EndpointKey) -> io::Result<Option<F::Frontends>> {
        Ok(F::maps(self).reverse.get(key).copied())
    }

    fn affinity(&self, key: &F::AffinityKey) -> io::Result<Option<Affinity>> {
        Ok(F::maps(self).affinity.get(key).copied())
    }

    fn flow(&self, tier: Tier, key: &F::FlowKey) -> io::Result<Option<F::Flow>> {
        Ok(F::maps(self).tier(tier).get(key).copied())
    }

    fn frontend_word(&self, index: u32) -> io::Result<u64> {
        Ok(self
            .frontend_bits
            .get(index as usize)
            .copied()
            .unwrap_or_default())
    }

    fn endpoint_word(&self, index: u32) -> io::Result<u64> {
        Ok(self
            .endpoint_bits
            .get(index as usize)
            .copied()
            .unwrap_or_default())
    }

    fn detector(&self) -> io::Result<Detector> {
        Ok(self.detector)
    }
}

/// Families whose maps the kernel's tables hold.
pub(super) trait Held: Family {
    fn held(tables: &Tables) -> &FamilyTables<Self>;
}

impl Held for V4 {
    fn held(tables: &Tables) -> &FamilyTables<Self> {
        &tables.v4
    }
}

impl Held for V6 {
    fn held(tables: &Tables) -> &FamilyTables<Self> {
        &tables.v6
    }
}

impl<F: Held> Store<F> for Tables {
    fn frontend(&self, key: &F::FrontendKey) -> io::Result<Option<Frontend>> {
        F::held(self).frontends.get(key).map_err(unread)
    }

    fn slot(&self, index: u32) -> io::Result<Option<Slot>> {
        Ok(self.sets.get(index))
    }

    fn endpoint(&self, index: u32) -> io::Result<F::Endpoint> {
        F::held(self).endpoints.get(index).map_err(unread)
    }

    fn reverse(&self, key: &F::EndpointKey) -> io::Result<Option<F::Frontends>> {
        F::held(self).reverse.get(key).map_err(unread)
    }

    fn affinity(&self, key: &F::AffinityKey) -> io::Result<Option<Affinity>> {
        F::held(self).affinity.get(key).map_err(unread)
    }

    fn flow(&self, tier: Tier, key: &F::FlowKey) -> io::Result<Option<F::Flow>> {
        let held = F::held(self);
        match tier {
            Tier::Established => held.flows.get(key),
            Tier::HalfOpen | Tier::Renewal => held.half_open.get(key),
        }
        .map_err(unread)
    }

    fn frontend_word(&self, index: u32) -> io::Result<u64> {
        self.frontend_bits.get(index).map_err(unread)
    }

    fn endpoint_word(&self, index: u32) -> io::Result<u64> {
        self.endpoint_bits.get(index).map_err(unread)
    }

    fn detector(&self) -> io::Result<Detector> {
        self.detector.get(0).map_err(unread)
    }
}

fn unread(error: MapError) -> io::Error {
    io::Error::other(error)
}
