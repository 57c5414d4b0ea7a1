//! The thread that keeps the tables as they should be.
//!
//! It has a thread of its own because a change of nftables waits for those of others, and there are
//! hosts where one of those takes minutes.

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use super::accepts::Accepts;
use super::counter::sum;
use super::destination::Destination;
use super::events::{Events, Foreign};
use super::kept::Kept;
use super::options::{Options, is_liberal};
use super::socket::Connection;
use super::state::State;
use crate::config::Mode;
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
    /// A Service has these now; to be told when they are in the set.
    Add(BTreeSet<Destination>, SyncSender<()>),
    /// No Service has these any more.
    Remove(BTreeSet<Destination>),
    /// These are the ranges of cluster IPs.
    ServiceCidrs(BTreeSet<IpNet>),
    /// All that is declared is known.
    Complete,
}

/// Tells the [`Keeper`] what is wanted.
#[derive(Debug)]
pub struct Netfilter {
    commands: mpsc::UnboundedSender<Command>,
}

impl Netfilter {
    /// Has packets to these `ClusterIP`s, or ports of them, dropped if nobody translates them. It is
    /// in force when this returns, unless the kernel is busy for more than 50 ms, or refuses.
    ///
    /// To be called before they are served, with what [`ClusterIps`](super::ClusterIps) of the
    /// keeper's mode finds.
    pub fn add(&self, destinations: BTreeSet<Destination>) {
        if destinations.is_empty() {
            return;
        }
        let (done, is_done) = sync_channel(1);
        let sent = self.commands.send(Command::Add(destinations, done));
        if sent.is_ok() && is_done.recv_timeout(PATIENCE).is_err() {
            debug!("nftables is busy: new Services are served before the drop is in force");
        }
    }

    /// Has packets to what was a `ClusterIP` left alone. To be called when it is served no more.
    pub fn remove(&self, destinations: BTreeSet<Destination>) {
        if !destinations.is_empty() {
            // Nobody keeps the tables if the keeper has ended.
            self.commands.send(Command::Remove(destinations)).ok();
        }
    }

