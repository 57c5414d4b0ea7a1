//! Cluster states and packets at random: legal ones, as an API server would have them.

mod addresses;
mod draft;
mod packets;
mod state;

use anyhow::{Result, anyhow};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::case::Case;

/// Cases at random; the same seed gives the same.
pub struct Random {
    runner: TestRunner,
    seed: u64,
    made: usize,
}

impl Random {
    /// Cases of this seed.
    pub fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        for (to, from) in bytes.iter_mut().zip(seed.to_le_bytes()) {
            *to = from;
        }
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        Self {
            runner: TestRunner::new_with_rng(Config::default(), rng),
            seed,
            made: 0,
        }
    }

    /// The next case.
    pub fn case(&mut self) -> Result<Case> {
        let tree = draft::draft()
            .new_tree(&mut self.runner)
            .map_err(|reason| anyhow!("no case: {reason}"))?;
        self.made += 1;
        let draft = tree.current();
        Ok(Case {
            name: format!("random-{}-{}", self.seed, self.made),
            source: "made at random".to_owned(),
            note: String::new(),
            packets: packets::packets(&draft),
            objects: state::objects(&draft),
            node: state::node(&draft.node),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::case::{Entry, Protocol};
    use crate::cluster;

    #[test]
    fn a_seed_gives_the_same_cases_and_another_one_gives_others() {
        let some = |seed| {
            let mut random = Random::new(seed);
            [random.case().unwrap(), random.case().unwrap()].map(|case| case.packets)
        };
        assert_eq!(some(7), some(7));
        assert_ne!(some(7), some(8));
    }

    #[test]
    fn cases_at_random_are_legal_and_of_many_kinds() {
        let mut random = Random::new(1);
        let mut entries = BTreeSet::new();
        let mut protocols = BTreeSet::new();
        let mut doors = BTreeSet::new();
        for _ in 0..200 {
            let case = random.case().unwrap();
            let declared = cluster::declared(&case).unwrap();
            assert!(
                declared.left_out.is_empty(),
                "{}: {:?}",
                case.name,
                declared.left_out
            );
            for packet in &case.packets {
                assert_eq!(packet.from.is_ipv4(), packet.to.is_ipv4(), "{packet:?}");
                entries.insert(match packet.entry {
                    Entry::Pod => 0,
                    Entry::Host => 1,
                    Entry::External => 2,
                });
                protocols.insert(match packet.proto {
                    Protocol::Tcp => 0,
                    Protocol::Udp => 1,
                    Protocol::Sctp => 2,
                });
                let door = packet
                    .name
                    .split_once(" to ")
                    .map(|(_, door)| door.to_owned());
                doors.insert(door.unwrap().split(" of ").next().unwrap().to_owned());
            }
            let names: BTreeSet<_> = case.packets.iter().map(|packet| &packet.name).collect();
            assert_eq!(names.len(), case.packets.len(), "{}", case.name);
        }
        assert_eq!((3, 3), (entries.len(), protocols.len()));
        assert!(doors.len() >= 9, "{doors:?}");
    }
}
