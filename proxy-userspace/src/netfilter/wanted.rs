//! The table that is wanted.

use super::counter::Counter;
use super::options::Options;
use super::table::{Chain, Hook, Key, Kind, Rule, Set, State, Statement, Table};
use crate::config::Mode;
use crate::model::Family;

/// Name of the table, the same for each family.
pub const TABLE: &str = "kube-lottery";

/// The set of all `ClusterIP`s.
pub(super) const CLUSTER_IPS: Set = Set {
    name: "cluster-ips",
    key: Key::Address,
};

/// The set of all ports that Services have at their `ClusterIP`s.
pub(super) const CLUSTER_IP_PORTS: Set = Set {
    name: "cluster-ip-ports",
    key: Key::Port,
};

/// Before anybody's filter, which would refuse or count what is ours to reject: as kube-proxy has
/// it.
const EARLY: i32 = -110;

/// Before the masquerading of others, which is done at 100 and keeps ports where it can.
const MASQUERADE: i32 = 95;

/// Behind every DNAT, which is done at -100, and behind masquerading; whatever else a host has at a
/// hook stands before 200 as well.
const LATE: i32 = 200;

/// Which set decides what is dropped if nobody translates it: kube-proxy's nftables mode answers
/// for the whole of a `ClusterIP`, its iptables mode for the ports of Services only.
pub(super) const fn guarded(mode: Mode) -> Set {
    match mode {
        Mode::Iptables => CLUSTER_IP_PORTS,
        Mode::Nftables => CLUSTER_IPS,
    }
}

/// What the table of a family should be.
pub(super) fn wanted(family: Family, options: &Options) -> Table {
    let mut counters = vec![Counter::Untranslated, Counter::Rejected];
    let mut forward = vec![reject(options)];
    match options.mode {
        Mode::Iptables if options.drop_invalid => {
            counters.push(Counter::Invalid);
            forward.push(drop_invalid());
        }
        Mode::Iptables => {}
        Mode::Nftables => counters.push(Counter::Unallocated),
    }
    let late = late(family, options);
    // Only here is a packet of this host that is marked for rejection known not to be translated.
    let output = [vec![reject(options)], late.clone()].concat();
    let both = options.masquerade_mark | options.reject_mark;
    let clear = || vec![vec![Statement::ClearMark(both)]];
    let filter = |name, hook, priority, rules| Chain {
        name,
        kind: Kind::Filter,
        hook,
        priority,
        rules,
    };
    Table {
        name: TABLE,
        family,
        set: guarded(options.mode),
        counters,
        chains: vec![
            filter("prerouting", Hook::Prerouting, LATE, late),
            filter("forward", Hook::Forward, EARLY, forward),
            filter("input", Hook::Input, EARLY, vec![reject(options)]),
            filter("output", Hook::Output, LATE, output),
            Chain {
                name: "postrouting",
                kind: Kind::Nat,
                hook: Hook::Postrouting,
                priority: MASQUERADE,
                rules: vec![vec![
                    Statement::Marked(options.masquerade_mark),
                    Statement::ClearMark(options.masquerade_mark),
                    Statement::Masquerade,
                ]],
            },
            // A mark stays with a packet that is put into another one, which must not be masqueraded
            // for it; and chains of type nat see first packets only.
            filter("clear-postrouting", Hook::Postrouting, LATE, clear()),
            filter("clear-input", Hook::Input, LATE, clear()),
        ],
    }
}

/// Only first packets: a connection that is established ends by itself.
fn reject(options: &Options) -> Rule {
    vec![
        Statement::Marked(options.reject_mark),
        Statement::In(State::New),
        Statement::Count(Counter::Rejected),
        Statement::Reject,
    ]
}

/// What conntrack does not know is not translated back where a CNI has translated it, and a client
/// that gets a packet from a stranger resets the connection.
fn drop_invalid() -> Rule {
    vec![
        Statement::In(State::Invalid),
        Statement::Count(Counter::Invalid),
        Statement::Drop,
    ]
}

/// What becomes of packets that nobody has translated. Those marked for rejection are seen by a
/// program, so that nothing is to be waited for.
fn late(family: Family, options: &Options) -> Vec<Rule> {
    let unseen = Statement::Unmarked(options.reject_mark);
    let mut all = vec![vec![
        unseen,
        Statement::DestinationIn(guarded(options.mode)),
        Statement::DestinationElsewhere,
        Statement::Count(Counter::Untranslated),
        Statement::Drop,
    ]];
    if options.mode == Mode::Nftables {
        let ranges = options.service_cidrs.iter();
        let own = ranges.filter(|range| Family::of(range.addr()) == family);
        // What the set holds does not come here.
        all.extend(own.map(|range| {
            vec![
                unseen,
                Statement::DestinationWithin(range.trunc()),
                Statement::In(State::New),
                Statement::DestinationElsewhere,
                Statement::Count(Counter::Unallocated),
                Statement::Drop,
            ]
        }));
    }
    all
}
