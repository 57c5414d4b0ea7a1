//! Counts of draws, read where no set can change meanwhile.

use crate::control::{PortDraws, SetDraws, TotalDraws};
use crate::dataplane::Tables;
use crate::fairness::Account;
use crate::plan::{Left, Plan};

/// What sets that are gone have counted.
#[derive(Debug, Default)]
pub(super) struct Draws {
    account: Account,
}

impl Draws {
    /// Takes in what sets counted that have just been left. A packet that is being handled may
    /// still draw from one; that draw is lost, however it falls.
    pub(super) fn close(&mut self, left: &[Left], tables: &Tables) {
        for Left {
            service,
            sets,
            is_last,
        } in left
        {
            let counts = sets.iter().map(|&(base, len)| tables.draws.of(base, len));
            let counts: Vec<_> = counts.collect();
            self.account.close(*service, &counts, *is_last);
        }
    }

    /// All draws so far.
    pub(super) fn read(&self, plan: &Plan, tables: &Tables) -> TotalDraws {
        let ports = plan.sets().into_iter().map(|port| {
            let sets = port.sets.into_iter().map(|set| SetDraws {
                counts: tables.draws.of(set.base, set.endpoints.len() as u32),
                lists: set.lists,
                endpoints: set.endpoints,
            });
            PortDraws {
                sets: sets.collect(),
                former: self.account.of(port.number),
                service: port.service,
                name: port.name,
                protocol: port.protocol,
                family: port.family,
            }
        });
        TotalDraws {
            ports: ports.collect(),
            closed: self.account.draws(),
        }
    }
}
