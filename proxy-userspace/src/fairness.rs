//! Is the lottery fair? Draws that were counted, held against equal odds.
//!
//! All of this is arithmetic over counts; what it means is in `docs/fairness.md`.
//!
//! Counted are draws from sets, not flows of endpoints: a client that session affinity sends back
//! has drawn nothing, and an endpoint that stands in two sets is not expected to get as much as one
//! that stands in one. A set never changes where it stands, so all draws from it had the same odds,
//! 1/n. Its statistic is Pearson's, with n-1 degrees of freedom; statistics of different sets are
//! independent and add up, and so do their degrees of freedom: over the sets that a service port
//! has, those that it had, its families, and the ports of a Service.
//!
//! A set counts once [`LEAST_EXPECTED`] draws are expected of each endpoint. That looks at how many
//! draws there were and not at how they fell, so it favours no outcome.

mod account;
mod finding;
mod tally;
#[cfg(test)]
mod tests;

pub use account::Account;
pub use finding::{Finding, Verdict, judge};
pub use tally::{LEAST_EXPECTED, Tally, deviation, expected, missing};

/// Of the Services that are named, this part at most is expected to be fair; where all are fair, it
/// is the chance that any is named.
pub const FALSE_DISCOVERY_RATE: f64 = 0.01;
