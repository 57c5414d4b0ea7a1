//! The thread that keeps the tables as they should be.
//!
//! It has a thread of its own because a change of nftables waits for those of others, and there are
//! hosts where one of those takes minutes.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use super::events::Events;
use super::kept::Kept;
use super::socket::Connection;
use super::state::State;
use crate::model::Family;

/// How often everything is looked at, if nothing gives a reason to.
const CHECK: Duration = Duration::from_secs(30);
/// How long to wait before what was refused is tried again; each time it is refused, twice as long.
const RETRY: Duration = Duration::from_secs(1);
/// The shortest time between two times that something is put right: others may insist.
const PAUSE: Duration = Duration::from_millis(100);
/// How long new `ClusterIP`s are waited for. Being in the set before they are served spares their
/// first clients a refusal; waiting for others would keep all from being served.
const PATIENCE: Duration = Duration::from_millis(50);

/// A wish.
#[derive(Debug)]
enum Command {
    /// These are `ClusterIP`s now; to be told when they are in the set.
    Add(BTreeSet<IpAddr>, SyncSender<()>),
    /// These are none any more.
    Remove(BTreeSet<IpAddr>),
    /// All that is declared is known.
    Complete,
}

/// Tells the [`Keeper`] what is wanted.
#[derive(Debug)]
pub struct Netfilter {
    commands: mpsc::UnboundedSender<Command>,
}

impl Netfilter {
    /// Has packets to these `ClusterIP`s dropped if nobody translates them. It is in force when
    /// this returns, unless the kernel is busy for more than 50 ms, or refuses.
    ///
    /// To be called before they are served.
    pub fn add(&self, addresses: BTreeSet<IpAddr>) {
        if addresses.is_empty() {
            return;
        }
        let (done, is_done) = sync_channel(1);
        let sent = self.commands.send(Command::Add(addresses, done));
        if sent.is_ok() && is_done.recv_timeout(PATIENCE).is_err() {
            debug!("nftables is busy: new Services are served before the drop is in force");
        }
    }

    /// Has packets to what was a `ClusterIP` left alone. To be called when it is served no more.
    pub fn remove(&self, addresses: BTreeSet<IpAddr>) {
        if !addresses.is_empty() {
            // Nobody keeps the tables if the keeper has ended.
            self.commands.send(Command::Remove(addresses)).ok();
        }
    }

    /// All that is declared was told: what is left of a former run goes.
    pub fn complete(&self) {
        self.commands.send(Command::Complete).ok();
    }
}

/// Keeps the tables of both families.
pub struct Keeper {
    commands: mpsc::UnboundedReceiver<Command>,
    state: watch::Sender<State>,
    families: [Kept; 2],
    connection: Option<Connection>,
    events: Option<Events>,
    looked: Instant,
    due: Instant,
    /// How long to wait before what was refused is tried again.
    retry: Duration,
}

enum Wake {
    Command(Command),
    /// Somebody else has changed something, or nobody would tell any more.
    Foreign(io::Result<()>),
    Due,
    End,
}

impl Keeper {
    /// A keeper, what tells it its wishes, and where it tells how the tables are.
    pub fn new() -> (Netfilter, Self, watch::Receiver<State>) {
        let (commands, wishes) = mpsc::unbounded_channel();
        let (state, states) = watch::channel(State::default());
        let keeper = Self {
            commands: wishes,
            state,
            families: Family::ALL.map(Kept::new),
            connection: None,
            events: None,
            looked: Instant::now(),
            due: Instant::now(),
            retry: RETRY,
        };
        (Netfilter { commands }, keeper, states)
    }

    /// Keeps the tables until nobody can have a wish any more; inside of a runtime, in a thread
    /// that may block.
    pub fn run(mut self) {
        let runtime = Handle::current();
        self.look();
        loop {
            self.tell();
            match runtime.block_on(self.wait()) {
                Wake::Command(command) => self.follow(command),
                Wake::Foreign(noticed) => {
                    if let Err(error) = noticed {
                        debug!(%error, "changes of nftables are not told any more");
                        self.events = None;
                    }
                    // What comes meanwhile is looked at together.
                    self.due = self.due.min(self.looked + PAUSE);
                }
                Wake::Due => self.look(),
                Wake::End => return,
            }
        }
    }

