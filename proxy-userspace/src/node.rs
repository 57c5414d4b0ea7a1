//! This node: its devices, found and told apart by what the kernel says of them.

mod class;
mod links;
mod watch;

pub use class::{Class, Device, Framing, Reason, Verdict, classify};
pub use links::{Link, Links};
pub use watch::{WatchError, watch};
