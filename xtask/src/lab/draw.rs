//! Many new connections, each of them a draw of the lottery.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use anyhow::{Context as _, Result};
use rustix::io::Errno;

use super::client::{Answer, Connection, Datagrams};
use super::{Host, Protocol};

/// Opens `count` connections (or flows of one datagram) from a host, some at a time, and tells
/// `each` who answered. The first that fails is the error of all.
pub fn draw(
    host: &Host,
    protocol: Protocol,
    target: SocketAddr,
    count: u64,
    each: &(impl Fn(&Answer) + Sync),
) -> Result<()> {
    let left = AtomicU64::new(count);
    let lane = || {
        host.namespace.enter(|| {
            while take_one(&left) {
                each(&draw_here(host, protocol, target)?);
            }
            Ok(())
        })
    };
    thread::scope(|scope| {
        // Collected, for they have to run all at once.
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().try_for_each(|lane| match lane.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
    .with_context(|| format!("{} to {target} over {protocol}", host.name))
}

/// Opens one connection (or flow) from the namespace of `host`, which the thread is in.
pub fn draw_here(host: &Host, protocol: Protocol, target: SocketAddr) -> Result<Answer> {
    match protocol {
        Protocol::Tcp => {
            let connection = Connection::open_here(target, None)?;
            let answer = connection.answer().clone();
            // A port is free at once, where thousands in TIME_WAIT would use them up.
            connection.reset()?;
            Ok(answer)
        }
        Protocol::Udp => new_flow(host, target)?.ask(),
    }
}

// A datagram from a port that was in use a moment ago belongs to the flow of then and is no draw:
// ports are used in turn, not as the kernel likes.
fn new_flow(host: &Host, target: SocketAddr) -> Result<Datagrams> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let from: IpAddr = match target {
        SocketAddr::V4(_) => host.addresses.v4.into(),
        SocketAddr::V6(_) => host.addresses.v6.into(),
    };
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST_PORT + (number % PORTS) as u16;
        match Datagrams::open_here(target, Some((from, port).into())) {
            Err(error) if error.downcast_ref() == Some(&Errno::ADDRINUSE) => {}
            result => return result,
        }
    }
}

fn take_one(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        left.checked_sub(1)
    })
    .is_ok()
}

/// Enough to keep two CPUs busy, whoever else uses them.
const LANES: usize = 8;
const FIRST_PORT: u16 = 10_000;
const PORTS: u32 = 55_000;
