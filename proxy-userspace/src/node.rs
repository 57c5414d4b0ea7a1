//! This node: its devices, found and told apart by what the kernel says of them.

mod bridge;
mod class;
mod links;
pub mod neighbours;
mod watch;

pub use bridge::{Bridge, OnLink};
pub use class::{Class, Device, Framing, Reason, Verdict, classify};
pub use links::{Link, Links};
pub use watch::{WatchError, watch};
