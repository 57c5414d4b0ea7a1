//! Traffic that goes on while something happens, and that must not notice it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::Service;
use xtask::lab::{Family, Host};

/// What went well; what did not has failed the test.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Exchanges on connections and flows that were open from the beginning.
    pub(super) kept: AtomicU64,
    /// New connections.
    pub(super) connections: AtomicU64,
    /// New UDP flows, none of which lost a datagram.
    pub(super) flows: AtomicU64,
}

/// Has clients talk to a Service while `work` happens. Open connections and flows must stay at
/// their endpoints, and everything that is sent must be answered; `is_right` judges who answers
/// new connections and flows.
pub(super) fn during<T>(
    client: &Host,
    service: &Service,
    is_right: impl Fn(&str) -> bool + Sync,
    work: impl FnOnce(&Tally) -> T,
) -> (T, Tally) {
    let stop = AtomicBool::new(false);
    let tally = Tally::default();
    let begun = AtomicU64::new(0);
    let result = thread::scope(|scope| {
        let mut lanes = Vec::new();
        for family in Family::ALL {
            let target = service.target(family);
            let (stop, tally, begun, is_right) = (&stop, &tally, &begun, &is_right);
            lanes.push(scope.spawn(move || {
                let open = |_| Connection::open(client, target).unwrap();
                let mut open: Vec<_> = (0..OPEN).map(open).collect();
                let flow = |_| Datagrams::open(client, target).unwrap();
                let flows: Vec<_> = (0..OPEN).map(flow).collect();
                let at: Vec<_> = flows.iter().map(|flow| flow.ask().unwrap().name).collect();
                begun.fetch_add(1, Ordering::Relaxed);
                while !stop.load(Ordering::Relaxed) {
                    for connection in &mut open {
                        connection.echo("still there?").unwrap();
                    }
                    for (flow, at) in flows.iter().zip(&at) {
                        assert_eq!(*at, flow.ask().unwrap().name, "a UDP flow was moved");
                    }
                    tally.kept.fetch_add(2 * OPEN as u64, Ordering::Relaxed);
                    thread::sleep(PAUSE);
                }
                for connection in &mut open {
                    connection.upload(10_000, 1).unwrap();
                }
            }));
            lanes.push(scope.spawn(move || {
                client
                    .namespace
                    .enter(|| {
                        while !stop.load(Ordering::Relaxed) {
                            let name = Datagrams::open_here(target, None)?.ask()?.name;
                            assert!(is_right(&name), "a datagram went to {name}");
                            tally.flows.fetch_add(1, Ordering::Relaxed);
                            let connection = Connection::open_here(target, None)?;
                            let name = &connection.answer().name;
                            assert!(is_right(name), "a connection went to {name}");
                            tally.connections.fetch_add(1, Ordering::Relaxed);
                            thread::sleep(PAUSE);
                        }
                        Ok(())
                    })
                    .unwrap();
            }));
        }
        while begun.load(Ordering::Relaxed) < 2 {
            assert!(!lanes.iter().any(thread::ScopedJoinHandle::is_finished));
            thread::sleep(PAUSE);
        }
        // Whatever becomes of the work: the lanes must end.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&tally)));
        stop.store(true, Ordering::Relaxed);
        for lane in lanes {
            lane.join().unwrap();
        }
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    (result, tally)
}

const OPEN: usize = 5;
const PAUSE: Duration = Duration::from_millis(2);
