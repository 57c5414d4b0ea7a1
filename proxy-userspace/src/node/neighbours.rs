//! Which neighbours the kernel is to keep in mind, and what to do for that.
//!
//! Packets to an endpoint on a bridge are sent across it as long as the kernel knows the endpoint's
//! MAC address. Where neither direction passes the stack, nothing but this has the kernel keep it:
//! the programs' look-ups do not count as use.

mod keep;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

pub use keep::{keep, release};

use super::bridge::OnLink;

/// After how long an entry that the kernel does not keep by itself (before Linux 5.16) is asked for
/// once more; it would look at entries that nobody uses after a minute.
pub const ASK_AGAIN: Duration = Duration::from_secs(20);

/// A neighbour: the device that it is on link at, and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Neighbour {
    /// Index of the device.
    pub device: u32,
    /// Its address.
    pub addr: IpAddr,
}

/// What the kernel says of a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The kernel looks for it again and again.
    pub is_managed: bool,
    /// An administrator said where it is.
    pub is_permanent: bool,
    /// The entry is one that was made here, by this run or another.
    pub is_ours: bool,
}

/// Something to ask of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Find the neighbour, and keep it in mind.
    Keep(Neighbour),
    /// Treat it as any other from now on.
    Release(Neighbour),
}

/// The endpoints that are neighbours on these networks. The node's own addresses are not.
pub fn wanted(networks: &BTreeSet<OnLink>, endpoints: &BTreeSet<IpAddr>) -> BTreeSet<Neighbour> {
    if networks.is_empty() {
        return BTreeSet::new();
    }
    endpoints
        .iter()
        .filter(|addr| networks.iter().all(|own| own.address.addr() != **addr))
        .filter_map(|addr| {
            let own = networks.iter().find(|own| own.address.contains(addr))?;
            Some(Neighbour {
                device: own.device,
                addr: *addr,
            })
        })
        .collect()
}

/// What is wanted, what the kernel has, and what it was asked.
#[derive(Debug, Default)]
pub struct Neighbours {
    wanted: BTreeSet<Neighbour>,
    known: HashMap<Neighbour, Entry>,
    /// When the kernel was asked to keep one.
    asked: BTreeMap<Neighbour, Duration>,
}

impl Neighbours {
    /// Takes in which neighbours are wanted.
    pub fn want(&mut self, wanted: BTreeSet<Neighbour>) {
        self.asked.retain(|neighbour, _| wanted.contains(neighbour));
        self.wanted = wanted;
    }

    /// An entry is there, or has changed.
    pub fn set(&mut self, neighbour: Neighbour, entry: Entry) {
        self.known.insert(neighbour, entry);
    }

    /// An entry is gone: whoever removed it, it is asked for again.
    pub fn gone(&mut self, neighbour: Neighbour) {
        self.known.remove(&neighbour);
        self.asked.remove(&neighbour);
    }

    /// Forgets what the kernel has, to be told anew.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// What to ask of the kernel at this time, by any clock that does not go back.
    pub fn steps(&self, now: Duration) -> Vec<Step> {
        let mut steps = Vec::new();
        for (neighbour, entry) in &self.known {
            // Others may have entries managed as well.
            if entry.is_managed && entry.is_ours && !self.wanted.contains(neighbour) {
                steps.push(Step::Release(*neighbour));
            }
        }
        for neighbour in &self.wanted {
            let entry = self.known.get(neighbour).copied().unwrap_or_default();
            let is_due = self
                .asked
                .get(neighbour)
                .is_none_or(|asked| now.saturating_sub(*asked) >= ASK_AGAIN);
            if is_due && !entry.is_managed && !entry.is_permanent {
                steps.push(Step::Keep(*neighbour));
            }
        }
        steps
    }

    /// The kernel was asked. It is not asked to keep the same neighbour again before [`ASK_AGAIN`],
    /// whatever it answers.
    pub fn asked(&mut self, step: Step, now: Duration) {
        if let Step::Keep(neighbour) = step {
            self.asked.insert(neighbour, now);
        }
    }

