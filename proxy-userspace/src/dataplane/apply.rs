//! Carries out operations of the plan.
//!
//! The order is kept; runs of operations on one map go to the kernel in one call.

use std::io;
use std::net::IpAddr;

use aya::maps::MapError;
use proxy_common::abi::{
    AffinityKey4, AffinityKey6, Endpoint4, Endpoint6, Family as AbiFamily, Frontend, Frontends4,
    Frontends6, V4, V6,
};
use proxy_common::net::{Ip4, Ip6, Port};

use super::syscall::BatchResult;
use super::tables::{FamilyTables, Tables};
use crate::model::Family;
use crate::plan::{Bitmap, Op, Record, Socket};

/// An operation that the kernel refused.
#[derive(Debug)]
pub struct Failure {
    /// The operation.
    pub op: Op,
    /// Why.
    pub error: io::Error,
}

/// Carries out all operations in order. One that fails does not stop the others.
pub fn apply(tables: &mut Tables, ops: Vec<Op>) -> Vec<Failure> {
    let mut failures = Vec::new();
    let mut ops = ops.into_iter().peekable();
    let mut run = Vec::new();
    while let Some(op) = ops.next() {
        let target = Target::of(&op);
        run.push(op);
        let is_single = tables.kill.before_write();
        while let Some(next) = ops.next_if(|next| !is_single && Target::of(next) == target) {
            run.push(next);
        }
        apply_run(tables, target, std::mem::take(&mut run), &mut failures);
    }
    failures
}

/// Which map an operation is for, and how it changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Detector,
    Sources,
    Picks(Family),
    Clients(Family),
    Endpoints(Family),
    Reverse(Family),
    ReverseGone(Family),
    Bits(Bitmap),
    Sets,
    Draws,
    Frontends(Family),
    FrontendsGone(Family),
}

impl Target {
    const fn of(op: &Op) -> Self {
        match op {
            Op::Detector { .. } => Self::Detector,
            Op::Source { .. } | Op::SourceGone { .. } => Self::Sources,
            Op::ResetPicks { family, .. } => Self::Picks(*family),
            Op::ForgetClients { family, .. } => Self::Clients(*family),
            Op::Endpoint { record, .. } => Self::Endpoints(Family::of(record.addr)),
            Op::Reverse { endpoint, .. } => Self::Reverse(endpoint.family()),
            Op::ReverseGone { endpoint } => Self::ReverseGone(endpoint.family()),
            Op::Bits { bitmap, .. } => Self::Bits(*bitmap),
            Op::Set { .. } => Self::Sets,
            Op::ResetDraws { .. } => Self::Draws,
            Op::Frontend { at, .. } => Self::Frontends(at.family()),
            Op::FrontendGone { at } => Self::FrontendsGone(at.family()),
        }
    }

    const fn family(self) -> Option<Family> {
        match self {
            Self::Picks(family)
            | Self::Clients(family)
            | Self::Endpoints(family)
            | Self::Reverse(family)
            | Self::ReverseGone(family)
            | Self::Frontends(family)
            | Self::FrontendsGone(family) => Some(family),
            Self::Detector | Self::Sources | Self::Bits(_) | Self::Sets | Self::Draws => None,
        }
    }
}

fn apply_run(tables: &mut Tables, target: Target, run: Vec<Op>, failures: &mut Vec<Failure>) {
    match (target.family(), target) {
        (Some(Family::V4), target) => apply_family(&tables.v4, target, run, failures),
        (Some(Family::V6), target) => apply_family(&tables.v6, target, run, failures),
        (None, Target::Bits(bitmap)) => {
            let table = match bitmap {
                Bitmap::Frontends => &tables.frontend_bits,
                Bitmap::Endpoints => &tables.endpoint_bits,
            };
            let pick = |op: &Op| match *op {
                Op::Bits { word, value, .. } => Some((word, value)),
                _ => None,
            };
            batch(run, pick, failures, |words, values| {
                table.update_batch(words, values)
            });
        }
        (None, Target::Detector | Target::Sources) => {
            // Few, and not in batches: the oldest supported kernels know none for tries.
            for op in run {
                if let Err(error) = apply_one(tables, &op) {
                    let error = io_error(error);
                    failures.push(Failure { op, error });
                }
            }
        }
        (None, _) => {
            for op in run {
                let is_done = match &op {
                    Op::Set { base, slots } => tables.sets.write(*base, slots),
                    Op::ResetDraws { base, len } => tables.draws.reset(*base, *len),
                    _ => continue,
                };
                if !is_done {
                    let error = io::ErrorKind::InvalidInput.into();
                    failures.push(Failure { op, error });
                }
            }
        }
    }
}