    /// Has packets dropped that open something to an address in these ranges which is no
    /// `ClusterIP`; in the mode of nftables only.
    pub fn set_service_cidrs(&self, ranges: BTreeSet<IpNet>) {
        self.commands.send(Command::ServiceCidrs(ranges)).ok();
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
    options: Options,
    families: [Kept; 2],
    accepts: [Accepts; 2],
    connection: Option<Connection>,
    events: Option<Events>,
    /// When everything was last looked at, and when that is due again.
    looked: Instant,
    due: Instant,
    /// The same for the accepts alone, if they are to be looked at before.
    looked_at_accepts: Instant,
    accepts_due: Option<Instant>,
    /// How long to wait before what was refused is tried again.
    retry: Duration,
}

enum Wake {
    Command(Command),
    /// Somebody else has changed something, or nobody would tell any more.
    Foreign(io::Result<Foreign>),
    Due,
    AcceptsDue,
    End,
}

impl Keeper {
    /// A keeper, what tells it its wishes, and where it tells how the tables are.
    pub fn new(options: Options) -> (Netfilter, Self, watch::Receiver<State>) {
        let (commands, wishes) = mpsc::unbounded_channel();
        let (state, states) = watch::channel(State::default());
        let keeper = Self {
            commands: wishes,
            state,
            families: Family::ALL.map(|family| Kept::new(family, &options)),
            accepts: Family::ALL.map(|family| {
                let mark = options.masquerade_mark;
                let is_wanted = options.mode == Mode::Iptables;
                Accepts::new(family, is_wanted.then_some(mark))
            }),
            options,
            connection: None,
            events: None,
            looked: Instant::now(),
            due: Instant::now(),
            looked_at_accepts: Instant::now(),
            accepts_due: None,
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
                // What comes meanwhile is looked at together.
                Wake::Foreign(Ok(foreign)) => {
                    if foreign.ours {
                        self.due = self.due.min(self.looked + PAUSE);
                    }
                    if foreign.accepts {
                        self.accepts_due = Some(self.looked_at_accepts + PAUSE);
                    }
                }
                Wake::Foreign(Err(error)) => {
                    debug!(%error, "changes of nftables are not told any more");
                    self.events = None;
                    self.due = self.due.min(self.looked + PAUSE);
                }
                Wake::Due => self.look(),
                Wake::AcceptsDue => self.look_at_accepts(),
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
        let accepts_due = async {
            match self.accepts_due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = self.commands.recv() => command.map_or(Wake::End, Wake::Command),
            () = tokio::time::sleep_until(self.due.into()) => Wake::Due,
            () = accepts_due => Wake::AcceptsDue,
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
                Command::Add(destinations, done) => {
                    for destination in &destinations {
                        self.kept(*destination).elements.declare(*destination);
                    }
                    touched.extend(destinations);
                    waiting.push(done);
                }
                Command::Remove(destinations) => {
                    for destination in &destinations {
                        self.kept(*destination).elements.withdraw(*destination);
                    }
                    touched.extend(destinations);
                }
                Command::ServiceCidrs(ranges) => {
                    self.options.service_cidrs = ranges;
                    self.want();
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
        if self.families.iter().any(Kept::is_outdated) {
            self.due = Instant::now();
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
        self.options.drop_invalid = !is_liberal();
        self.want();
        self.with_connection(|keeper, connection| {
            keeper.families.each_mut().map(|kept| kept.look(connection))
        });
        self.look_at_accepts();
        let is_wrong = |kept: &Kept| kept.has_failed() || kept.has_refused();
        if self.families.iter().any(is_wrong) || self.accepts.iter().any(Accepts::has_failed) {
            self.due = self.looked + self.retry;
            self.retry = CHECK.min(self.retry * 2);
        } else {
            self.retry = RETRY;
        }
    }

    /// Looks at the accepts and puts right what is wrong.
    fn look_at_accepts(&mut self) {
        self.looked_at_accepts = Instant::now();
        self.accepts_due = None;
        self.with_connection(|keeper, connection| {
            keeper
                .accepts
                .each_mut()
                .map(|accepts| accepts.look(connection))
        });
        if self.accepts.iter().any(Accepts::has_failed) {
            self.due = self.due.min(self.looked_at_accepts + self.retry);
        }
    }

    /// Has all tables be as the options are.
    fn want(&mut self) {
        for kept in &mut self.families {
            kept.want(&self.options);
        }
    }

    fn with_connection(
        &mut self,
        work: impl FnOnce(&mut Self, &mut Connection) -> [io::Result<()>; 2],
    ) {
        let mut connection = match self.connection.take().map_or_else(Connection::open, Ok) {
            Ok(connection) => connection,
            Err(error) => {
                for kept in &mut self.families {
                    kept.fail(&error);
                }
                return;
            }
        };
        let results = work(self, &mut connection);
        // One that was not answered in time would be answered later, to something else.
        let is_lost = |result: &io::Result<()>| {
            let error = result.as_ref().err();
            error.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
        };
        if !results.iter().any(is_lost) {
            self.connection = Some(connection);
        }
    }

    const fn kept(&mut self, destination: Destination) -> &mut Kept {
        let [v4, v6] = &mut self.families;
        match Family::of(destination.address) {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }

    /// Tells those who look how the tables are, and the log when that has changed.
    fn tell(&self) {
        let tables = self.families.iter().filter_map(Kept::trouble);
        let accepts = self.families.iter().zip(&self.accepts);
        let accepts = accepts.filter(|(kept, _)| kept.is_used());
        let accepts = accepts.filter_map(|(_, accepts)| accepts.trouble());
        let troubles: Vec<_> = tables.chain(accepts).collect();
        let in_force = self.accepts.iter().filter(|accepts| accepts.is_in_force());
        let state = State {
            cluster_ips: self.families.iter().map(Kept::served).sum(),
            trouble: (!troubles.is_empty()).then(|| troubles.join("; ")),
            counts: sum(self.families.iter().map(Kept::counts)),
            accepts: in_force.map(Accepts::family).collect(),
        };
        let before = self.state.send_replace(state.clone());
        match (before.trouble, state.trouble) {
            (None, Some(trouble)) => {
                warn!(%trouble, "nftables rules not in force, trying again");
            }
            (Some(_), None) => info!("nftables rules in force"),
            _ => {}
        }
    }
}