    async fn wait(&mut self) -> Wake {
        let own = self.connection.as_ref().map(Connection::port);
        let foreign = async {
            match &self.events {
                Some(events) => events.foreign(own).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = self.commands.recv() => command.map_or(Wake::End, Wake::Command),
            () = tokio::time::sleep_until(self.due.into()) => Wake::Due,
            noticed = foreign => Wake::Foreign(noticed),
        }
    }

    /// Carries out a wish and all that wait behind it.
    fn follow(&mut self, first: Command) {
        let mut touched = BTreeSet::new();
        let mut waiting = Vec::new();
        let mut next = Some(first);
        while let Some(command) = next {
            match command {
                Command::Add(addresses, done) => {
                    for address in &addresses {
                        self.kept(*address).elements.declare(*address);
                    }
                    touched.extend(addresses);
                    waiting.push(done);
                }
                Command::Remove(addresses) => {
                    for address in &addresses {
                        self.kept(*address).elements.withdraw(*address);
                    }
                    touched.extend(addresses);
                }
                Command::Complete => {
                    for kept in &mut self.families {
                        kept.elements.complete();
                    }
                    self.due = Instant::now();
                }
            }
            next = self.commands.try_recv().ok();
        }
        if let Some(connection) = &mut self.connection {
            for kept in &mut self.families {
                kept.update(connection, &touched);
            }
        }
        if self.families.iter().any(Kept::has_refused) {
            self.due = self.due.min(Instant::now() + self.retry);
        }
        for done in waiting {
            // It may have lost patience.
            done.send(()).ok();
        }
    }

    /// Looks at everything and puts right what is wrong.
    fn look(&mut self) {
        self.looked = Instant::now();
        self.due = self.looked + CHECK;
        if self.events.is_none() {
            // Before anything is read: no change falls in between.
            self.events = Events::open()
                .inspect_err(|error| debug!(%error, "changes of nftables are not told"))
                .ok();
        }
        self.put_right();
        if self
            .families
            .iter()
            .any(|kept| kept.has_failed() || kept.has_refused())
        {
            self.due = self.looked + self.retry;
            self.retry = CHECK.min(self.retry * 2);
        } else {
            self.retry = RETRY;
        }
    }

    fn put_right(&mut self) {
        let mut connection = match self.connection.take().map_or_else(Connection::open, Ok) {
            Ok(connection) => connection,
            Err(error) => {
                for kept in &mut self.families {
                    kept.fail(&error);
                }
                return;
            }
        };
        let results = self
            .families
            .each_mut()
            .map(|kept| kept.look(&mut connection));
        // One that was not answered in time would be answered later, to something else.
        let is_lost = |result: &io::Result<()>| {
            let error = result.as_ref().err();
            error.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
        };
        if !results.iter().any(is_lost) {
            self.connection = Some(connection);
        }
    }

    const fn kept(&mut self, address: IpAddr) -> &mut Kept {
        let [v4, v6] = &mut self.families;
        match Family::of(address) {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }

    /// Tells those who look how the tables are, and the log when that has changed.
    fn tell(&self) {
        let troubles: Vec<_> = self.families.iter().filter_map(Kept::trouble).collect();
        let state = State {
            cluster_ips: self.families.iter().map(Kept::served).sum(),
            trouble: (!troubles.is_empty()).then(|| troubles.join("; ")),
            dropped: self.families.iter().map(Kept::dropped).sum(),
        };
        let before = self.state.send_replace(state.clone());
        match (before.trouble, state.trouble) {
            (None, Some(trouble)) => {
                warn!(%trouble, "late-attach drop not in force, trying again");
            }
            (Some(_), None) => info!("late-attach drop in force"),
            _ => {}
        }
    }
}
