//! A new flow: the draw, the claim on the endpoint's side, the entry on the client's.
//!
//! The claim comes first. Two CPUs that open the same flow may claim two endpoints, but only one
//! of them enters the client's half; the other follows it and gives its claim back.

use super::flow::{Path, destination_of, is_same};
use super::lifetime::is_over;
use super::rewrite::Change;
use super::tables::{Insert, Tables, find};
use crate::abi::endpoint::Endpoint;
use crate::abi::flow::{Flow as _, FlowKey as _};
use crate::abi::{Counter, Family, Frontend, Kind, State, Tier};

/// How often another source port is tried when the client's is taken at the endpoint.
const PORT_TRIES: u32 = 4;

/// Whether a client's half may be there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// No: whoever enters it first decides.
    New,
    /// Yes, and it is to be replaced.
    Again,
}

/// Opens a flow for the packets with `key` and says where they go; the reason to drop if that
/// cannot be.
#[inline(never)]
pub fn open<F: Family, T: Tables<F>>(
    tables: &mut T,
    key: &F::FlowKey,
    opening: Opening,
    now: u32,
    change: &mut Change<F::Addr>,
) -> Result<(), Counter> {
    let mut path = choose(tables, key)?;
    claim(tables, &mut path, now)?;

    let forward = path.half(Kind::DNAT, State::NEW, first_proof(&path, now), now);
    if opening == Opening::Again {
        if !tables.replace(Tier::HalfOpen, key, &forward) {
            release(tables, &path);
            return Err(Counter::DropTableFull);
        }
        // Lookups ask the established tier first: the old entry counts until it is gone.
        tables.remove(Tier::Established, key);
        tables.count(Counter::Repick);
    } else {
        match tables.insert(Tier::HalfOpen, key, &forward) {
            Insert::Done => tables.count(Counter::NewFlow),
            Insert::Exists => return follow(tables, key, &path, change),
            Insert::Refused => {
                release(tables, &path);
                return Err(Counter::DropTableFull);
            }
        }
    }
    tables.picked(path.slot);
    *change = path.towards_endpoint();
    Ok(())
}

/// What stands in a flow's proof before anything is proved.
#[inline(always)]
fn first_proof<F: Family>(path: &Path<F>, now: u32) -> u32 {
    if path.proto() == crate::net::Proto::UDP {
        now
    } else {
        0
    }
}

/// Draws the endpoint.
#[inline(always)]
fn choose<F: Family, T: Tables<F>>(tables: &mut T, key: &F::FlowKey) -> Result<Path<F>, Counter> {
    let frontend_key = F::frontend_key(key.dst(), key.dport(), key.proto());
    // Between reading the frontend and its set, both may have been replaced: read them once more.
    for _ in 0..2 {
        let Some(frontend) = tables.frontend(&frontend_key) else {
            return Err(Counter::DropStale);
        };
        let n = frontend.inside.count();
        if n == 0 {
            return Err(Counter::DropNoEndpoint);
        }
        let index = tables.pick(n);
        if let Some((slot, endpoint)) = drawn(tables, &frontend, index) {
            return Ok(Path {
                client: key.src(),
                vip: key.dst(),
                endpoint: endpoint.addr(),
                client_port: key.sport(),
                sport: key.sport(),
                vip_port: key.dport(),
                endpoint_port: endpoint.port(),
                proto: u32::from(key.proto().0),
                service: frontend.service,
                slot,
                generation: endpoint.generation(),
            });
        }
    }
    Err(Counter::DropStale)
}

/// The endpoint at `index` of the frontend's set, if the tables agree on it.
#[inline(always)]
pub fn drawn<F: Family, T: Tables<F>>(
    tables: &T,
    frontend: &Frontend,
    index: u32,
) -> Option<(u32, F::Endpoint)> {
    let slot = tables.slot(frontend.inside.base().wrapping_add(index))?;
    if slot.service != frontend.service {
        return None;
    }
    let endpoint = tables.endpoint(slot.endpoint)?;
    (endpoint.service() == frontend.service && endpoint.is_alive())
        .then_some((slot.endpoint, endpoint))
}

