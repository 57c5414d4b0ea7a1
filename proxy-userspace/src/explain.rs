//! Where a packet goes, and why: `kube-lottery explain` and `why`.
//!
//! A [`Scene`] is taken of all that concerns one packet: what the plan knows of its frontend, what
//! the tables hold for it, what nftables does. The tables' part is an [excerpt](excerpt), small and
//! of its own, on which the data path runs: the kernel's programs in an instance that is attached to
//! nothing ([`crate::dataplane::Private`]), or the same code on the host. So nothing that packets
//! use is changed by a question. From what the data path did, and the plan's reasons,
//! [`Scene::explain`] makes the answer.

mod answer;
mod draw;
mod excerpt;
mod frame;
mod host;
mod offline;
mod question;
mod scene;
mod steps;
mod why;

pub use draw::{DataPath, DrawError, Fate, Shot, draw};
pub use excerpt::Store;
pub use host::HostPath;
pub use offline::{Offline, OfflineError};
pub use question::{BadQuestion, Entry, Question, Verdict, WhyQuestion, parse_socket};
pub use scene::{Run, Scene, Sight};
pub use why::why;
