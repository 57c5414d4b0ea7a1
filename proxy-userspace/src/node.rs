//! This node: its devices, found and told apart by what the kernel says of them.

mod class;
mod device;
mod links;
mod routes;
mod watch;

pub use class::{Class, Framing, Reason, Verdict, classify};
pub use device::{Bystander, Device, Devices};
pub use links::{Link, Links};
pub use watch::{WatchError, watch};