/// Claims the endpoint's side of the flow, with another source port if the client's is taken.
#[inline(always)]
fn claim<F: Family, T: Tables<F>>(
    tables: &mut T,
    path: &mut Path<F>,
    now: u32,
) -> Result<(), Counter> {
    for attempt in 0..=PORT_TRIES {
        if attempt > 0 {
            path.sport = tables.pick_port();
        }
        match claim_halves(tables, path, now) {
            Claim::Held => {
                if attempt > 0 {
                    tables.count(Counter::PortRewritten);
                }
                return Ok(());
            }
            Claim::Refused => return Err(Counter::DropTableFull),
            Claim::Taken => {}
        }
    }
    Err(Counter::DropNoPort)
}

/// How a claim ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// It is ours.
    Held,
    /// Somebody else's flow lives there.
    Taken,
    /// The table had no room.
    Refused,
}

#[inline(never)]
fn claim_halves<F: Family, T: Tables<F>>(tables: &mut T, path: &Path<F>, now: u32) -> Claim {
    let claimed = claim_half(tables, path, Kind::UNDNAT, now);
    if claimed != Claim::Held || !path.is_hairpin() {
        return claimed;
    }
    let claimed = claim_half(tables, path, Kind::SNAT, now);
    if claimed != Claim::Held {
        release_half(tables, path, Kind::UNDNAT);
        return claimed;
    }
    let claimed = claim_half(tables, path, Kind::UNSNAT, now);
    if claimed != Claim::Held {
        release_half(tables, path, Kind::UNDNAT);
        release_half(tables, path, Kind::SNAT);
    }
    claimed
}

#[inline(never)]
fn claim_half<F: Family, T: Tables<F>>(
    tables: &mut T,
    path: &Path<F>,
    kind: Kind,
    now: u32,
) -> Claim {
    let key = path.key(kind);
    let half = path.half(kind, State::NEW, first_proof(path, now), now);
    match tables.insert(Tier::HalfOpen, &key, &half) {
        Insert::Refused => Claim::Refused,
        // Asked after the insertion: a flow that is being promoted is in the established tier
        // before it leaves the half-open one, so it is seen in one of the two.
        Insert::Done => match tables.flow(Tier::Established, &key) {
            None => Claim::Held,
            Some(held) if is_over(path.proto(), Tier::Established, held.state(), now) => {
                tables.remove(Tier::Established, &key);
                Claim::Held
            }
            Some(held) if is_same(held, &half) => {
                tables.remove(Tier::HalfOpen, &key);
                Claim::Held
            }
            Some(_) => {
                tables.remove(Tier::HalfOpen, &key);
                Claim::Taken
            }
        },
        Insert::Exists => match tables.flow(Tier::HalfOpen, &key) {
            Some(held) if !is_over(path.proto(), Tier::HalfOpen, held.state(), now) => {
                if is_same(held, &half) {
                    Claim::Held
                } else {
                    Claim::Taken
                }
            }
            _ => {
                if tables.replace(Tier::HalfOpen, &key, &half) {
                    Claim::Held
                } else {
                    Claim::Refused
                }
            }
        },
    }
}

/// Gives a claim back.
#[inline(never)]
fn release<F: Family, T: Tables<F>>(tables: &mut T, path: &Path<F>) {
    release_half(tables, path, Kind::UNDNAT);
    if path.is_hairpin() {
        release_half(tables, path, Kind::SNAT);
        release_half(tables, path, Kind::UNSNAT);
    }
}

#[inline(always)]
fn release_half<F: Family, T: Tables<F>>(tables: &mut T, path: &Path<F>, kind: Kind) {
    let key = path.key(kind);
    tables.remove(Tier::HalfOpen, &key);
}

/// Another CPU entered the client's half first: its choice counts.
#[inline(always)]
fn follow<F: Family, T: Tables<F>>(
    tables: &mut T,
    key: &F::FlowKey,
    ours: &Path<F>,
    change: &mut Change<F::Addr>,
) -> Result<(), Counter> {
    let Some((_, theirs)) = find(tables, key) else {
        release(tables, ours);
        return Err(Counter::DropTableFull);
    };
    *change = destination_of(theirs);
    if *change != ours.towards_endpoint() {
        release(tables, ours);
    }
    Ok(())
}