fn apply_one(tables: &mut Tables, op: &Op) -> Result<(), MapError> {
    match *op {
        Op::Detector { value } => tables.set_detector(&value),
        Op::Source { service, range } => tables.source_set(service, range),
        Op::SourceGone { service, range } => tables.source_remove(service, range).map(drop),
        _ => Ok(()),
    }
}

/// What the kernel said, where it said something.
fn io_error(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        MapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

fn apply_family<F: Layout>(
    tables: &FamilyTables<F>,
    target: Target,
    run: Vec<Op>,
    failures: &mut Vec<Failure>,
) {
    match target {
        Target::Picks(_) => {
            let pick = |op: &Op| match *op {
                Op::ResetPicks { slot, .. } => Some((slot, 0)),
                _ => None,
            };
            batch(run, pick, failures, |slots, zeros| {
                tables.picks.update_batch(slots, zeros)
            });
        }
        Target::Clients(_) => {
            for op in run {
                let Op::ForgetClients { service, .. } = op else {
                    continue;
                };
                if let Err(error) = forget_clients(tables, service) {
                    failures.push(Failure { op, error });
                }
            }
        }
        Target::Endpoints(_) => {
            let pick = |op: &Op| match op {
                Op::Endpoint { slot, record } => Some((*slot, F::record(record)?)),
                _ => None,
            };
            batch(run, pick, failures, |slots, all| {
                tables.endpoints.update_batch(slots, all)
            });
        }
        Target::Reverse(_) => {
            let pick = |op: &Op| match op {
                Op::Reverse {
                    endpoint,
                    frontends,
                } => Some((endpoint_key::<F>(endpoint)?, F::frontends(frontends))),
                _ => None,
            };
            batch(run, pick, failures, |keys, all| {
                tables.reverse.update_batch(keys, all)
            });
        }
        Target::ReverseGone(_) => {
            let pick = |op: &Op| match op {
                Op::ReverseGone { endpoint } => Some((endpoint_key::<F>(endpoint)?, ())),
                _ => None,
            };
            batch(run, pick, failures, |keys, _| {
                tables.reverse.delete_batch(keys)
            });
        }
        Target::Frontends(_) => {
            let pick = |op: &Op| match op {
                Op::Frontend { at, value } => Some((frontend_key::<F>(at)?, *value)),
                _ => None,
            };
            batch(run, pick, failures, |keys, all: &[Frontend]| {
                tables.frontends.update_batch(keys, all)
            });
        }
        Target::FrontendsGone(_) => {
            let pick = |op: &Op| match op {
                Op::FrontendGone { at } => Some((frontend_key::<F>(at)?, ())),
                _ => None,
            };
            batch(run, pick, failures, |keys, _| {
                tables.frontends.delete_batch(keys)
            });
        }
        Target::Detector | Target::Sources | Target::Bits(_) | Target::Sets | Target::Draws => {}
    }
}

fn forget_clients<F: Layout>(tables: &FamilyTables<F>, service: u32) -> io::Result<()> {
    let mut keys = Vec::new();
    tables.affinity.walk(|key, _| {
        if F::affinity_service(&key) == service {
            keys.push(key);
        }
        Ok(())
    })?;
    let mut keys = &*keys;
    while let Err((done, error)) = tables.affinity.delete_batch(keys) {
        // The table may have made room itself.
        if error.kind() != io::ErrorKind::NotFound {
            return Err(error);
        }
        keys = keys.get(done + 1..).unwrap_or_default();
    }
    Ok(())
}

/// Hands a run to the kernel; where it stops, the operation there has failed and the rest goes on.
fn batch<K, V>(
    run: Vec<Op>,
    pick: impl Fn(&Op) -> Option<(K, V)>,
    failures: &mut Vec<Failure>,
    call: impl Fn(&[K], &[V]) -> BatchResult,
) {
    let (keys, values): (Vec<_>, Vec<_>) = run.iter().filter_map(pick).unzip();
    debug_assert_eq!(run.len(), keys.len());
    let mut run = run.into_iter();
    let (mut keys, mut values) = (&*keys, &*values);
    while let Err((done, error)) = call(keys, values) {
        let op = run.nth(done);
        // What is to be removed and is not there is as good as removed.
        if error.kind() != io::ErrorKind::NotFound {
            failures.extend(op.map(|op| Failure { op, error }));
        }
        keys = keys.get(done + 1..).unwrap_or_default();
        values = values.get(done + 1..).unwrap_or_default();
    }
}

/// The key of a frontend of this family.
pub(crate) fn frontend_key<F: Layout>(at: &Socket) -> Option<F::FrontendKey> {
    let Socket { addr, port, proto } = *at;
    Some(F::frontend_key(F::addr(addr)?, Port::new(port), proto))
}

/// The key of an endpoint of this family.
pub(crate) fn endpoint_key<F: Layout>(endpoint: &Socket) -> Option<F::EndpointKey> {
    let Socket { addr, port, proto } = *endpoint;
    Some(F::endpoint_key(F::addr(addr)?, Port::new(port), proto))
}

/// How the plan's values look in the maps of a family.
pub(crate) trait Layout: AbiFamily {
    /// An address of this family.
    fn addr(addr: IpAddr) -> Option<Self::Addr>;
    /// An endpoint record of this family.
    fn record(record: &Record) -> Option<Self::Endpoint>;
    /// The frontends of an endpoint.
    fn frontends(frontends: &[(IpAddr, u16)]) -> Self::Frontends;
    fn affinity_service(key: &Self::AffinityKey) -> u32;
}

impl Layout for V4 {
    fn addr(addr: IpAddr) -> Option<Ip4> {
        match addr {
            IpAddr::V4(v4) => Some(v4.into()),
            IpAddr::V6(_) => None,
        }
    }

    fn record(record: &Record) -> Option<Endpoint4> {
        Some(Endpoint4 {
            addr: Self::addr(record.addr)?,
            port: Port::new(record.port),
            flags: record.flags,
            pad: 0,
            generation: record.generation,
            service: record.service,
        })
    }

    fn frontends(frontends: &[(IpAddr, u16)]) -> Frontends4 {
        Frontends4::new(doors::<Self>(frontends))
    }

    fn affinity_service(key: &AffinityKey4) -> u32 {
        key.service
    }
}

impl Layout for V6 {
    fn addr(addr: IpAddr) -> Option<Ip6> {
        match addr {
            IpAddr::V6(v6) => Some(v6.into()),
            IpAddr::V4(_) => None,
        }
    }

    fn record(record: &Record) -> Option<Endpoint6> {
        Some(Endpoint6 {
            addr: Self::addr(record.addr)?,
            port: Port::new(record.port),
            flags: record.flags,
            pad: 0,
            generation: record.generation,
            service: record.service,
            pad2: 0,
        })
    }

    fn frontends(frontends: &[(IpAddr, u16)]) -> Frontends6 {
        Frontends6::new(doors::<Self>(frontends))
    }

    fn affinity_service(key: &AffinityKey6) -> u32 {
        key.service
    }
}

fn doors<F: Layout>(frontends: &[(IpAddr, u16)]) -> impl Iterator<Item = (F::Addr, Port)> {
    let door = |&(addr, port): &(IpAddr, u16)| Some((F::addr(addr)?, Port::new(port)));
    frontends.iter().filter_map(door)
}
