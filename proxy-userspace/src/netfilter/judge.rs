//! What the tables do with a packet, by the very data that they are made of.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proxy_common::net::Proto;

use super::counter::Counter;
use super::destination::Destination;
use super::options::Options;
use super::table::{Chain, Hook, Key, State, Statement, Table};
use super::wanted::wanted;
use crate::model::Family;

/// The first packet of a connection, as it is when it comes to netfilter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Which way it takes.
    pub path: Path,
    /// Where it goes.
    pub destination: IpAddr,
    /// Whether that is an address of this host.
    pub is_local: bool,
    /// Its protocol.
    pub proto: Proto,
    /// The port where it goes; 0 where the protocol has none.
    pub port: u16,
    /// Its mark.
    pub mark: u32,
}

/// Which way a packet takes through netfilter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Path {
    /// In by a device and out by one.
    Forward,
    /// In by a device, to a socket of this host.
    Input,
    /// From a socket of this host, out by a device.
    Output,
}

impl Path {
    const fn hooks(self) -> &'static [Hook] {
        match self {
            Self::Forward => &[Hook::Prerouting, Hook::Forward, Hook::Postrouting],
            Self::Input => &[Hook::Prerouting, Hook::Input],
            Self::Output => &[Hook::Output, Hook::Postrouting],
        }
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It goes on, with this mark.
    Pass(u32),
    /// It goes on with another source and this mark.
    Masquerade(u32),
    /// It is dropped and counted.
    Drop(Option<Counter>),
    /// It is rejected with port unreachable.
    Reject,
}

/// The tables of both families, and what their sets hold.
#[derive(Clone, Debug)]
pub struct Rules {
    tables: [Table; 2],
    held: BTreeSet<Destination>,
}

impl Rules {
    /// The tables that the [`Keeper`](super::Keeper) makes of the same.
    pub fn new(options: &Options, held: BTreeSet<Destination>) -> Self {
        Self {
            tables: Family::ALL.map(|family| wanted(family, options)),
            held,
        }
    }

    /// What becomes of a packet, if nobody else has rules.
    pub fn judge(&self, packet: &Packet) -> Judgement {
        let mut packet = *packet;
        let mut is_masqueraded = false;
        for hook in packet.path.hooks() {
            for chain in self.chains(Family::of(packet.destination), *hook) {
                match self.run(chain, &mut packet) {
                    None => {}
                    Some(Judgement::Masquerade(_)) => is_masqueraded = true,
                    Some(end) => return end,
                }
            }
        }
        if is_masqueraded {
            Judgement::Masquerade(packet.mark)
        } else {
            Judgement::Pass(packet.mark)
        }
    }

    /// The chains of a hook in the order in which they run.
    fn chains(&self, family: Family, hook: Hook) -> Vec<&Chain> {
        let table = self.tables.iter().find(|table| table.family == family);
        let chains = table.into_iter().flat_map(|table| &table.chains);
        let mut chains: Vec<_> = chains.filter(|chain| chain.hook == hook).collect();
        chains.sort_by_key(|chain| chain.priority);
        chains
    }

    /// Runs a packet through a chain, whose kind does not matter to a first packet; nothing if it
    /// comes out at the end.
    fn run(&self, chain: &Chain, packet: &mut Packet) -> Option<Judgement> {
        for rule in &chain.rules {
            let mut counter = None;
            for statement in rule {
                let goes_on = match *statement {
                    Statement::DestinationIn(set) => self.holds(set.key, packet),
                    Statement::DestinationWithin(range) => range.contains(&packet.destination),
                    Statement::DestinationElsewhere => !packet.is_local,
                    Statement::Marked(bits) => packet.mark & bits != 0,
                    Statement::Unmarked(bits) => packet.mark & bits == 0,
                    Statement::In(state) => state == State::New,
                    Statement::ClearMark(bits) => {
                        packet.mark &= !bits;
                        true
                    }
                    Statement::Count(own) => {
                        counter = Some(own);
                        true
                    }
                    Statement::Masquerade => return Some(Judgement::Masquerade(packet.mark)),
                    Statement::Reject => return Some(Judgement::Reject),
                    Statement::Drop => return Some(Judgement::Drop(counter)),
                };
                if !goes_on {
                    break;
                }
            }
        }
        None
    }

    fn holds(&self, key: Key, packet: &Packet) -> bool {
        let Packet {
            destination,
            proto,
            port,
            ..
        } = *packet;
        self.held.contains(&match key {
            Key::Address => Destination::address(destination),
            Key::Port => Destination::port(destination, proto, port),
        })
    }
}