    /// Whether there is something to ask later on.
    pub fn is_waiting(&self) -> bool {
        self.wanted.iter().any(|neighbour| {
            let entry = self.known.get(neighbour);
            entry.is_none_or(|entry| !entry.is_managed && !entry.is_permanent)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    const MANAGED: Entry = Entry {
        is_managed: true,
        is_permanent: false,
        is_ours: true,
    };

    fn neighbour(device: u32, addr: &str) -> Neighbour {
        Neighbour {
            device,
            addr: addr.parse().unwrap(),
        }
    }

    fn networks() -> BTreeSet<OnLink> {
        [(3, "10.244.1.1/24"), (3, "fd00::1/64"), (4, "10.9.0.1/16")]
            .map(|(device, text)| OnLink {
                device,
                address: text.parse().unwrap(),
            })
            .into()
    }

    /// What is asked after `NOW` by so much.
    fn steps_at(neighbours: &mut Neighbours, seconds: u64) -> Vec<Step> {
        let now = NOW + Duration::from_secs(seconds);
        let steps = neighbours.steps(now);
        for step in &steps {
            neighbours.asked(*step, now);
        }
        steps
    }

    #[test]
    fn endpoints_on_a_bridge_are_wanted_and_no_others() {
        let endpoints = ["10.244.1.7", "10.244.2.7", "fd00::7", "10.9.7.7"];
        let endpoints = endpoints.map(|text| text.parse().unwrap()).into();
        let expected = [
            neighbour(3, "10.244.1.7"),
            neighbour(3, "fd00::7"),
            neighbour(4, "10.9.7.7"),
        ];
        assert_eq!(BTreeSet::from(expected), wanted(&networks(), &endpoints));
        assert!(wanted(&BTreeSet::new(), &endpoints).is_empty());
    }

    #[test]
    fn the_node_is_no_neighbour_of_its_own() {
        let own = ["10.244.1.1", "fd00::1"].map(|text| text.parse().unwrap());
        assert!(wanted(&networks(), &own.into()).is_empty());
    }

    #[test]
    fn what_is_kept_is_asked_for_once() {
        let mut neighbours = Neighbours::default();
        let one = neighbour(3, "10.244.1.7");
        neighbours.want([one].into());
        assert_eq!([Step::Keep(one)], *steps_at(&mut neighbours, 0));
        assert!(steps_at(&mut neighbours, 1).is_empty());
        neighbours.set(one, MANAGED);
        assert!(!neighbours.is_waiting());
        assert!(steps_at(&mut neighbours, 1000).is_empty());
    }

    #[test]
    fn a_kernel_that_keeps_nothing_is_asked_again() {
        let mut neighbours = Neighbours::default();
        let one = neighbour(3, "fd00::7");
        neighbours.want([one].into());
        assert_eq!(1, steps_at(&mut neighbours, 0).len());
        neighbours.set(one, Entry::default());
        assert!(steps_at(&mut neighbours, 19).is_empty());
        assert!(neighbours.is_waiting());
        assert_eq!([Step::Keep(one)], *steps_at(&mut neighbours, 20));
        assert!(steps_at(&mut neighbours, 39).is_empty());
    }

    #[test]
    fn an_entry_that_somebody_removes_or_changes_comes_back() {
        let mut neighbours = Neighbours::default();
        let one = neighbour(3, "10.244.1.7");
        neighbours.want([one].into());
        steps_at(&mut neighbours, 0);
        neighbours.set(one, MANAGED);
        neighbours.gone(one);
        assert_eq!([Step::Keep(one)], *steps_at(&mut neighbours, 1));
        neighbours.set(one, MANAGED);
        neighbours.set(one, Entry::default());
        assert_eq!([Step::Keep(one)], *steps_at(&mut neighbours, 30));
    }

    #[test]
    fn an_entry_of_an_administrator_is_left_alone() {
        let mut neighbours = Neighbours::default();
        let (one, two) = (neighbour(3, "10.244.1.7"), neighbour(3, "10.244.1.8"));
        neighbours.want([one].into());
        let permanent = Entry {
            is_permanent: true,
            ..Entry::default()
        };
        neighbours.set(one, permanent);
        let theirs = Entry {
            is_ours: false,
            ..MANAGED
        };
        neighbours.set(two, theirs);
        assert!(steps_at(&mut neighbours, 0).is_empty());
    }

    #[test]
    fn an_endpoint_that_goes_is_released_and_so_is_one_of_a_former_run() {
        let mut neighbours = Neighbours::default();
        let (one, former) = (neighbour(3, "10.244.1.7"), neighbour(9, "fd00::9"));
        neighbours.want([one].into());
        steps_at(&mut neighbours, 0);
        neighbours.set(one, MANAGED);
        neighbours.set(former, MANAGED);
        assert_eq!([Step::Release(former)], *steps_at(&mut neighbours, 1));
        neighbours.set(former, Entry::default());
        neighbours.want(BTreeSet::new());
        assert_eq!([Step::Release(one)], *steps_at(&mut neighbours, 1));
        neighbours.set(one, Entry::default());
        assert!(steps_at(&mut neighbours, 100).is_empty());
        // It comes back, and is asked for at once.
        neighbours.want([one].into());
        assert_eq!([Step::Keep(one)], *steps_at(&mut neighbours, 101));
    }
}
