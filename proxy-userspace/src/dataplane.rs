//! The kernel's side: the loaded object, its maps and its links. All I/O on them is here.
//!
//! [`load`] yields two halves that do not need each other: [`Tables`], which the controller's task
//! owns and [`apply`]s operations to, and [`Programs`], which the thread that attaches them owns,
//! because attaching one takes the kernel many milliseconds.

pub mod apply;
pub mod attach;
pub mod load;
pub mod maps;
pub mod plain;
pub mod reader;
pub mod settings;
mod syscall;
pub mod tables;

pub use apply::{Failure, apply};
pub use attach::{AttachError, Programs};
pub use load::{Dataplane, LoadError, LogLevel, Options, load};
pub use plain::Plain;
pub use reader::{ReadError, Reader};
pub use tables::{Capacities, Tables};
