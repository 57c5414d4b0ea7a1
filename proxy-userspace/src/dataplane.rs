//! The kernel's side: the loaded object, its maps and its links. All I/O on them is here.
//!
//! [`load`] yields two halves that do not need each other: [`Tables`], which the controller's task
//! owns and [`apply`]s operations to, and [`Programs`], which the thread that attaches them owns,
//! because attaching one takes the kernel many milliseconds.

pub mod apply;
pub mod attach;
pub mod cleanup;
mod clock;
mod devices;
mod former;
mod kill;
pub mod load;
pub mod lock;
pub mod maps;
pub mod monitor;
pub mod pins;
pub mod plain;
mod private;
pub mod reader;
pub mod settings;
mod shapes;
mod snapshot;
mod sweeper;
mod syscall;
pub mod tables;
mod tc;
mod trial;

pub use apply::{Failure, apply};
pub use attach::{AttachError, AttachMode, Mode, Programs};
pub use cleanup::{Cleanup, cleanup};
pub use kill::KillPoint;
pub use load::{Dataplane, Fresh, LoadError, LogLevel, Options, load};
pub use lock::{Lock, LockError};
pub use monitor::Monitor;
pub use pins::{PinError, Place};
pub use plain::Plain;
pub use private::Private;
pub use reader::{FlowRow, ReadError, Reader};
pub use sweeper::{Sweeper, Swept};
pub use tables::{Capacities, Tables};
pub use trial::Trial;
