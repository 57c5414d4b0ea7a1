//! What holds of every table, whatever the options.

use proptest::prelude::*;

use super::super::options::Options;
use super::super::table::{Hook, Kind, Statement};
use super::super::wanted::wanted;
use super::options;
use crate::config::Mode;
use crate::model::Family;

fn any_options() -> impl Strategy<Value = Options> {
    (any::<bool>(), any::<bool>(), 0..32_u8, 1..32_u8).prop_map(
        |(mode, drop_invalid, bit, more)| {
            let mode = if mode { Mode::Iptables } else { Mode::Nftables };
            Options {
                drop_invalid,
                masquerade_mark: 1 << bit,
                reject_mark: 1 << ((bit + more) % 32),
                ..options(mode)
            }
        },
    )
}

proptest! {
    #[test]
    fn what_rules_name_is_in_the_table(options in any_options()) {
        for family in Family::ALL {
            let table = wanted(family, &options);
            let rules = table.chains.iter().flat_map(|chain| &chain.rules);
            let statements: Vec<_> = rules.clone().flatten().copied().collect();
            for statement in &statements {
                match statement {
                    Statement::Count(counter) => prop_assert!(table.counters.contains(counter)),
                    Statement::DestinationIn(set) => prop_assert_eq!(table.set, *set),
                    Statement::DestinationWithin(range) => {
                        prop_assert_eq!(family, Family::of(range.addr()));
                    }
                    _ => {}
                }
            }
            for counter in &table.counters {
                prop_assert!(statements.contains(&Statement::Count(*counter)));
            }
            // Whatever ends a packet is told.
            for rule in rules {
                if let Some(Statement::Drop | Statement::Reject) = rule.last() {
                    prop_assert!(matches!(rule[rule.len() - 2], Statement::Count(_)));
                }
            }
        }
    }

    #[test]
    fn chains_have_names_and_places_of_their_own(options in any_options()) {
        for family in Family::ALL {
            let table = wanted(family, &options);
            for (index, chain) in table.chains.iter().enumerate() {
                for other in &table.chains[..index] {
                    prop_assert_ne!(chain.name, other.name);
                    let places = [chain, other].map(|chain| chain.priority);
                    prop_assert!(chain.hook != other.hook || places[0] != places[1]);
                }
            }
            let nat = table.chains.iter().filter(|chain| chain.kind == Kind::Nat);
            let [nat] = nat.collect::<Vec<_>>()[..] else {
                panic!("one chain translates");
            };
            // In front of the masquerading of others; and nobody sees our bits behind it.
            prop_assert_eq!(Hook::Postrouting, nat.hook);
            prop_assert!(nat.priority < 100);
            let both = options.masquerade_mark | options.reject_mark;
            for hook in [Hook::Postrouting, Hook::Input] {
                let own = table.chains.iter().filter(|chain| chain.hook == hook);
                let last = own.max_by_key(|chain| chain.priority).unwrap();
                prop_assert!(last.priority > 100);
                prop_assert_eq!(Kind::Filter, last.kind);
                prop_assert_eq!(vec![vec![Statement::ClearMark(both)]], last.rules.clone());
            }
        }
    }
}
