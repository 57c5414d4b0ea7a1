//! A death in the middle of an update, for the tests of restarts.

use rustix::process::{Signal, getpid, kill_process};

/// Ends the process, as SIGKILL does, before a certain write to the tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct KillPoint(Option<u32>);

impl KillPoint {
    /// Before the write of this number, counted from 1; never if there is none.
    pub const fn new(write: Option<u32>) -> Self {
        Self(write)
    }

    /// Counts one write. Returns whether each write is to be made by itself.
    pub(super) fn before_write(&mut self) -> bool {
        let Some(left) = &mut self.0 else {
            return false;
        };
        *left = left.saturating_sub(1);
        if *left == 0 {
            kill_process(getpid(), Signal::KILL).ok();
        }
        true
    }
}
