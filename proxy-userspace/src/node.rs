//! This node: its devices, found and told apart by what the kernel says of them.

mod bridge;
mod class;
mod device;
mod links;
pub mod neighbours;
mod routes;
mod watch;

pub use bridge::{Bridge, OnLink};
pub use class::{Class, Framing, Reason, Verdict, classify};
pub use device::{Bystander, Device, Devices};
pub use links::{Link, Links};
pub use watch::{Look, WatchError, watch};
