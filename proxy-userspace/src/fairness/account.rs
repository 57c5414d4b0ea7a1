//! What was drawn from sets that are there no more.

use std::collections::HashMap;

use super::tally::Tally;

/// Keeps what former sets of service ports came to; a new process begins with nothing.
#[derive(Debug, Default)]
pub struct Account {
    by_port: HashMap<u32, Tally>,
    draws: u64,
}

impl Account {
    /// Closes sets of a service port by their counts; whether the port goes with them.
    pub fn close(&mut self, port: u32, sets: &[Vec<u64>], is_last: bool) {
        let mut sum = Tally::default();
        for counts in sets {
            sum.add(&Tally::of(counts));
        }
        self.draws += sum.draws;
        if is_last {
            self.by_port.remove(&port);
        } else {
            self.by_port.entry(port).or_default().add(&sum);
        }
    }

    /// What the former sets of a service port came to.
    pub fn of(&self, port: u32) -> Tally {
        self.by_port.get(&port).copied().unwrap_or_default()
    }

    /// All draws from sets that are closed, those of ports that have ended among them.
    pub const fn draws(&self) -> u64 {
        self.draws
    }
}
