//! What was measured, and what is taken for the cost.

use std::collections::BTreeMap;
use std::fmt;

/// Which of the two programs a packet meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    In,
    Out,
}

impl Way {
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Self::In => "tc_in",
            Self::Out => "tc_eg",
        }
    }
}

/// How often a test run repeats a packet. The more often, the less of the figure is the harness's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Harness {
    /// Not at all: the next packet would meet what this one has changed.
    Once,
    /// Once around a circle of Services.
    Circle,
    /// Very often: nothing changes.
    Steady,
}

/// What a figure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// A program that always does the same.
    Fixed(&'static str),
    /// A path of a packet through one of the classifiers.
    Path {
        name: &'static str,
        is_v6: bool,
        way: Way,
    },
}

impl Subject {
    pub(crate) const fn program(&self) -> &'static str {
        match self {
            Self::Fixed(program) => program,
            Self::Path { way, .. } => way.program(),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(program) => f.write_str(program),
            Self::Path { name, is_v6, way } => {
                let family = if *is_v6 { "ipv6" } else { "ipv4" };
                let way = match way {
                    Way::In => "in",
                    Way::Out => "out",
                };
                write!(f, "{name}/{family}/{way}")
            }
        }
    }
}

/// The least that each took, in nanoseconds: whatever else the machine does only adds.
#[derive(Default)]
pub(crate) struct Samples(BTreeMap<(Subject, Harness), f64>);

impl Samples {
    pub(crate) fn add(&mut self, subject: Subject, harness: Harness, nanoseconds: f64) {
        let least = self.0.entry((subject, harness)).or_insert(nanoseconds);
        *least = nanoseconds.min(*least);
    }

    /// The least of a program that always does the same.
    pub(crate) fn fixed(&self, program: Subject, harness: Harness) -> f64 {
        self.0[&(program, harness)]
    }

    /// All paths.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (Subject, Harness, f64)> {
        self.0
            .iter()
            .filter(|((subject, _), _)| matches!(subject, Subject::Path { .. }))
            .map(|((subject, harness), least)| (*subject, *harness, *least))
    }
}
