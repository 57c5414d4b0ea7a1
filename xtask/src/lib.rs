//! What the build script, the command line and the tests share.
#![forbid(unsafe_code)]

pub mod ebpf;
pub mod lab;
pub mod run;
pub mod stats;
