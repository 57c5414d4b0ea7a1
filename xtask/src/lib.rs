//! What the build script, the command line and the tests share.
#![forbid(unsafe_code)]

#[cfg(feature = "lab")]
pub mod budgets;
pub mod ebpf;
#[cfg(feature = "lab")]
pub mod lab;
#[cfg(feature = "cli")]
pub mod run;
#[cfg(feature = "lab")]
pub mod stats;
