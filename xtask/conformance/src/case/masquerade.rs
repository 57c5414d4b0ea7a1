//! Which of the flows of a packet are masqueraded.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Backend;

/// Which of the flows of a packet are masqueraded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Masquerade {
    /// All or none.
    All(bool),
    /// Those to these backends, and no others.
    To(Vec<Backend>),
}

impl Masquerade {
    /// Flows to `masqueraded` of `all` backends are masqueraded.
    pub fn of(masqueraded: &BTreeSet<Backend>, all: &BTreeSet<Backend>) -> Self {
        if masqueraded.is_empty() {
            Self::All(false)
        } else if masqueraded == all {
            Self::All(true)
        } else {
            Self::To(masqueraded.iter().copied().collect())
        }
    }

    /// Those of `all` backends whose flows are masqueraded.
    pub fn among(&self, all: &BTreeSet<Backend>) -> BTreeSet<Backend> {
        match self {
            Self::All(true) => all.clone(),
            Self::All(false) => BTreeSet::new(),
            Self::To(some) => some.iter().copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_none_and_some_survive_the_way_there_and_back() {
        let all: BTreeSet<Backend> = ["10.0.0.1:80", "[fd00::1]:80"]
            .map(|text| text.parse().unwrap())
            .into();
        let first: BTreeSet<_> = all.iter().copied().take(1).collect();
        for some in [BTreeSet::new(), first, all.clone()] {
            assert_eq!(some, Masquerade::of(&some, &all).among(&all));
        }
    }
}
